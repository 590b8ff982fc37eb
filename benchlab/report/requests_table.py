"""The requests table: which requests travel inside the page, as a JSON block and as a few static rows.

At most a set number are embedded: every failure that fits, the slowest, and an even sample of the rest; the page says
so. Numbers never come from this sample. It must not know how the table is sorted or filtered; the script does that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchlab.metrics.columns import Floats
from benchlab.report.figure import data_table
from benchlab.report.html import Child, Html, el, json_block, visible
from benchlab.report.points import Points
from benchlab.report.view import Stage
from benchlab.report.words import OUTCOMES

CAP = 2000
_STATIC_ROWS = 8
_COLUMNS = (
    ("request", None),
    ("load", None),
    ("outcome", None),
    ("intended s", 2),
    ("TTFT ms", 1),
    ("TPOT ms", 2),
    ("end to end ms", 1),
    ("lag ms", 3),
    ("tokens", 0),
    ("measured", None),
    ("error", None),
)
"""Header, and decimals for a column of numbers."""


def chosen(points: Points, cap: int = CAP) -> list[int]:
    """Rows to embed, in order: failures first in line for a place, then the slowest, then an even sample."""
    count = len(points.outcome)
    if count <= cap:
        return list(range(count))
    failures = np.flatnonzero(~points.ok)[: cap // 2]
    slow = np.argsort(-np.nan_to_num(points.values["e2e"], nan=-1.0), kind="stable")[: cap // 4]
    taken = np.union1d(failures, slow)
    rest = np.setdiff1d(np.arange(count), taken)
    even = rest[np.linspace(0, len(rest) - 1, min(len(rest), cap - len(taken))).astype(np.int64)]
    return [int(i) for i in np.sort(np.concatenate([taken, even]))]


def _number(values: Floats, place: int, digits: int = 3) -> float | None:
    value = float(values[place])
    return round(value, digits) if np.isfinite(value) else None


def _rows(table: pa.Table, points: Points, stages: list[Stage], picked: list[int]) -> list[list[Any]]:
    labels = {stage.index: stage.label for stage in stages}
    few = table.select(["request_id", "http_status", "error", "output_tokens"]).take(pa.array(picked, pa.int64()))
    rows: list[list[Any]] = []
    for place, row in zip(picked, few.to_pylist(), strict=True):
        stage = int(points.stage[place])
        status = f"HTTP {row['http_status']}: " if row["error"] and row["http_status"] not in (None, 200) else ""
        values = [_number(points.values[name], place) for name in ("ttft", "tpot", "e2e", "dispatch_lag")]
        rows.append(
            [
                visible(row["request_id"], 120),
                visible(labels.get(stage, f"stage {stage}"), 40),
                OUTCOMES.get(points.outcome[place], points.outcome[place]),
                _number(points.intended, place),
                *values,
                row["output_tokens"],
                "yes" if points.measured[place] else "no",
                visible(status + (row["error"] or ""), 300),
            ]
        )
    return rows


def _cell(value: Any, decimals: int | None) -> Child:
    if value is None:
        return "—"
    return f"{value:,.{decimals}f}" if decimals is not None and not isinstance(value, str) else str(value)


def requests_section(table: pa.Table, points: Points, stages: list[Stage]) -> Html:
    """Controls, a first few rows for readers without a script, and the data for those with one."""
    picked = chosen(points)
    rows = _rows(table, points, stages, picked)
    total, failed = table.num_rows, int((~points.ok).sum())
    note = (
        f"All {total:,} requests of the run, warm-up included."
        if len(picked) == total
        else (
            f"{len(picked):,} of {total:,} requests: of {failed:,} that failed up to {CAP // 2:,}, the {CAP // 4:,} "
            "slowest, and an even sample of the rest. Figures elsewhere on this page come from all of them."
        )
    )
    order = sorted(range(len(rows)), key=lambda i: (rows[i][2] == OUTCOMES["ok"], -(rows[i][6] or 0.0)))[:_STATIC_ROWS]
    static = data_table(
        [name for name, _ in _COLUMNS],
        [[_cell(cell, decimals) for cell, (_, decimals) in zip(rows[i], _COLUMNS, strict=True)] for i in order],
        "Requests, failures first, then the slowest",
        text=[i for i, (_, decimals) in enumerate(_COLUMNS) if decimals is None],
    )
    block = {"columns": _COLUMNS, "rows": rows}
    controls = el(
        "div",
        el(
            "label",
            "Find ",
            el("input", type="search", id="rq-find", placeholder="id, error, load", autocomplete="off"),
        ),
        el("label", "Outcome ", el("select", el("option", "all", value=""), id="rq-outcome")),
        el("label", "Load ", el("select", el("option", "all", value=""), id="rq-load")),
        el("output", f"{len(order)} of {len(rows):,} rows", id="rq-count", for_="rq-find rq-outcome rq-load"),
        class_="controls needs-script",
    )
    more = el("button", "Show more", type="button", id="rq-more", class_="needs-script")
    data = el("script", json_block(block), type="application/json", id="requests-data")
    return el("div", el("p", note, class_="reading"), controls, el("div", static, id="requests-table"), more, data)
