"""`benchlab report --dialects`: a stored run in other tools' words, on stdout and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchlab.cli import output

if TYPE_CHECKING:
    from benchlab.metrics.goodput import SloClause
    from benchlab.records.store import Run


def report_dialects(run: Run, summary: Mapping[str, Any], slo: list[SloClause], form: str, html: Path | None) -> int:
    """Print the tables and write the page; the exit code is the run's, as of any report."""
    from benchlab.errors import UsageError
    from benchlab.metrics.dialects import in_dialects
    from benchlab.report.dialects import as_json, dialects_page, dialects_text
    from benchlab.report.export import write_page
    from benchlab.selection.slo import percentiles_with

    asked = [float(p) for p in run.manifest.get("percentiles") or (50, 90, 95, 99)]
    stages = in_dialects(run.manifest, run.requests(), slo=slo, percentiles=percentiles_with(asked, []))
    if not stages:
        raise UsageError("no stage has a measured window", where=str(run.path), hint="`benchlab report` says why")
    page = html or run.path / "dialects.html"
    write_page(dialects_page(run, dict(summary), stages), page)
    with output.reader_may_leave():
        if form == "json":
            print(json.dumps(as_json(stages), indent=1, ensure_ascii=False, allow_nan=False))
        else:
            print(dialects_text(stages, form), end="")
            if form == "table":
                print(f"page  {page}")
    return output.finish(summary)
