"""The requests behind a number, as rows: what `benchlab show` prints. Times in ms; a dash for what did not happen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchlab.errors import UsageError
from benchlab.records.event import Outcome
from benchlab.records.record import Record
from benchlab.report.html import visible
from benchlab.report.tables import csv_lines
from benchlab.units import NS_PER_MS, format_number

_TIMES = ("ttft", "stall", "e2e", "dispatch_lag", "held", "connect")


def request_rows(records: Sequence[Record], *, metric: str, outcome: str | None) -> list[dict[str, Any]]:
    """One row a request, the largest `metric` first, those without one last. Raises UsageError for unknown names."""
    if metric not in _TIMES:
        raise UsageError(f"'{metric}' is no time of a request", where="--metric", hint=f"one of {', '.join(_TIMES)}")
    if outcome is not None and outcome not in set(Outcome):
        raise UsageError(f"'{outcome}' is no outcome", where="--outcome", hint=f"one of {', '.join(Outcome)}")
    rows = [_row(record) for record in records if outcome in (None, record.outcome)]
    return sorted(rows, key=lambda row: (row[metric] is None, -(row[metric] or 0.0), row["request_id"]))


def _ms(later: int | None, earlier: int | None) -> float | None:
    return None if later is None or earlier is None else (later - earlier) / NS_PER_MS


def _row(record: Record) -> dict[str, Any]:
    seen = record.visible_ns()
    gaps = [b - a for a, b in pairwise(seen)]
    return {
        "request_id": record.request_id,
        "stage": record.stage,
        "item_id": record.item_id,
        "outcome": str(record.outcome),
        "intended_s": record.intended_ns / 1e9,
        "ttft": _ms(seen[0] if seen else None, record.sent_ns),
        "stall": max(gaps) / NS_PER_MS if gaps else None,
        "e2e": _ms(seen[-1] if seen else None, record.sent_ns),
        "dispatch_lag": _ms(record.dispatched_ns, record.intended_ns),
        "held": record.held_ns / NS_PER_MS,
        "connect": _ms(record.connect_end_ns, record.connect_start_ns),
        "prompt_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "error": record.error,
    }


_COLUMNS = (
    ("request", "request_id", 12),
    ("item", "item_id", 12),
    ("outcome", "outcome", 13),
    ("sent s", "intended_s", 8),
    ("ttft ms", "ttft", 9),
    ("stall ms", "stall", 9),
    ("e2e ms", "e2e", 9),
    ("out", "output_tokens", 5),
)


def rows_text(rows: Sequence[dict[str, Any]], *, csv: bool) -> str:
    """The rows as a table of 85 columns with the error on a line of its own, or as CSV with every field."""
    if csv:
        names = list(_row(Record("", 0, "", Outcome.NOT_SENT, 0)))
        return csv_lines([names, *([row[name] for name in names] for row in rows)])
    lines = ["  ".join(title.ljust(w) if w > 9 else title.rjust(w) for title, _, w in _COLUMNS)]
    for row in rows:
        cells = []
        for _, name, wide in _COLUMNS:
            value = row[name]
            if isinstance(value, str):
                cells.append(visible(value)[:wide].ljust(wide))
            else:
                cells.append((str(value) if isinstance(value, int) else format_number(value)).rjust(wide))
        lines.append("  ".join(cells).rstrip())
        if row["error"]:
            lines.append(f"    {visible(row['error'])[:200]}")
    return "\n".join(lines if rows else [*lines, "no such request"]) + "\n"
