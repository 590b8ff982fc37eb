"""The parts of the page that say things in words and tables: masthead, tiles, stages, validity, selection, glossary.

Every number is the summary's own. It must not know the records or how figures are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchlab.report.client import client_line
from benchlab.report.figure import data_table, unbroken
from benchlab.report.html import Child, Html, el
from benchlab.report.objectives import Objective, main_stat, two_stats
from benchlab.report.sentences import bracket, capacity, headline, missed, picked_line, selection_reason
from benchlab.report.view import (
    Metric,
    Rule,
    Stage,
    Summary,
    interval,
    latency,
    mapping,
    metric_names,
    metric_word,
    reference_of,
    rule_word,
    rules_of,
    selected_of,
    selection_of,
    share,
    simulated_of,
    stats_of,
    tidy,
    verdict_of,
    worst_of_each,
)
from benchlab.report.words import CONDITIONS, GLOSSARY, STATES, VERDICTS
from benchlab.units import format_number


def verdict_badge(summary: Summary) -> Html:
    """Glyph and word of the verdict, with its meaning."""
    state, glyph, word, sentence = verdict_of(summary)
    badge = el(
        "span",
        el("span", glyph, aria_hidden="true"),
        " ",
        word,
        class_=f"badge v-{state.lower()}" if state in VERDICTS else "badge",
    )
    return el("p", badge, " ", el("span", sentence, class_="verdict-words"), class_="verdict")


def masthead(summary: Summary, manifest: Mapping[str, Any]) -> Html:
    """Verdict first, then the result in a sentence."""
    endpoint = mapping(manifest.get("endpoint"))
    what = str(endpoint.get("model") or "unnamed model")
    origin = " · ".join(
        str(part)
        for part in (
            summary.get("run_id"),
            manifest.get("created"),
            endpoint.get("api"),
            mapping(manifest.get("engine")).get("name"),
        )
        if part
    )
    caveats = [
        el("li", el("strong", STATES[rule.state][0], " ", rule.state), f" {rule_word(rule.name)}: {_seen(rule)}")
        for rule, _ in worst_of_each(rules_of(summary.get("verdict")))
        if rule.state in ("fail", "warn")
    ]
    shown: list[Child] = [*caveats[:3]]
    if len(caveats) > 3:
        shown.append(el("li", el("a", f"and {len(caveats) - 3} more under Validity", href="#validity")))
    return el(
        "header",
        el(
            "p", "benchlab report" if simulated_of(summary) is None else "benchlab report · SIMULATED", class_="eyebrow"
        ),
        el("h1", what),
        el("p", origin, class_="origin"),
        verdict_badge(summary),
        el("p", unbroken(headline(summary)), class_="headline"),
        el("ul", shown, class_="caveats") if shown else None,
        id="summary",
    )


def _seen(rule: Rule) -> str:
    limit = "" if rule.limit == "—" else f" (limit {rule.limit})"
    return f"{rule.value}{limit}" + (f"; {rule.hint}" if rule.hint else "")


def _tile(label: str, value: str, unit: str, lines: list[str]) -> Html:
    value_line = el("p", value, el("span", f" {unit}", class_="unit") if unit else None, class_="value")
    return el(
        "div", el("h3", label), value_line, [el("p", line, class_="sub") for line in lines if line], class_="tile"
    )


def _latency_tile(stage: Stage, stages: list[Stage], objectives: list[Objective], name: str) -> Html:
    stat = main_stat(stages, objectives, name)
    metric = stage.metrics.get(name)
    value, _, unit = latency(metric.value(stat) if metric else None).partition(" ")
    between = interval(metric, stat)
    lines = [f"{between} {metric.unit} (95 %)" if metric and between else "no interval"]
    lines.append(
        f"n {metric.n:,}" + (" · ~ indicative" if stat in metric.indicative else "") if metric else "not measured"
    )
    if metric and stat in metric.effective_n:
        lines.append(f"alike neighbours: worth {metric.effective_n[stat]:.0f} independent")
    lines += [f"objective {o.short}" for o in objectives if o.metric == name and o.stat == stat]
    return _tile(f"{metric_word(name)} {stat}", value, unit, lines)


def tiles(summary: Summary, stages: list[Stage], objectives: list[Objective]) -> Html | None:
    """The headline figures, each with its interval or bracket and its n."""
    stage = reference_of(summary, stages)
    if stage is None:
        return None
    shown = []
    selection = selection_of(summary)
    if selection is not None:
        held, failed = bracket(summary)
        lines = [
            f"fails at {tidy(failed)} /s" if failed is not None else "upper end not found",
            f"mode {selection.get('mode', 'point')}",
        ]
        shown.append(
            _tile("Capacity held", "none" if held is None else tidy(held), "" if held is None else "requests/s", lines)
        )
    shown += [_latency_tile(stage, stages, objectives, name) for name in ("ttft", "tpot")]
    window = f"over {format_number(stage.window_s)} s" if stage.window_s is not None else ""
    shown.append(
        _tile(
            "Output",
            format_number(stage.output_tps),
            "tokens/s",
            [f"{format_number(stage.completed)} answers/s", window],
        )
    )
    if stage.attainment is not None:
        lines = [f"{format_number(stage.good)} good requests/s", f"n {stage.attempted:,} attempted"]
        shown.append(_tile("Attainment", share(stage.attainment).split(" ", maxsplit=1)[0], "%", lines))
    missing = share(stage.failed / stage.attempted) + " of attempted" if stage.attempted else "nothing attempted"
    shown.append(_tile("Did not succeed", f"{stage.failed:,}", f"of {stage.attempted:,}", [missing]))
    why = (
        "selected"
        if stage is selected_of(summary, stages)
        else CONDITIONS.get(stage.condition, ("", stage.condition))[1]
    )
    return el(
        "section",
        el("p", f"At {stage.label} ({why}):", class_="at"),
        el("div", shown, class_="tiles"),
        aria_label="Headline figures",
    )


def _condition(stage: Stage) -> Html:
    glyph, word, meaning = CONDITIONS.get(stage.condition, ("?", stage.condition, ""))
    return el(
        "span",
        el("span", glyph, aria_hidden="true"),
        " ",
        word,
        title=meaning or None,
        class_=f"c-{word}" if meaning else None,
    )


def _figure(metric: Metric | None, stat: str) -> str:
    value = metric.value(stat) if metric else None
    return ("~" if metric and value is not None and stat in metric.indicative else "") + format_number(value)


def stage_tables(summary: Summary, stages: list[Stage], objectives: list[Objective]) -> Html:
    """One row a stage, open and closed loops apart; then every metric of every stage."""
    picked, parts = selected_of(summary, stages), []
    columns = [(name, stat) for name in ("ttft", "tpot", "e2e") for stat in sorted(two_stats(stages, objectives, name))]
    for kind, title in (
        ("open", "Open-loop stages"),
        ("closed", "Closed-loop stages (not comparable with open-loop ones)"),
    ):
        group = [stage for stage in stages if stage.kind == kind]
        if not group:
            continue
        head = [
            "offered /s" if kind == "open" else "users",
            "condition",
            "sent /s",
            "completed /s",
            "ok / attempted",
            "output tok/s",
        ]
        head += [f"{metric_word(name)} {stat} ms" for name, stat in columns]
        rows: list[list[Child]] = []
        for stage in group:
            mark = el("strong", " ◀ selected") if stage is picked else None
            row: list[Child] = [tidy(stage.position), [_condition(stage), mark], format_number(stage.achieved)]
            row += [
                format_number(stage.completed),
                f"{stage.ok:,} / {stage.attempted:,}",
                format_number(stage.output_tps),
            ]
            rows.append([*row, *(_figure(stage.metrics.get(name), stat) for name, stat in columns)])
        parts.append(data_table(head, rows, title, text=(0, 1)))
    note = el("p", "~ indicative: the sample is too small to bound the 95 % interval. — not known.", class_="note")
    return el("div", parts, note, [_stage_detail(stage, stages, objectives) for stage in stages])


def _stage_detail(stage: Stage, stages: list[Stage], objectives: list[Objective]) -> Html:
    stats = stats_of(stages)
    rows: list[list[Child]] = []
    for name in metric_names([stage]):
        metric = stage.metrics[name]
        stat = main_stat(stages, objectives, name)
        between = interval(metric, stat)
        row: list[Child] = [
            metric_word(name),
            metric.unit,
            *(_figure(metric, s) for s in stats),
            _figure(metric, "max"),
            _figure(metric, "mean"),
        ]
        row += [
            f"{metric.n:,}",
            f"{stat} {between}" if between else "—",
            f"{metric.left_out:,}" if metric.left_out else "0",
            metric.gap or "",
        ]
        rows.append(row)
    head = ["metric", "unit", *stats, "max", "mean", "n", "95 % interval", "left out", "why none"]
    title = " · ".join(part for part in (stage.label, stage.name, stage.condition) if part)
    rules = rule_table(stage.rules, f"Rules of this stage's condition, {stage.label}") if stage.rules else None
    missed_here = [el("p", f"Misses {text}.", class_="note") for text in missed(objectives, stage)]
    notes = [el("p", note, class_="note") for note in stage.notes]
    into, out, total = (format_number(tps) for tps in (stage.input_tps, stage.output_tps, stage.total_tps))
    rates = f"tokens/s: {into} in, {out} out, {total} total"
    level = f"; in flight {format_number(stage.in_flight)} on average" if stage.in_flight is not None else ""
    body = [
        data_table(head, rows, f"Metrics at {stage.label}", text=(0, 1, len(head) - 1)),
        el("p", rates + level + ".", class_="note"),
    ]
    return el("details", el("summary", title), body, missed_here, notes, rules)


def _state(state: str) -> Html:
    return el("span", STATES[state][0], " ", state, class_=f"s-{state.split(maxsplit=1)[0]}")


def rule_table(rules: list[Rule], caption: str, labels: Mapping[int, str] | None = None) -> Html:
    """Rules with state by glyph and word; `labels` adds the column that says in which stage."""
    rows: list[list[Child]] = [[_state(r.state), rule_word(r.name), r.value, r.limit, r.hint or "—"] for r in rules]
    head = ["state", "rule", "value", "limit", "what to do"]
    if labels is not None:
        head.insert(2, "where")
        for row, rule in zip(rows, rules, strict=True):
            row.insert(2, "whole run" if rule.stage is None else labels.get(rule.stage, f"stage {rule.stage}"))
    return data_table(head, rows, caption, text=(0, 1, len(head) - 1) if labels is None else (0, 1, 2, len(head) - 1))


def _where(worst: Rule, instances: list[Rule], labels: Mapping[int, str]) -> str:
    """'4 /s, 6 /s' or 'all 5 stages': where the rule is in its worst state."""
    places = [r.stage for r in instances if r.state == worst.state and r.stage is not None]
    if not places:
        return "whole run"
    if len(places) == len(labels):
        return f"all {len(places)} stages" if len(places) > 1 else labels.get(places[0], "the stage")
    return ", ".join(labels.get(place, f"stage {place}") for place in sorted(places))


def validity_section(summary: Summary, stages: list[Stage]) -> Html:
    """Whether the numbers can be believed, rule by rule: each rule at its worst, then every instance."""
    rules, labels = rules_of(summary.get("verdict")), {stage.index: stage.label for stage in stages}
    if not rules:
        return el("p", "No rule was checked, so nothing supports a claim from this run.", class_="reading")
    each = worst_of_each(rules)
    counts = ", ".join(f"{n} {state}" for state in STATES if (n := sum(rule.state == state for rule, _ in each)))
    rows: list[list[Child]] = [
        [
            _state(rule.state),
            rule_word(rule.name),
            _where(rule, instances, labels),
            rule.value,
            rule.limit,
            rule.hint or "—",
        ]
        for rule, instances in each
    ]
    head = ["state", "rule", "where", "value", "limit", "what to do"]
    table = data_table(head, rows, "Validity rules, each at its worst", text=(0, 1, 2, 5))
    every = el("details", el("summary", f"All {len(rules)} checks"), rule_table(rules, "Every check", labels))
    verdict = el("p", f"{verdict_of(summary)[2]}. {len(each)} rules: {counts}.", class_="reading")
    client = client_line(summary)
    told = el("p", f"The load generator, at its worst: {client}.", class_="reading") if client else None
    return el("div", verdict, told, table, every if len(rules) > len(each) else None)


def selection_section(summary: Summary, stages: list[Stage], objectives: list[Objective]) -> Html | None:
    """What was selected, the bracket and the reason, and why each other stage was not."""
    if selection_of(summary) is None:
        return None
    wanted = ", ".join(o.pretty for o in objectives) or "none"
    rows: list[list[Child]] = []
    for stage in stages:
        why = "selected" if stage is selected_of(summary, stages) else ""
        why = why or (
            f"kept out: {stage.condition}"
            if not stage.stable
            else "; ".join(f"misses {m}" for m in missed(objectives, stage)) or "meets every objective at a lower rate"
        )
        rows.append([stage.label, _condition(stage), why, format_number(stage.completed)])
    return el(
        "div",
        el("p", f"Capacity: {capacity(summary)}. Selected: {picked_line(summary)}.", class_="reading"),
        el("p", f"Objectives: {wanted}; {selection_reason(summary)}."),
        data_table(
            ["load", "condition", "decision", "completed /s"], rows, "Why each stage was taken or left", text=(0, 1, 2)
        ),
    )


def glossary_section() -> Html:
    """What the words mean here, and how other tools use them."""
    items = [
        [el("dt", term), el("dd", el("p", ours), el("p", el("em", "Elsewhere: "), theirs))]
        for term, ours, theirs in GLOSSARY
    ]
    return el("dl", items)
