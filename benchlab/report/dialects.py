"""A run in several tools' words as text, CSV, Markdown and page: ours first, why they differ below each.

The one idea: numbers that share a name stand under one another, and each says in a line what it means. It must not
compute a number: it is given the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchlab.metrics.dialects import Figure, Speech, StageSpeeches
from benchlab.records.store import Run
from benchlab.report.figure import data_table
from benchlab.report.html import Child, Html, el, visible
from benchlab.report.page import document
from benchlab.report.sections import masthead
from benchlab.report.tables import csv_lines, escape_markdown
from benchlab.report.view import Summary
from benchlab.units import format_number

_BLOCKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("ttft", "Time to first token, ms", ("ttft",)),
    ("itl", "Inter-token latency, ms", ("itl", "icl")),
    ("tpot", "Time per output token, ms", ("tpot", "ntpot")),
    ("e2e", "End to end, ms", ("e2e",)),
    ("completed_rps", "Completed requests, 1/s", ("completed_rps",)),
    ("output_tps", "Output tokens, 1/s", ("output_tps",)),
    ("good_rps", "Goodput, 1/s", ("good_rps",)),
    ("attainment", "Share of good requests", ("attainment",)),
)
_MEANING = (
    "Times in ms. n: samples. x ours: the median (or the value) over ours. Token counts are this run's in every row,\n"
    "where aiperf and inference-perf would count with a tokenizer of their own."
)


def _columns(stages: Sequence[StageSpeeches]) -> list[str]:
    """The statistics of the latencies, as asked for: mean first."""
    for stage in stages:
        for speech in stage.speeches:
            for figure in speech.figures:
                if "value" not in figure.stats:
                    return list(figure.stats)
    return ["mean"]


def _blocks(stage: StageSpeeches) -> Iterator[tuple[str, str, list[tuple[Speech, Figure]]]]:
    """(key, title, rows) of each quantity that any tool was asked for, ours first."""
    for key, title, keys in _BLOCKS:
        rows = [(speech, figure) for speech in stage.speeches for figure in speech.figures if figure.key in keys]
        if rows:
            yield key, title, rows


def _middle(figure: Figure) -> float | None:
    """What the ratio to ours is of: the value, or the median."""
    return figure.stats.get("value", figure.stats.get("p50"))


def _ratio(figure: Figure, ours: Figure) -> str:
    a, b = _middle(figure), _middle(ours)
    if figure is ours or a is None or not b:
        return ""
    return f"{a / b:.2f}x" if a / b >= 0.1 or not a else f"{format_number(a / b, 2)}x"


def _cells(figure: Figure, ours: Figure, columns: Sequence[str]) -> list[str]:
    """n, the statistics (the value alone for a rate) and the ratio, as text; a dash where there is none."""
    if "value" in figure.stats:
        value = figure.stats["value"]
        return ["" if value is None else str(figure.n or ""), _show(value), _ratio(figure, ours)]
    return [str(figure.n), *(_show(figure.stats.get(name)) for name in columns), _ratio(figure, ours)]


def _show(value: float | None) -> str:
    return "—" if value is None else format_number(value, 4)


def _why(figure: Figure) -> str:
    """The line below a row: why there is no figure, else how it departs from ours."""
    return f"none: {figure.gap}" if figure.gap else figure.differs


def _head(rows: Sequence[tuple[Speech, Figure]], columns: Sequence[str]) -> list[str]:
    rate = "value" in rows[0][1].stats
    return ["tool", "its word", "n", *(["value"] if rate else columns), "x ours"]


def dialects_text(stages: Sequence[StageSpeeches], form: str) -> str:
    """`form`: table, md or csv."""
    if form == "csv":
        return _csv(stages)
    columns, lines = _columns(stages), []
    for stage in stages:
        lines.append(
            f"## {escape_markdown(stage.name)}" if form == "md" else f"stage {stage.stage}  {visible(stage.name)}"
        )
        for _, title, rows in _blocks(stage):
            ours = rows[0][1]
            table = [[speech.tool, figure.word, *_cells(figure, ours, columns)] for speech, figure in rows]
            notes = [_why(figure) for _, figure in rows]
            head = _head(rows, columns)
            lines += [
                "",
                *(_markdown(title, head, table, notes) if form == "md" else _plain(title, head, table, notes)),
            ]
        lines.append("")
    return "\n".join([*lines, _MEANING, ""])


def _plain(title: str, head: list[str], table: list[list[str]], notes: list[str]) -> list[str]:
    widths = [max(len(cells[k]) for cells in [head, *table]) for k in range(len(head))]
    widths[1] = min(widths[1], 24)
    rows = ["  ".join(_fit(c, w, k < 2) for k, (c, w) in enumerate(zip(head, widths, strict=True))).rstrip()]
    for cells, note in zip(table, notes, strict=True):
        rows.append("  ".join(_fit(c, w, k < 2) for k, (c, w) in enumerate(zip(cells, widths, strict=True))).rstrip())
        if note:
            rows.append(" " * (widths[0] + 2) + note)
    return [title, *rows]


def _fit(text: str, width: int, left: bool) -> str:
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return cut.ljust(width) if left else cut.rjust(width)


def _markdown(title: str, head: list[str], table: list[list[str]], notes: list[str]) -> list[str]:
    rows = [[*cells, note] for cells, note in zip(table, notes, strict=True)]
    body = ["| " + " | ".join(escape_markdown(cell) for cell in cells) + " |" for cells in [[*head, "why"], *rows]]
    return [f"**{escape_markdown(title)}**", "", body[0], "|" + " --- |" * (len(head) + 1), *body[1:]]


def _csv(stages: Sequence[StageSpeeches]) -> str:
    columns = _columns(stages)
    rows: list[list[object]] = [
        ["stage", "name", "quantity", "tool", "checked", "word", "unit", "n", "value", *columns, "gap", "differs"]
    ]
    for stage in stages:
        for speech in stage.speeches:
            for f in speech.figures:
                stats = [f.stats.get(name) for name in ("value", *columns)]
                start = [stage.stage, stage.name, f.key, speech.tool, speech.checked, f.word, f.unit, f.n]
                rows.append([*start, *stats, f.gap, f.differs])
    return csv_lines(rows)


# -- the page


def dialects_page(run: Run, summary: Summary, stages: Sequence[StageSpeeches]) -> Html:
    """One document: the verdict, a table a quantity and stage, and what each tool means."""
    columns, parts, sections = _columns(stages), [], []
    for stage in stages:
        key = f"stage-{stage.stage}"
        tables = [_table(title, rows, columns) for _, title, rows in _blocks(stage)]
        parts.append((key, stage.name))
        sections.append(el("section", el("h2", stage.name), tables, id=key))
    parts.append(("tools", "The tools"))
    sections.append(el("section", el("h2", "The tools"), _tools(stages), id="tools"))
    lead = (
        "One recorded run, and the table that each tool would have printed for it: the same events, each under its own "
        "definitions. Requests due in the measured window are meant."
    )
    main = el("main", masthead(summary, run.manifest), el("p", lead, class_="reading"), sections, _footer())
    return document(f"benchlab: {run.run_id} in several tools' words", parts, main)


def _footer() -> Html:
    return el("footer", el("p", _MEANING))


def _table(title: str, rows: Sequence[tuple[Speech, Figure]], columns: Sequence[str]) -> Html:
    ours = rows[0][1]
    head = [*_head(rows, columns), "why it differs"]
    body: list[list[Child]] = [
        [
            speech.tool,
            figure.word,
            *_cells(figure, ours, columns),
            _why(figure) or ("" if figure is ours else "the same"),
        ]
        for speech, figure in rows
    ]
    return data_table(head, body, title, text=(0, 1, len(head) - 1))


def _code(text: str) -> list[Child]:
    """Text whose `quoted` parts are set as code."""
    return [el("code", part) if k % 2 else part for k, part in enumerate(text.split("`"))]


def _tools(stages: Sequence[StageSpeeches]) -> Html:
    seen: Mapping[str, Speech] = {speech.tool: speech for stage in stages for speech in stage.speeches}
    body: list[list[Child]] = [[s.tool, s.checked, _code(s.sentence)] for s in seen.values()]
    return data_table(["tool", "checked against", "in a sentence"], body, "What each tool means", text=(0, 1, 2))


def as_json(stages: Sequence[StageSpeeches]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [stage.as_dict() for stage in stages]
