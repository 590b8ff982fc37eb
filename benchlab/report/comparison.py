"""Stored runs side by side as text or Markdown: what differs first, then figures, a word only where it is known."""

from __future__ import annotations

import json

from benchlab.report.html import visible
from benchlab.report.tables import csv_lines, escape_markdown
from benchlab.selection.compare import Comparison
from benchlab.selection.figure import Figure
from benchlab.units import format_number


def comparison_text(result: Comparison, form: str) -> str:
    """`form`: table, md or csv."""
    names = [chr(ord("A") + k) if k < 26 else str(k) for k in range(len(result.runs))]
    head = ["load", "figure", names[0]]
    for name in names[1:]:
        head += [name, "change", "verdict"]
    body: list[list[str]] = []
    for row in result.rows:
        if all(figure.value is None for figure in row.values):
            continue
        title = row.metric + (f".{row.statistic}" if row.statistic else "") + (f" {row.unit}" if row.unit else "")
        cells = [row.load, title, _figure(row.values[0])]
        for k, figure in enumerate(row.values[1:]):
            change = row.change[k] if k < len(row.change) else None
            cells += [_figure(figure), "—" if change is None else f"{change:+.1%}", row.words[k]]
        body.append(cells)
    if form == "csv":
        return csv_lines([head, *body])
    legend = [f"{name} = {visible(run)}" for name, run in zip(names, result.runs, strict=True)]
    differences = [
        f"{key}: " + "  |  ".join(visible(_short(value)) for value in values)
        for key, values in result.differences.items()
    ] or ["nothing: the same workload, load and settings"]
    closing = "A verdict only where 95% intervals do not overlap; one run of each says nothing of drift between them."
    if form == "md":
        legend, differences = [escape_markdown(t) for t in legend], [escape_markdown(t) for t in differences]
        table = ["| " + " | ".join(escape_markdown(c) for c in cells) + " |" for cells in [head, *body]]
        table.insert(1, "|" + " --- |" * len(head))
        return "\n".join([*legend, "", "What differs:", *(f"- {d}" for d in differences), "", *table, "", closing, ""])
    widths = [max(len(cells[k]) for cells in [head, *body]) for k in range(len(head))]
    lines = [
        "  ".join(c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths, strict=True)))
        for cells in [head, *body]
    ]
    return "\n".join([*legend, "differs  " + "\n         ".join(differences), "", *lines, "", closing, ""])


def _figure(figure: Figure) -> str:
    if figure.value is None:
        return "—"
    low, high = figure.low, figure.high
    if low is None and high is None:
        return format_number(figure.value)
    return f"{format_number(figure.value)} [{format_number(low)}, {format_number(high)}]"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
