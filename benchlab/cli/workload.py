"""`benchlab workload`: make, inspect and check workload files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from benchlab.workload.read import Workload

workloads = typer.Typer(help="Workload files: make, inspect, check.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(help="A file, or the name of a shipped workload.")]


@workloads.command("make")
def make(
    recipe: Annotated[str, typer.Argument(help="Recipe name; a wrong one lists them.")],
    seed: Annotated[int, typer.Option("--seed", help="The same recipe and seed give the same bytes.")] = 0,
    number: Annotated[int | None, typer.Option("-n", min=1, max=5_000_000, help="So many items.")] = None,
    isl: Annotated[int | None, typer.Option("--isl", min=1, help="Input tokens, for the recipe fixed.")] = None,
    osl: Annotated[int | None, typer.Option("--osl", min=1, help="Output tokens, for the recipe fixed.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write (default: stdout).")] = None,
) -> int:
    """Write a synthetic workload: a recipe and a seed."""
    from benchlab.errors import StorageError, UsageError
    from benchlab.workload.make import make as make_items
    from benchlab.workload.make import to_bytes
    from benchlab.workload.recipes import fixed

    if recipe == "fixed" and (isl is None or osl is None):
        raise UsageError("the recipe fixed needs two lengths", where="--isl, --osl", hint="write --isl 512 --osl 128")
    chosen = fixed(isl, osl) if recipe == "fixed" and isl is not None and osl is not None else recipe
    data = to_bytes(make_items(chosen, seed, number))
    if out is None:
        sys.stdout.buffer.write(data)
        return 0
    if out.exists():
        raise UsageError("exists, and nothing is ever overwritten", where=str(out), hint="give another -o/--out")
    try:
        out.write_bytes(data)
    except OSError as error:
        raise StorageError(f"cannot be written: {error.strerror}", where=str(out)) from error
    print(f"wrote {out}", file=sys.stderr)
    return 0


Lenient = Annotated[bool, typer.Option("--lenient", help="Leave broken lines out, counted.")]
AllowUnknown = Annotated[bool, typer.Option("--allow-unknown", help="Accept unknown fields.")]
TimeUnit = Annotated[str | None, typer.Option("--time-unit", help="s | ms | us | ns, for traces that do not say.")]
BlockTokens = Annotated[int | None, typer.Option("--block-tokens", min=1, help="Tokens of a prefix block, likewise.")]


@workloads.command("inspect")
def inspect(
    source: Source,
    form: Annotated[str, typer.Option("--format", help="table | json")] = "table",
    lenient: Lenient = False,
    allow_unknown: AllowUnknown = False,
    time_unit: TimeUnit = None,
    block_tokens: BlockTokens = None,
) -> int:
    """Rows, span, rate, burstiness, lengths, shared prefixes, sessions."""
    from benchlab.workload import inspect as facts

    workload = _read(source, lenient, allow_unknown, time_unit, block_tokens)
    found = facts.inspect(workload)
    print(json.dumps(found, indent=1, ensure_ascii=False) if form == "json" else facts.as_text(found))
    return 0


@workloads.command("check")
def check(
    source: Source,
    lenient: Lenient = False,
    allow_unknown: AllowUnknown = False,
    time_unit: TimeUnit = None,
    block_tokens: BlockTokens = None,
) -> int:
    """Read a workload; exit 2 with file, line and field of each fault."""
    workload = _read(source, lenient, allow_unknown, time_unit, block_tokens)
    dropped = sum(workload.dropped.values())
    faults = "no faults" if not workload.complaints else f"{len(workload.complaints)} lines left out"
    print(f"{workload.path}: {workload.kept} rows kept, {dropped} dropped, {len(workload.items)} items, {faults}")
    for reason, number in workload.dropped.items():
        print(f"  dropped {number}: {reason}")
    for note in (*workload.notes, *workload.complaints):
        print(f"  {note}")
    return 0


def _read(source: str, lenient: bool, allow_unknown: bool, time_unit: str | None, block_tokens: int | None) -> Workload:
    from benchlab.workload.find import resolve
    from benchlab.workload.read import read_items

    return read_items(
        resolve(source, flag="benchlab workload"),
        lenient=lenient,
        allow_unknown=allow_unknown,
        time_unit=time_unit,
        block_tokens=block_tokens,
    )


def add(app: typer.Typer) -> None:
    """Register the group."""
    app.add_typer(workloads, name="workload")
