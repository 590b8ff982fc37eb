"""`benchlab workload`: make, inspect and check workload files; convert and lock are next door."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from benchlab.workload.read import Workload

workloads = typer.Typer(help="Workload files: make, inspect, check, convert, lock.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(help="A file, or the name of a shipped workload.")]


Lenient = Annotated[bool, typer.Option("--lenient", help="Leave broken lines out, counted.")]
AllowUnknown = Annotated[bool, typer.Option("--allow-unknown", help="Accept unknown fields.")]
TimeUnit = Annotated[str | None, typer.Option("--time-unit", help="s | ms | us | ns, for traces that do not say.")]
BlockTokens = Annotated[int | None, typer.Option("--block-tokens", min=1, help="Tokens of a prefix block, likewise.")]
From = Annotated[
    str | None,
    typer.Option("--from", "--data-format", help="Format by name; a wrong one lists them (default: by keys)."),
]


@workloads.command("inspect")
def inspect(
    source: Source,
    form: Annotated[str, typer.Option("--format", help="table | json")] = "table",
    plot: Annotated[bool, typer.Option("--plot", help="Draw arrivals and lengths as well.")] = False,
    lenient: Lenient = False,
    allow_unknown: AllowUnknown = False,
    time_unit: TimeUnit = None,
    block_tokens: BlockTokens = None,
    kind: From = None,
) -> int:
    """Rows, span, rate, burstiness, lengths, shared prefixes, sessions."""
    from benchlab.cli.options import one_of
    from benchlab.cli.output import width
    from benchlab.workload import inspect as facts
    from benchlab.workload.plot import draw

    one_of(form, ("table", "json"), "--format")
    workload = read_source(source, lenient, allow_unknown, time_unit, block_tokens, kind)
    found = facts.inspect(workload)
    print(json.dumps(found, indent=1, ensure_ascii=False) if form == "json" else facts.as_text(found))
    if plot:
        print("\n" + draw(workload.items, width()), file=sys.stderr if form == "json" else sys.stdout)
    return 0


@workloads.command("check")
def check(
    source: Source,
    lock: Annotated[
        Path | None, typer.Option("--lock", help="Compare with a lock file; exit 6 where it differs.")
    ] = None,
    lenient: Lenient = False,
    allow_unknown: AllowUnknown = False,
    time_unit: TimeUnit = None,
    block_tokens: BlockTokens = None,
    kind: From = None,
) -> int:
    """Read a workload; exit 2 with file, line and field of each fault."""
    workload = read_source(source, lenient, allow_unknown, time_unit, block_tokens, kind)
    dropped = sum(workload.dropped.values())
    faults = "no faults" if not workload.complaints else f"{len(workload.complaints)} lines left out"
    print(f"{workload.path}: {workload.kept} rows kept, {dropped} dropped, {len(workload.items)} items, {faults}")
    for reason, number in workload.dropped.items():
        print(f"  dropped {number}: {reason}")
    for note in (*workload.notes, *workload.complaints):
        print(f"  {note}")
    if lock is not None:
        from benchlab.workload.lock import check_lock

        check_lock(lock, workload)
        print(f"  is what {lock} says")
    return 0


def read_source(
    source: str,
    lenient: bool = False,
    allow_unknown: bool = False,
    time_unit: str | None = None,
    block_tokens: int | None = None,
    kind: str | None = None,
    tokenizer: Path | None = None,
    seed: int = 0,
    span_s: tuple[float, float] | None = None,
) -> Workload:
    """The workload that a user named. tokenizer: counts recorded answers. seed, span_s: for client profiles."""
    from benchlab.workload.find import resolve
    from benchlab.workload.read import read_items
    from benchlab.workload.tokens import from_file

    return read_items(
        resolve(source, flag="benchlab workload"),
        lenient=lenient,
        allow_unknown=allow_unknown,
        time_unit=time_unit,
        block_tokens=block_tokens,
        form=kind,
        counter=None if tokenizer is None else from_file(tokenizer),
        seed=seed,
        span_s=span_s,
    )


def add(app: typer.Typer) -> None:
    """Register the group."""
    from benchlab.cli.workload_files import convert, lock
    from benchlab.cli.workload_make import make

    workloads.command("make")(make)
    workloads.command("convert")(convert)
    workloads.command("lock")(lock)
    app.add_typer(workloads, name="workload")
