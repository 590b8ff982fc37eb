"""`benchlab metrics`: what every number means, from the table that computes it (`benchlab --help metrics`, too)."""

from __future__ import annotations

import difflib
import json
from typing import Annotated

import typer

from benchlab.cli import output
from benchlab.errors import UsageError


def metrics(
    name: Annotated[str | None, typer.Argument(help="One metric (default: all).")] = None,
    form: Annotated[str, typer.Option("--format", help="table | json | md | csv")] = "table",
) -> int:
    """What each metric means: unit, which way is better, what it needs."""
    from benchlab.metrics import describe
    from benchlab.metrics.table import BY_NAME
    from benchlab.report.tables import csv_lines

    output.check_format(form)
    if name is not None and name not in BY_NAME:
        near = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.4)
        did = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"'{name}' is no metric", where="benchlab metrics", hint=f"{did}without a name all are shown")
    rows = [row for row in describe.rows() if name in (None, row["name"])]
    with output.reader_may_leave():
        if form == "json":
            print(json.dumps(rows, indent=1, ensure_ascii=False))
        elif form == "csv":
            lines = [list(describe.COLUMNS), *([row[column] for column in describe.COLUMNS] for row in rows)]
            print(csv_lines(lines), end="")
        else:
            print(describe.markdown() if form == "md" else describe.text(name), end="")
    return 0


def add(app: typer.Typer) -> None:
    """Register `metrics`."""
    app.command("metrics")(metrics)
