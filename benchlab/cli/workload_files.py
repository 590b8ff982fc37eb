"""`benchlab workload convert` and `lock`: other files from files, and what a workload is in hashes and figures."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchlab.cli.workload import AllowUnknown, BlockTokens, From, Lenient, Source, TimeUnit, read_source

if TYPE_CHECKING:
    from benchlab.workload.item import WorkloadItem
    from benchlab.workload.read import Workload

Sources = Annotated[list[str], typer.Argument(help="Files or shipped names; several become tenants of one workload.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="JSON Lines file to write.")]
Tokenizer = Annotated[Path | None, typer.Option("--tokenizer", help="tokenizer.json or its folder, to count answers.")]


@dataclass(frozen=True, slots=True)
class _Wish:
    """What `convert` is to change; None: nothing."""

    span: str | None
    rate_scale: float | None
    thin: float | None
    bootstrap: int | None
    max_input: int | None
    max_output: int | None
    drop_longer: bool
    idle_cap: str | None
    spread: bool
    seed: int


def convert(
    sources: Sources,
    out: Out,
    span: Annotated[str | None, typer.Option("--slice", help="What begins in 0s..600s, sessions as a whole.")] = None,
    rate_scale: Annotated[
        float | None, typer.Option("--rate-scale", help="Arrivals at so many times the rate.")
    ] = None,
    thin: Annotated[float | None, typer.Option("--thin", help="Keep this share of the sessions.")] = None,
    bootstrap: Annotated[
        int | None, typer.Option("--bootstrap", min=1, help="Draw N sessions with replacement.")
    ] = None,
    max_input: Annotated[int | None, typer.Option("--max-input", min=1, help="Cut inputs to N tokens.")] = None,
    max_output: Annotated[int | None, typer.Option("--max-output", min=1, help="Cut outputs to N tokens.")] = None,
    drop_longer: Annotated[bool, typer.Option("--drop-longer", help="Leave longer ones out instead.")] = False,
    idle_cap: Annotated[str | None, typer.Option("--idle-cap", help="Cut pauses between turns, such as 60s.")] = None,
    spread: Annotated[
        bool, typer.Option("--spread-ticks", help="Spread arrivals within a coarse clock's tick.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="For what is drawn.")] = 0,
    tokenizer: Tokenizer = None,
    lenient: Lenient = False,
    allow_unknown: AllowUnknown = False,
    time_unit: TimeUnit = None,
    block_tokens: BlockTokens = None,
    kind: From = None,
) -> int:
    """Write any known format as workload items, resampled if asked; prints the figures before and after."""
    from benchlab.errors import UsageError
    from benchlab.workload.inspect import beside, facts
    from benchlab.workload.read import write_items

    if out.exists():
        raise UsageError("exists, and nothing is ever overwritten", where=str(out), hint="give another -o/--out")
    if drop_longer and max_input is None and max_output is None:
        raise UsageError("longer than what?", where="--drop-longer", hint="add --max-input N or --max-output N")
    window = None if span is None else _span(span)
    read = [
        read_source(one, lenient, allow_unknown, time_unit, block_tokens, kind, tokenizer, seed, window)
        for one in sources
    ]
    wish = _Wish(span, rate_scale, thin, bootstrap, max_input, max_output, drop_longer, idle_cap, spread, seed)
    items, steps = _changed(read, wish)
    for workload in read:
        for note in workload.notes:
            print(f"{workload.path}: {note}", file=sys.stderr)
        for complaint in workload.complaints:
            print(f"left out: {complaint}", file=sys.stderr)
    for step in steps:
        print(f"step: {step}")
    write_items(items, out)
    if steps and len(read) == 1:
        print(beside(facts(read[0].items), facts(items)))
    print(f"wrote {len(items):,} items to {out}", file=sys.stderr)
    return 0


def _changed(read: Sequence[Workload], wish: _Wish) -> tuple[Sequence[WorkloadItem], list[str]]:
    from benchlab.workload import resample
    from benchlab.workload.inspect import tick_of

    items: Sequence[WorkloadItem] = read[0].items
    steps: list[str] = []

    def take(step: resample.Step) -> None:
        nonlocal items
        items = step[0]
        steps.append(step[1])

    if len(read) > 1:
        take(resample.merge(list(zip(_tenants(read), (one.items for one in read), strict=True))))
    if wish.spread:
        take(resample.spread_ticks(items, tick_of(items), wish.seed))
    if wish.span is not None and not all(workload.format == "servegen" for workload in read):  # drawn in it already
        take(resample.cut(items, *_span(wish.span)))
    if wish.thin is not None:
        take(resample.thin(items, wish.thin, wish.seed))
    if wish.bootstrap is not None:
        take(resample.bootstrap(items, wish.bootstrap, wish.seed))
    if wish.max_input is not None or wish.max_output is not None:
        take(resample.cap(items, wish.max_input, wish.max_output, drop=wish.drop_longer))
    if wish.idle_cap is not None:
        take(resample.cap_waits(items, _seconds(wish.idle_cap, "--idle-cap")))
    if wish.rate_scale is not None:
        take(resample.scale_rate(items, wish.rate_scale))
    return items, steps


def _tenants(read: Sequence[Workload]) -> list[str]:
    """A name for each file: its own, with a number where two have the same."""
    names: list[str] = []
    for workload in read:
        stem = Path(workload.path).name.split(".")[0] or "workload"
        taken = names.count(stem)
        names.append(stem if not taken else f"{stem}-{taken + 1}")
    return names


def _seconds(text: str, flag: str) -> float:
    from benchlab.units import NS_PER_S, parse_duration_ns

    return parse_duration_ns(text, flag=flag, allow_zero=True) / NS_PER_S


def _span(text: str) -> tuple[float, float]:
    from benchlab.errors import UsageError

    start, dots, end = text.partition("..")
    if not dots:
        raise UsageError(f"'{text}' is no span", where="--slice", hint="write a start and an end, such as 0s..600s")
    low, high = _seconds(start or "0s", "--slice"), _seconds(end, "--slice") if end else float("inf")
    if not low < high:
        raise UsageError(f"'{text}' ends before it begins", where="--slice", hint="write 0s..600s")
    return low, high


def lock(
    source: Source,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write (default: SOURCE.lock.json).")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Content seed of the runs that will use it.")] = 0,
    arrival_seed: Annotated[int, typer.Option("--arrival-seed", help="Their arrival seed.")] = 0,
    tokenizer: Tokenizer = None,
    chat_template: Annotated[Path | None, typer.Option("--chat-template", help="File whose hash is stored.")] = None,
    sampling: Annotated[str | None, typer.Option("--sampling", help="JSON of the sampling that will be used.")] = None,
    lenient: Lenient = False,
    allow_unknown: AllowUnknown = False,
    time_unit: TimeUnit = None,
    block_tokens: BlockTokens = None,
    kind: From = None,
) -> int:
    """Write what a workload is: hashes of items and arrivals, seeds, tokenizer, sampling, and its figures."""
    from benchlab.workload.lock import SUFFIX, write_lock
    from benchlab.workload.lock import lock as make_lock

    workload = read_source(source, lenient, allow_unknown, time_unit, block_tokens, kind, tokenizer)
    place = tokenizer / "tokenizer.json" if tokenizer is not None and tokenizer.is_dir() else tokenizer
    locked = make_lock(
        workload,
        seeds={"content": seed, "arrival": arrival_seed},
        tokenizer=_sha256(place),
        sampling=_object(sampling),
        chat_template=_sha256(chat_template),
    )
    path = out or Path(Path(workload.path).name + SUFFIX)
    write_lock(locked, path)
    print(locked["fingerprint"])
    print(f"wrote {path}", file=sys.stderr)
    return 0


def _sha256(path: Path | None) -> str | None:
    from benchlab.errors import UsageError

    if path is None:
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as fault:
        raise UsageError(f"cannot be read: {fault.strerror}", where=str(path)) from None


def _object(text: str | None) -> dict[str, Any]:
    from benchlab.errors import UsageError

    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"'{text[:60]}' is no JSON object", where="--sampling", hint="write '{\"temperature\": 0}'")
    return found
