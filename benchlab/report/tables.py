"""The same columns for every machine and every document: CSV and Markdown of a Summary, CSV of the requests.

CSV is RFC 4180 with a dot for the decimal point whatever the locale says, no grouping, and the same columns when
nothing succeeded as when everything did. It must not know about terminals or pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from benchlab.metrics.table import METRICS
from benchlab.records.event import Outcome
from benchlab.report.html import visible
from benchlab.report.objectives import objectives_of, two_stats
from benchlab.report.support import stage_entry
from benchlab.report.view import (
    Stage,
    Summary,
    interval,
    mapping,
    metric_names,
    metric_word,
    number,
    rules_of,
    selected_of,
    selection_of,
    simulated_of,
    stages_of,
    stats_of,
    verdict_of,
)
from benchlab.units import format_number

_CORE_METRICS = ("ttft", "response_ttft", "itl", "stall", "tpot", "e2e", "response_e2e", "dispatch_lag")
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#|!~])")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        found = number(value)
        return "" if found is None else repr(value)
    text = str(value).encode("utf-8", "replace").decode()
    if text.startswith(_FORMULA):
        text = "'" + text  # a spreadsheet would run it as a formula
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Rows as RFC 4180 lines."""
    return "".join(",".join(map(_cell, row)) + "\r\n" for row in rows)


def _columns(stages: list[Stage], summary: Summary) -> list[tuple[str, str, str]]:
    """(header, metric, statistic) of each latency column: the core metrics always, others where they were found."""
    names = list(_CORE_METRICS) + [name for name in metric_names(stages) if name not in _CORE_METRICS]
    stats = ["n", "left_out", "mean", "min", *stats_of(stages), "max"]
    units = {name: metric.unit for stage in stages for name, metric in stage.metrics.items()}
    counted = ("n", "left_out")
    return [
        (f"{name}_{stat}" if stat in counted else f"{name}_{stat}_{units.get(name, 'ms')}", name, stat)
        for name in names
        for stat in stats
    ]


def csv(summary: Summary, manifest: Mapping[str, Any] | None = None) -> str:
    """One row a stage, every figure in full precision, units in the header."""
    stages = stages_of(summary)
    latencies = _columns(stages, summary)
    endpoint = mapping((manifest or {}).get("endpoint"))
    verdict = mapping(summary.get("verdict"))
    outcomes = [outcome.value for outcome in Outcome]
    header = [
        "run_id",
        "model",
        "verdict",
        "stage",
        "name",
        "condition",
        "kind",
        "offered_rps",
        "concurrency",
        "selected",
    ]
    header += ["window_s", "achieved_rps", "completed_rps", "good_rps", "attainment", "attempted", *outcomes]
    header += ["limited", "shed", "in_flight_mean", "input_tps", "output_tps", "total_tps"]
    others = [metric.name for metric in METRICS if metric.scope == "run" and metric.name not in header]
    header += others
    header += [name for name, _, _ in latencies]
    picked = selected_of(summary, stages)
    rows: list[list[object]] = [list(header)]
    for stage in stages:
        row: list[object] = [summary.get("run_id"), summary.get("model") or endpoint.get("model"), verdict.get("state")]
        row += [stage.index, stage.name, stage.condition, stage.kind, stage.offered, stage.concurrency, stage is picked]
        row += [stage.window_s, stage.achieved, stage.completed, stage.good, stage.attainment, stage.attempted]
        row += [stage.outcomes.get(outcome, 0) for outcome in outcomes]
        row += [stage.limited, stage.shed, stage.in_flight, stage.input_tps, stage.output_tps, stage.total_tps]
        row += [number(stage_entry(summary, stage.index).get(name)) for name in others]
        for _, name, stat in latencies:
            metric = stage.metrics.get(name)
            counts = {"n": metric.n if metric else 0, "left_out": metric.left_out if metric else 0}
            row.append(counts[stat] if stat in counts else stage.value(name, stat))
        rows.append(row)
    return csv_lines(rows)


def requests_csv(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> str:
    """One row a request, in their order; lists are left to Parquet."""
    return csv_lines([columns, *([row.get(column) for column in columns] for row in rows)])


def escape_markdown(text: object) -> str:
    """Text that Markdown shows as it is: no markup, no line break, no table cell of its own."""
    return (
        _MARKDOWN.sub(r"\\\1", " ".join(visible(text, 300).split())).replace("&", "&amp;").replace("://", ":\u200b//")
    )


_md = escape_markdown


def _md_row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |\n"


def markdown(summary: Summary) -> str:
    """A short result for a pull request or a job summary: verdict, one row a stage, selection, rules not passed."""
    stages, objectives = stages_of(summary), objectives_of(summary)
    verdict = mapping(summary.get("verdict"))
    _, glyph, word, _ = verdict_of(summary)
    profile = simulated_of(summary)
    mark = "" if profile is None else f" ({_md(profile)}), nothing was measured"
    out = [
        f"### benchlab: {glyph} {_md(word)}{mark}\n\n",
        f"Run {_md(summary.get('run_id', '—'))}\n\n",
    ]
    columns = [(name, stat) for name in ("ttft", "tpot", "e2e") for stat in sorted(two_stats(stages, objectives, name))]
    for kind, title in (("open", "Open loop"), ("closed", "Closed loop")):
        group = [stage for stage in stages if stage.kind == kind]
        if not group:
            continue
        load = "Offered /s" if kind == "open" else "Users"
        head = ["Stage", load, "Sent /s", "Completed /s", "ok / attempted", "Output tok/s"]
        head += [f"{metric_word(name)} {stat} ms" for name, stat in columns] + ["Condition"]
        out += [f"**{title}**\n\n", _md_row(head), _md_row(["---"] + ["---:"] * (len(head) - 2) + ["---"])]
        for stage in group:
            mark = " **selected**" if stage is selected_of(summary, stages) else ""
            row = [
                _md(stage.name or stage.index),
                format_number(stage.position),
                format_number(stage.achieved),
            ]
            row += [format_number(stage.completed), f"{stage.ok} / {stage.attempted}", format_number(stage.output_tps)]
            row += [_md_figure(stage, name, stat) for name, stat in columns] + [_md(stage.condition) + mark]
            out.append(_md_row(row))
        out.append("\n")
    selection = selection_of(summary)
    if selection is not None:
        mode, reason = (escape_markdown(selection.get(key) or "none") for key in ("mode", "reason"))
        out.append(f"**Selection** ({mode}): {reason}\n\n")
    for rule in rules_of(verdict):
        if rule.state in ("fail", "warn"):
            name, value, limit, hint = map(escape_markdown, (rule.name, rule.value, rule.limit, rule.hint))
            out.append(f"- **{rule.state}** {name}: {value} (limit {limit}) {hint}\n")
    return "".join(out) + "\n~ indicative: the sample is too small to bound this figure's 95 % interval.\n"


def _md_figure(stage: Stage, name: str, stat: str) -> str:
    metric = stage.metrics.get(name)
    value = stage.value(name, stat)
    mark = "\\~" if value is not None and metric is not None and stat in metric.indicative else ""
    between = interval(metric, stat)
    return f"{mark}{format_number(value)}" + (f" ({between})" if between and stat != "p50" else "")


__all__ = ["csv", "markdown", "requests_csv"]
