"""`benchlab workload`: make, inspect and check workload files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

workloads = typer.Typer(help="Workload files: make, inspect, check.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(help="A file, or the name of a shipped workload.")]


@workloads.command("make")
def make(
    recipe: Annotated[str, typer.Argument(help="Recipe name; a wrong one lists them.")],
    seed: Annotated[int, typer.Option("--seed", help="The same recipe and seed give the same bytes.")] = 0,
    number: Annotated[int | None, typer.Option("-n", min=1, max=5_000_000, help="So many items.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write (default: stdout).")] = None,
) -> int:
    """Write a synthetic workload: a recipe and a seed."""
    from benchlab.errors import StorageError, UsageError
    from benchlab.workload.make import make as make_items
    from benchlab.workload.make import to_bytes

    data = to_bytes(make_items(recipe, seed, number))
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


@workloads.command("inspect")
def inspect(
    source: Source,
    form: Annotated[str, typer.Option("--format", help="table | json")] = "table",
    lenient: Annotated[bool, typer.Option("--lenient", help="Leave broken lines out, counted.")] = False,
    time_unit: Annotated[str | None, typer.Option("--time-unit", help="s | ms | us | ns")] = None,
) -> int:
    """Rows, span, rate, burstiness, lengths, shared prefixes, sessions."""
    from benchlab.workload import inspect as facts
    from benchlab.workload.find import resolve
    from benchlab.workload.read import read_items

    found = facts.inspect(read_items(resolve(source), lenient=lenient, time_unit=time_unit))
    print(json.dumps(found, indent=1, ensure_ascii=False) if form == "json" else facts.as_text(found))
    return 0


@workloads.command("check")
def check(
    source: Source,
    time_unit: Annotated[str | None, typer.Option("--time-unit", help="s | ms | us | ns")] = None,
) -> int:
    """Read a workload; exit 2 with file, line and field of each fault."""
    from benchlab.workload.find import resolve
    from benchlab.workload.read import read_items

    workload = read_items(resolve(source), time_unit=time_unit)
    dropped = sum(workload.dropped.values())
    print(f"{workload.path}: {workload.kept} rows kept, {dropped} dropped, {len(workload.items)} items, no faults")
    for reason, number in workload.dropped.items():
        print(f"  dropped {number}: {reason}")
    for note in workload.notes:
        print(f"  {note}")
    return 0


def add(app: typer.Typer) -> None:
    """Register the group."""
    app.add_typer(workloads, name="workload")
