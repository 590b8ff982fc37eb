"""Figures that a Summary alone can fill: latency against load, outcomes, attainment. Every value is the summary's own.

Points are measurements and lines are guides; a stage that does not count is drawn hollow and crossed and stays out of
the line; the objective and the pick are labelled where they stand. It must not know the records.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchlab.report.figure import MARGIN_LEFT, MARGIN_TOP, Figure, key_item
from benchlab.report.html import Html, el
from benchlab.report.sentences import latency_reading, outcomes_reading
from benchlab.report.svg import (
    Panel,
    Scale,
    Ticks,
    drawing,
    linear_domain,
    log_domain,
    log_ticks,
    milliseconds,
    nice_ticks,
    px,
    spread,
)
from benchlab.report.view import (
    Objective,
    Stage,
    interval,
    latency,
    main_stat,
    metric_word,
    share,
    tidy,
)
from benchlab.report.words import CONDITIONS, OUTCOMES
from benchlab.units import format_number

_LOWER, _HIGHER = "↓ lower is better", "↑ higher is better"
_PANELS = (("ttft", "blue"), ("tpot", "vermillion"), ("e2e", "green"))


def _load_scale(stages: Sequence[Stage], start: float, stop: float) -> tuple[Scale, Ticks]:
    """The load axis: ticks are the loads that were measured; logarithmic when they span more than thirtyfold."""
    places = sorted({s.position for s in stages if s.position is not None})
    if not places:
        return Scale(0, 1, start, stop), []
    if places[0] > 0 and places[-1] / places[0] > 30:
        return Scale(places[0] / 1.3, places[-1] * 1.3, start, stop, log=True), [(p, tidy(p)) for p in places]
    room = (places[-1] - places[0]) * 0.09 or places[-1] * 0.5 or 1.0
    low = 0.0 if places[0] - room < places[-1] * 0.25 else places[0] - room
    return Scale(low, places[-1] + room, start, stop), [(p, tidy(p)) for p in places]


def _load_title(kind: str) -> str:
    return "offered load, requests/s" if kind == "open" else "concurrency, users (closed loop)"


def _head(panel: Panel, stages: Sequence[Stage], picked: Stage | None, floor: float) -> None:
    """What happened to a stage, and which was picked, as words over the first panel, each on a row it fits on."""
    free = [-1e9, -1e9, -1e9]
    for stage in sorted(stages, key=lambda s: s.position or 0.0):
        if stage.position is None or (stage.stable and stage is not picked):
            continue
        word = (
            f"selected {stage.label}" if stage is picked else CONDITIONS.get(stage.condition, ("?", stage.condition))[1]
        )
        half = len(word) * 3.2
        at = min(max(panel.x(stage.position), panel.x.start + half - 20), panel.x.stop - half + 30)
        row = next((i for i, edge in enumerate(free) if at - half > edge), 2)
        free[row] = at + half + 4
        class_ = "tx label pick" if stage is picked else "tx label muted"
        panel.text(at, 12 + 13 * row, word, class_, "middle")
        panel.rule(
            panel.x(stage.position),
            16 + 13 * row,
            panel.x(stage.position),
            floor,
            "pickline" if stage is picked else "faint",
        )


def latency_figure(stages: Sequence[Stage], objectives: list[Objective], picked: Stage | None, kind: str) -> Figure:
    """TTFT, TPOT and end to end against load, one panel each: p50 thin, the objective's percentile bold."""
    group = [s for s in stages if s.kind == kind and s.position is not None]
    group.sort(key=lambda s: s.position or 0.0)
    all_stages = list(stages)
    names = [name for name, _ in _PANELS]
    stats = {name: main_stat(all_stages, objectives, name) for name in names}

    def draw(width: float) -> Html:
        height, gap, top = 138.0, 44.0, 66.0
        right = width - 46
        panels = []
        bottom = top + 3 * height + 2 * gap
        for place, (name, colour) in enumerate(_PANELS):
            x, x_ticks = _load_scale(group, MARGIN_LEFT, right)
            y0 = top + place * (height + gap)
            limits = [
                o for o in objectives if o.metric == name and o.limit is not None and o.stat in ("p50", stats[name])
            ]
            low, high = log_domain(_spanned(group, name, stats[name]) + [o.limit for o in limits])
            panel = Panel(x, Scale(low, high, y0 + height, y0, log=True))
            if place == 0:
                _head(panel, group, picked, bottom)
            panel.frame_y(
                log_ticks(low, high, milliseconds, height),
                f"{metric_word(name)}, p50 and {stats[name]} (log)  {_LOWER}",
            )
            panel.frame_x(x_ticks, _load_title(kind) if place == 2 else "")
            _curves(panel, group, name, stats[name], colour)
            for objective in limits:
                panel.limit(objective.limit or 0.0, _objective_label(objective))
            panels.append(panel)
        return drawing(width, bottom + 44, f"Latency against {_load_title(kind)}", panels)

    columns = [_load_title(kind), "condition", "achieved /s"]
    columns += [
        f"{metric_word(n)} {s} ms" for n in names for s in dict.fromkeys(("p50", stats[n], f"{stats[n]} interval"))
    ]
    rows = [
        [s.label, s.condition, format_number(s.achieved)] + [cell for n in names for cell in _cells(s, n, stats[n])]
        for s in group
    ]
    lead = next((o.metric for o in objectives if o.metric in names), "ttft")
    bold = "/".join(dict.fromkeys(stats.values()))
    return Figure(
        key=f"latency-{kind}",
        title="Latency against offered load" if kind == "open" else "Latency against concurrency (closed loop)",
        reading=latency_reading(group, objectives, lead),
        draw=draw,
        columns=columns,
        rows=rows,
        legend=[
            key_item("ink", f"{bold}, with its 95 % interval"),
            key_item("ink thin", "p50"),
            key_item("ink hollow", "stage that does not count", shape="cross"),
            key_item("objective", "objective"),
        ],
        caption="Every request that brought text counts, from first byte sent. Bars are 95 % rank intervals; a bar without a cap is "
        "not bounded by so few samples. Lines join measured stable stages and are a guide only. A tick under the axis marks the "
        "achieved rate where it differs from the offered by more than 2 %.",
    )


def _objective_label(objective: Objective) -> str:
    return f"objective {objective.text.split('.', 1)[-1]}"


def _spanned(group: Sequence[Stage], name: str, stat: str) -> list[float | None]:
    values: list[float | None] = []
    for stage in group:
        values += [stage.value(name, "p50"), stage.value(name, stat)]
        pair = stage.metrics[name].intervals.get(stat) if name in stage.metrics else None
        values += list(pair or ())
    return values


def _cells(stage: Stage, name: str, stat: str) -> list[str]:
    metric = stage.metrics.get(name)
    shown = [format_number(stage.value(name, s)) for s in dict.fromkeys(("p50", stat))]
    return [*shown, interval(metric, stat) or "—"]


def _curves(panel: Panel, group: Sequence[Stage], name: str, stat: str, colour: str) -> None:
    ends: list[tuple[float, str]] = []
    for which, weight in (("p50", "thin"), (stat, "")) if stat != "p50" else (("p50", ""),):
        stable = [(s.position or 0.0, s.value(name, which)) for s in group if s.stable]
        panel.line(stable, f"{colour} {weight}")
        for stage in group:
            value, at = stage.value(name, which), stage.position
            if value is None or at is None:
                continue
            metric = stage.metrics[name]
            pair = metric.intervals.get(which)
            if which == stat and pair and pair != (None, None):
                panel.whisker(at, pair[0], pair[1], colour)
            mark = " (indicative)" if which in metric.indicative else ""
            title = (
                f"{metric_word(name)} {which} {latency(value)}{mark}, n {metric.n}, {stage.label}, {stage.condition}"
            )
            panel.dot(at, value, f"{colour} {weight}", title, hollow=not stage.stable)
            _achieved(panel, stage)
        last = next((s for s in reversed(group) if s.value(name, which) is not None), None)
        if last is not None:
            ends.append((panel.y.clamp(last.value(name, which) or 0.0), which))
    places = spread([at for at, _ in ends], 13, panel.y.stop + 4, panel.y.start)
    for place, (_, which) in zip(places, ends, strict=True):
        panel.text(panel.x.stop + 8, place + 4, which, f"tx label {colour}{' strong' if which == stat else ''}")


def _achieved(panel: Panel, stage: Stage) -> None:
    if stage.offered and stage.achieved is not None and abs(stage.achieved / stage.offered - 1) > 0.02:
        at = panel.x.clamp(stage.achieved)
        panel.add(el("path", d=f"M{px(at)} {px(panel.y.start)}l-3.5 7h7Z", class_="achieved"))


def outcomes_figure(stages: Sequence[Stage], *, by_limit: bool) -> Figure:
    """One full-width bar a stage: how every attempted request ended."""
    parts = {stage.index: _outcome_parts(stage, by_limit) for stage in stages}
    present = [name for name in OUTCOMES if any(name in found for found in parts.values())]

    def draw(width: float) -> Html:
        row, top, left = 30.0, 8.0, 92.0
        height = top + row * len(stages)
        panel = Panel(Scale(0, 1, left, width - 58), Scale(0, 1, height, top))
        for place, stage in enumerate(stages):
            y, begin = top + place * row + 4, 0.0
            panel.text(left - 8, y + 15, stage.label, "tx tick", "end")
            for name in present:
                part = parts[stage.index].get(name, 0) / stage.attempted if stage.attempted else 0
                if part:
                    tip = el(
                        "title", f"{stage.label}: {parts[stage.index][name]} of {stage.attempted} {OUTCOMES[name]}"
                    )
                    x, wide = panel.x(begin), panel.x(part) - left
                    panel.add(
                        el(
                            "rect",
                            tip,
                            x=px(x),
                            y=px(y),
                            width=px(max(wide, 1.2)),
                            height="22",
                            fill=f"url(#{_pattern(name, by_limit)})",
                            class_="bar",
                        )
                    )
                begin += part
            panel.text(width - 50, y + 15, f"n {stage.attempted:,}", "tx tick")
        panel.frame_x([(v, f"{round(v * 100)} %") for v in (0, 0.25, 0.5, 0.75, 1)], "share of attempted requests")
        return drawing(width, height + 44, "Outcomes per stage", [panel])

    rows = [[s.label, f"{s.attempted:,}", *(f"{parts[s.index].get(name, 0):,}" for name in present)] for s in stages]
    return Figure(
        key="outcomes-by-stage",
        title="How every attempted request ended",
        reading=outcomes_reading(list(stages)),
        draw=draw,
        columns=["stage", "attempted", *(OUTCOMES[name] for name in present)],
        rows=rows,
        legend=[key_item(_pattern(name, by_limit), OUTCOMES[name], shape="box") for name in present],
        caption="The denominator is every request that the schedule intended in the measured window; nothing is dropped.",
    )


def _pattern(name: str, by_limit: bool) -> str:
    """Without limits every ok is as good as any; with them, an ok that missed one has a pattern of its own."""
    return "p-good" if name == "ok" and not by_limit else f"p-{name}"


def _outcome_parts(stage: Stage, by_limit: bool) -> dict[str, int]:
    parts = stage.parts()
    if by_limit and stage.attainment is not None:
        good = min(parts.get("ok", 0), round(stage.attainment * stage.attempted))
        parts |= {"good": good, "ok": parts.get("ok", 0) - good}
    return {name: count for name, count in parts.items() if count}


def attainment_figure(stages: Sequence[Stage], target: float | None) -> Figure:
    """Share of attempted requests that met every limit, and good requests/s, against offered load."""
    group = sorted((s for s in stages if s.kind == "open" and s.offered is not None), key=lambda s: s.offered or 0.0)

    def draw(width: float) -> Html:
        height, gap = 150.0, 46.0
        x, ticks = _load_scale(group, MARGIN_LEFT, width - 20)
        upper = Panel(x, Scale(0, 1.04, MARGIN_TOP + height, MARGIN_TOP))
        upper.frame_y(
            [(v, f"{round(v * 100)} %") for v in (0, 0.25, 0.5, 0.75, 1)],
            f"attainment, share of attempted  {_HIGHER}",
        )
        upper.frame_x(ticks)
        upper.line([(s.offered or 0, s.attainment) for s in group], "green")
        for stage in group:
            if stage.attainment is not None:
                if stage.attainment_ci:
                    upper.whisker(stage.offered or 0, *stage.attainment_ci, "green")
                title = f"{stage.label}: {share(stage.attainment)} of {stage.attempted}, {stage.condition}"
                upper.dot(stage.offered or 0, stage.attainment, "green", title, hollow=not stage.stable)
        if target is not None:
            upper.limit(target, f"target {share(target)}")
        top = MARGIN_TOP + height + gap
        low, high = linear_domain([s.good for s in group] + [s.offered for s in group])
        lower = Panel(x, Scale(low, high, top + height, top))
        lower.frame_y(nice_ticks(low, high), f"good requests/s (dotted: offered)  {_HIGHER}")
        lower.frame_x(ticks, _load_title("open"))
        lower.line([(s.offered or 0, s.offered) for s in group], "faintline")
        lower.line([(s.offered or 0, s.good) for s in group], "blue")
        for stage in group:
            if stage.good is not None:
                title = f"{stage.label}: {format_number(stage.good)} good requests/s"
                lower.dot(stage.offered or 0, stage.good, "blue", title, hollow=not stage.stable)
        return drawing(width, top + height + 44, "Attainment and goodput against offered load", [upper, lower])

    held = [s for s in group if s.attainment is not None and target is not None and s.attainment >= target and s.stable]
    best = max(held, key=lambda s: s.offered or 0, default=None)
    want = "" if target is None else f"{share(target)} of attempted requests"
    reading = (
        f"{want} met every limit up to {best.label}."
        if best
        else f"No stable stage reaches {want}."
        if want
        else "Good requests need every limit met."
    )
    rows = [
        [s.label, s.condition, share(s.attainment), format_number(s.good), format_number(s.completed)] for s in group
    ]
    return Figure(
        "attainment",
        "Requests that met every limit",
        reading,
        draw,
        ("offered", "condition", "attainment", "good /s", "completed /s"),
        rows,
        "A request is good when it ended ok and met every limit given with --slo. Bars are 95 % intervals.",
    )


def spread_figure(stage: Stage, objectives: list[Objective]) -> Figure:
    """For a single stage: each metric's percentiles with their intervals on one time axis."""
    names = [n for n in ("ttft", "tpot", "itl", "stall", "e2e") if n in stage.metrics and stage.metrics[n].n]
    stats = ["p50", "p90", "p95", "p99"]

    def draw(width: float) -> Html:
        row, left = 62.0, 62.0
        values: list[float | None] = [stage.value(n, s) for n in names for s in stats]
        values += [o.limit for o in objectives if o.metric in names]
        low, high = log_domain(values)
        base = 6 + row * len(names)
        panel = Panel(Scale(low, high, left, width - 24, log=True), Scale(0, 1, base, 6))
        for value, label in log_ticks(low, high, milliseconds, (width - 86) / 3.2):
            at = panel.x(value)
            panel.rule(at, 6, at, base, "grid" if label else "grid minor")
        for place, name in enumerate(names):
            _spread_row(panel, stage, objectives, name, stats, 6 + row * place + 34)
        panel.frame_x(
            [t for t in log_ticks(low, high, milliseconds, (width - 86) / 3.2) if t[1]], "time (log)  ← lower is better"
        )
        return drawing(width, base + 44, "Percentiles of each metric", [panel])

    rows = [
        [metric_word(n), *(format_number(stage.value(n, s)) for s in stats), f"{stage.metrics[n].n:,}"] for n in names
    ]
    median, tail = stage.value("ttft", "p50"), main_stat([stage], objectives, "ttft")
    return Figure(
        "spread",
        f"Latency at {stage.label}",
        f"First text came after {latency(median)} at the median and {latency(stage.value('ttft', tail))} at {tail}."
        if median is not None
        else "No request brought text, so there is no latency to show.",
        draw,
        ("metric, ms", *stats, "n"),
        rows,
        "Dots are p50, p90, p95 and p99, from left to right; hollow ones are indicative. Bars are 95 % rank intervals; a bar without an end "
        "cap is not bounded by so few samples.",
    )


def _spread_row(panel: Panel, stage: Stage, objectives: list[Objective], name: str, stats: list[str], y: float) -> None:
    metric = stage.metrics[name]
    panel.text(4, y - 16, f"{metric_word(name)}  (n {metric.n:,})", "tx axis")
    panel.rule(panel.x.start, y, panel.x.stop, y, "grid minor")
    for objective in objectives:
        if objective.metric == name and objective.limit is not None:
            at = panel.x.clamp(objective.limit)
            panel.rule(at, y - 12, at, y + 14, "objective")
            side = "end" if at > (panel.x.start + panel.x.stop) / 2 else "start"
            panel.text(at, y - 16, _objective_label(objective), "tx label objective", side)
    known = [(stat, value) for stat in stats if (value := metric.value(stat)) is not None]
    for place, (stat, value) in enumerate(known):
        pair, at = metric.intervals.get(stat), panel.x.clamp(value)
        lift = (place % 2) * 5 - 2.5
        if pair and pair != (None, None):
            low = panel.x.start if pair[0] is None else panel.x.clamp(pair[0])
            high = panel.x.stop if pair[1] is None else panel.x.clamp(pair[1])
            caps = "".join(
                f"M{px(x)} {px(y + lift - 3)}v6" for x, side in zip((low, high), pair, strict=True) if side is not None
            )
            panel.add(el("path", d=f"M{px(low)} {px(y + lift)}H{px(high)}{caps}", class_="wh blue"))
        tip = el("title", f"{metric_word(name)} {stat} {latency(value)}, interval {interval(metric, stat) or 'none'}")
        hollow = " hollow" if stat in metric.indicative else ""
        panel.add(el("circle", tip, cx=px(at), cy=px(y + lift), r="4", class_=f"dot blue{hollow}"))
    places = spread([panel.x.clamp(value) for _, value in known], 24, panel.x.start, panel.x.stop)
    for at, (stat, _) in zip(places, known, strict=True):
        panel.text(at, y + 18, stat, "tx tick", "middle")


__all__ = ["attainment_figure", "latency_figure", "outcomes_figure", "spread_figure"]
