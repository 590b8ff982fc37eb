"""The result on the terminal: verdict first, then the stages, then what was selected and what to do next.

It fits 80 columns, puts units into headers, and never lets colour be the only carrier of a meaning. Open-loop and
closed-loop stages stand in tables of their own, so that nobody ranks one against the other. Console markup in names
and messages is never interpreted. It must not know HTML.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from benchlab.report.client import client_line
from benchlab.report.html import visible
from benchlab.report.objectives import Objective, main_stat, objectives_of, two_stats
from benchlab.report.sentences import capacity, headline, missed, selection_reason
from benchlab.report.support import claims_line, economics_lines, proof_lines
from benchlab.report.tables import csv, markdown, requests_csv
from benchlab.report.view import (
    Metric,
    Rule,
    Stage,
    Summary,
    interval,
    mapping,
    metric_names,
    metric_word,
    rule_word,
    rules_of,
    selected_of,
    selection_of,
    share,
    stages_of,
    stats_of,
    verdict_of,
    worst_of_each,
)
from benchlab.report.words import CONDITIONS, OUTCOMES, STATES
from benchlab.units import format_number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_STYLES = {"VALID": "bold green", "WARN": "bold yellow", "INVALID": "bold red", "fail": "red", "warn": "yellow"}
_CORE = ("ttft", "itl", "stall", "tpot", "e2e", "dispatch_lag")
_NOTE = "~ indicative (95 % interval not bounded) · — not known"


def _line(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(visible(text).replace("\n", " "), style=style, overflow="fold")


def _table(*columns: tuple[str, str]) -> Table:
    """A table without lines; each column is (header, 'left' or 'right')."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False, header_style="bold")
    for header, justify in columns:
        left = justify == "left"
        table.add_column(
            Text(header), justify="left" if left else "right", no_wrap=not left, overflow="fold" if left else "crop"
        )
    return table


def _figure(metric: Metric | None, stat: str) -> str:
    value = metric.value(stat) if metric else None
    mark = "~" if metric and value is not None and stat in metric.indicative else ""
    return mark + format_number(value)


def _metric_table(stage: Stage, stages: list[Stage], objectives: list[Objective], names: list[str]) -> Table:
    """Metrics of one stage; the interval is the one of the objective's percentile, named in the cell."""
    stats = stats_of(stages)
    columns = [("", "left"), ("unit", "left"), *((stat, "right") for stat in stats), ("max", "right"), ("n", "right")]
    table = _table(*columns, ("95 % interval", "right"))
    for name in names:
        metric = stage.metrics[name]
        stat = main_stat(stages, objectives, name)
        between = interval(metric, stat)
        cells = [_figure(metric, s) for s in stats] + [_figure(metric, "max"), f"{metric.n:,}"]
        table.add_row(_line(metric_word(name)), _line(metric.unit), *cells, f"{stat} {between}" if between else "—")
    return table


def _stage_table(group: list[Stage], stages: list[Stage], objectives: list[Objective], picked: Stage | None) -> Table:
    """One row a stage, all of one kind of loop."""
    kind = group[0].kind
    columns = [(name, stat) for name in ("ttft", "tpot") for stat in sorted(two_stats(stages, objectives, name))]
    load = [("offered\n/s", "right")] if kind == "open" else [("users\n", "right")]
    table = _table(
        *load,
        *[(f"{word}\n/s", "right") for word in (("sent", "done") if kind == "open" else ("done",))],
        ("ok /\nattempted", "right"),
        *((f"{'' if i % 2 else metric_word(name) + ' ms'}\n{stat}", "right") for i, (name, stat) in enumerate(columns)),
        ("\ncondition", "left"),
    )
    for stage in group:
        glyph, word, _ = CONDITIONS.get(stage.condition, ("?", stage.condition, ""))
        row = [format_number(stage.offered) if kind == "open" else str(stage.concurrency or "—")]
        row += [format_number(stage.achieved), format_number(stage.completed)][kind == "closed" :]
        row += [f"{stage.ok}/{stage.attempted}"]
        row += [_figure(stage.metrics.get(name), stat) for name, stat in columns]
        table.add_row(*row, _line(f"{glyph} {word}" + (" ◀" if stage is picked else "")))
    return table


def _outcomes_line(stage: Stage) -> str:
    parts = stage.parts()
    words = [f"{stage.attempted:,} attempted", f"{stage.ok:,} ok"]
    words += [f"{parts[name]:,} {word}" for name, word in OUTCOMES.items() if name in parts and name != "ok"]
    return "outcomes   " + " · ".join(words)


def _rates_line(stage: Stage) -> str:
    offered = "" if stage.kind == "closed" else f"{format_number(stage.offered)} offered · "
    good = "" if stage.good is None else f" · {format_number(stage.good)} good ({share(stage.attainment)} of attempted)"
    rates = f"{offered}{format_number(stage.achieved)} sent · {format_number(stage.completed)} completed{good}"
    return f"requests/s {rates}"


def _tokens_line(stage: Stage) -> str:
    parts = [("input", stage.input_tps), ("output", stage.output_tps), ("total", stage.total_tps)]
    return "tokens/s   " + " · ".join(f"{format_number(value)} {word}" for word, value in parts)


def _rule_line(rule: Rule, where: str = "", times: int = 1) -> Text:
    """One rule; `times` says in how many stages it is in this state, the worst of which is shown."""
    glyph, word = STATES[rule.state]
    hint = f"; {rule.hint}" if rule.hint else ""
    limit = f" (limit {rule.limit})" if rule.limit != "—" else ""
    stages = f" [{times} stages]" if times > 1 else ""
    text = f"  {glyph} {word:<4} {where}{rule_word(rule.name)}: {rule.value}{limit}{stages}{hint}"
    return _line(text, _STYLES.get(rule.state, ""))


def _verdict(summary: Summary) -> Text:
    state, glyph, word, sentence = verdict_of(summary)
    return _line(f"{glyph} {word}  {sentence}".rstrip(), _STYLES.get(state, ""))


def _one_stage(stage: Stage, stages: list[Stage], objectives: list[Objective], detail: bool) -> list[RenderableType]:
    names = [
        name for name in metric_names([stage]) if detail or name in _CORE or name in (o.metric for o in objectives)
    ]
    glyph, word, meaning = CONDITIONS.get(stage.condition, ("?", stage.condition, ""))
    loop = "open loop, offered" if stage.kind == "open" else "closed loop,"
    window = f", window {format_number(stage.window_s)} s" if stage.window_s is not None else ""
    out: list[RenderableType] = [_line(f"load       {loop} {stage.label}{window}")]
    out += [
        _line(f"condition  {glyph} {word}: {meaning}" if meaning else f"condition  {word}"),
        _line(_outcomes_line(stage)),
    ]
    out += [_line(""), _metric_table(stage, stages, objectives, names)]
    gaps = [f"{metric_word(name)}: {stage.metrics[name].gap}" for name in names if stage.metrics[name].gap]
    left = {name: stage.metrics[name].left_out for name in names if not stage.metrics[name].gap}
    gaps += [f"{metric_word(name)}: {many} requests left out" for name, many in left.items() if many]
    out += [_line(f"  {gap}", "dim") for gap in gaps]
    return [*out, _line(""), _line(_rates_line(stage)), _line(_tokens_line(stage))]


def result(
    summary: Summary, *, run_path: Path | None = None, report_path: Path | None = None, detail: bool = False
) -> RenderableType:
    """The whole result as one Rich renderable. `detail`: every stage in full, and rules that pass too."""
    from rich.console import Group

    stages, objectives = stages_of(summary), objectives_of(summary)
    picked = selected_of(summary, stages)
    out: list[RenderableType] = [_verdict(summary), _line(headline(summary))]
    client = client_line(summary)
    out += [_line(f"client: {client}", "dim")] if client else []
    supported = claims_line(summary)
    out += [_line(f"claims: {supported}", "dim"), _line("")] if supported else [_line("")]
    if len(stages) != 1:
        for kind in ("open", "closed"):
            group = [stage for stage in stages if stage.kind == kind]
            if group:
                title = "open loop" if kind == "open" else "closed loop: not comparable with open-loop rows"
                out += [_line(title, "bold"), _stage_table(group, stages, objectives, picked), _line("")]
    for stage in stages if detail or len(stages) == 1 else []:
        more = [
            *economics_lines(summary, stage.index),
            *(f"proof      {say}" for say in proof_lines(summary, stage.index)),
        ]
        out += [*_one_stage(stage, stages, objectives, detail), *map(_line, more), _line("")]
    mark = " · ◀ selected" if picked is not None and len(stages) > 1 else ""
    out += [_line(_NOTE + mark, "dim"), *_selection(summary, stages, objectives)]
    shown = list(STATES) if detail else ["fail", "warn"]
    judged = rules_of(summary.get("verdict"))
    rules = [
        _rule_line(rule, times=sum(r.state == rule.state for r in instances))
        for rule, instances in (((r, [r]) for r in judged) if detail else worst_of_each(judged))
        if rule.state in shown
    ]
    rules += [
        _rule_line(r, f"{s.label}: ") for s in stages for r in s.rules if r.state in shown and (detail or s.stable)
    ]
    out += [_line("validity", "bold"), *rules] if rules else []
    return Group(*out, *_paths(summary, run_path, report_path))


def _selection(summary: Summary, stages: list[Stage], objectives: list[Objective]) -> list[RenderableType]:
    if selection_of(summary) is None:
        return [_line(f"misses     {miss}") for stage in stages for miss in missed(objectives, stage)]
    out = [_line(f"capacity: {capacity(summary)}", "bold"), _line(f"  {selection_reason(summary)}")]
    return [*out, *(_line(f"  {s.label}: misses {m}") for s in stages if s.stable for m in missed(objectives, s))]


def _paths(summary: Summary, run_path: Path | None, report_path: Path | None) -> list[RenderableType]:
    run = str(run_path) if run_path is not None else str(summary.get("run_id", "RUN"))
    state = mapping(summary.get("verdict")).get("state")
    following = f"benchlab validate {run}" if state == "INVALID" else f"benchlab show {run}"
    why = "every rule with its value" if state == "INVALID" else "the requests behind a number"
    out: list[RenderableType] = [_line("")]
    out += [_line(f"run        {run_path}")] if run_path is not None else []
    out += [_line(f"report     {report_path}")] if report_path is not None else []
    return [*out, _line(f"next       {following}"), _line(f"           {why}", "dim")]


def print_result(
    console: Console,
    summary: Summary,
    *,
    run_path: Path | None = None,
    report_path: Path | None = None,
    detail: bool = False,
) -> None:
    """Print the result to a Rich console, in its width and with its colours."""
    console.print(result(summary, run_path=run_path, report_path=report_path, detail=detail), highlight=False)


def as_text(
    summary: Summary,
    *,
    width: int = 80,
    run_path: Path | None = None,
    report_path: Path | None = None,
    detail: bool = False,
) -> str:
    """The result as plain text at this width: what a file, a pipe or a golden test holds."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    print_result(console, summary, run_path=run_path, report_path=report_path, detail=detail)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


__all__ = ["as_text", "csv", "markdown", "print_result", "requests_csv", "result"]
