"""Latency figures that a Summary alone can fill: against load for a sweep, by percentile for a single stage.

Points are measurements and lines are guides; a stage that does not count is drawn hollow and crossed and stays out of
the line; the objective and the pick are labelled where they stand. It must not know the records.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchlab.report.axes import LOWER, load_scale, load_title
from benchlab.report.figure import MARGIN_LEFT, Figure, key_item
from benchlab.report.html import Html, el
from benchlab.report.objectives import Objective, main_stat, two_stats
from benchlab.report.sentences import latency_reading
from benchlab.report.svg import (
    Panel,
    Scale,
    drawing,
    log_domain,
    log_ticks,
    milliseconds,
    px,
    spread,
)
from benchlab.report.view import Stage, interval, latency, metric_word
from benchlab.report.words import CONDITIONS
from benchlab.units import format_number

_PANELS = (("ttft", "blue"), ("tpot", "vermillion"), ("e2e", "green"))


def _flags(x: Scale, stages: Sequence[Stage], picked: Stage | None) -> list[tuple[Stage, str, float, int]]:
    """(stage, word, x, row) of what is said over the panels: each word on the first row where it fits."""
    free, flags = [-1e9, -1e9, -1e9], []
    for stage in sorted(stages, key=lambda s: s.position or 0.0):
        if stage.position is None or (stage.stable and stage is not picked):
            continue
        word = (
            f"selected {stage.label}" if stage is picked else CONDITIONS.get(stage.condition, ("", stage.condition))[1]
        )
        half = len(word) * 3.3
        at = min(max(x(stage.position), x.start + half - 20), x.stop - half + 30)
        row = next((i for i, edge in enumerate(free) if at - half > edge), 2)
        free[row] = at + half + 4
        flags.append((stage, word, at, row))
    return flags


def _head(panel: Panel, flags: list[tuple[Stage, str, float, int]], picked: Stage | None, floor: float) -> None:
    """What happened to a stage, and which was picked, as words over the panels and a rule through all of them."""
    for stage, word, at, row in flags:
        x, y = panel.x(stage.position or 0.0), 12.0 + 13 * row
        panel.rule(x, y + 4, x, floor, "pickline" if stage is picked else "faint")
        panel.text(at, y, word, "tx label pick" if stage is picked else "tx label muted", "middle")


def latency_figure(stages: Sequence[Stage], objectives: list[Objective], picked: Stage | None, kind: str) -> Figure:
    """TTFT, TPOT and end to end against load, one panel each: the objective's percentile bold, p50 (or a tail) thin."""
    group = [s for s in stages if s.kind == kind and s.position is not None]
    group.sort(key=lambda s: s.position or 0.0)
    all_stages = list(stages)
    names = [name for name, _ in _PANELS]
    pairs = {name: two_stats(all_stages, objectives, name) for name in names}
    stats = {name: main for name, (_, main) in pairs.items()}

    def draw(width: float) -> Html:
        height, gap, right = 138.0, 44.0, width - 46
        flags = _flags(load_scale(group, MARGIN_LEFT, right)[0], group, picked)
        top = 40.0 + 13 * max((row for *_, row in flags), default=-1)
        panels = []
        bottom = top + 3 * height + 2 * gap
        for place, (name, colour) in enumerate(_PANELS):
            x, x_ticks = load_scale(group, MARGIN_LEFT, right)
            y0 = top + place * (height + gap)
            limits = [o for o in objectives if o.metric == name and o.limit is not None and o.stat in pairs[name]]
            low, high = log_domain(_spanned(group, name, pairs[name]) + [o.limit for o in limits])
            panel = Panel(x, Scale(low, high, y0 + height, y0, log=True))
            if place == 0:
                _head(panel, flags, picked, bottom)
            panel.frame_y(
                log_ticks(low, high, milliseconds, height),
                f"{metric_word(name)}, {' and '.join(sorted(pairs[name]))} (log)  {LOWER}",
            )
            panel.frame_x(x_ticks, load_title(kind) if place == 2 else "")
            _curves(panel, group, name, pairs[name], colour)
            for objective in limits:
                panel.limit(objective.limit or 0.0, _objective_label(objective))
            panels.append(panel)
        return drawing(width, bottom + 44, f"Latency against {load_title(kind)}", panels)

    columns = [load_title(kind), "condition", "achieved /s"]
    columns += [f"{metric_word(n)} {s} ms" for n in names for s in (*pairs[n], f"{stats[n]} interval")]
    rows = [
        [s.label, s.condition, format_number(s.achieved)] + [cell for n in names for cell in _cells(s, n, pairs[n])]
        for s in group
    ]
    lead = next((o.metric for o in objectives if o.metric in names), "ttft")
    bold, thin = ("/".join(dict.fromkeys(pair[i] for pair in pairs.values())) for i in (1, 0))
    return Figure(
        key=f"latency-{kind}",
        title="Latency against offered load" if kind == "open" else "Latency against concurrency (closed loop)",
        reading=latency_reading(group, objectives, lead),
        draw=draw,
        columns=columns,
        rows=rows,
        legend=[
            key_item("ink", f"{bold}, with its 95 % interval"),
            key_item("ink thin", thin),
            key_item("ink hollow", "stage that does not count", shape="cross"),
            key_item("objective", "objective"),
        ],
        caption="Of the requests of the window that ended ok, from first byte sent. Bars are 95 % rank intervals; an "
        "arrow is a side that so few samples do not bound. Lines join measured stable stages and are a guide only. A "
        "mark under the axis is the achieved rate where it differs from the offered by more than 2 %.",
    )


def _objective_label(objective: Objective) -> str:
    return f"objective {objective.short}"


def _spanned(group: Sequence[Stage], name: str, pair: tuple[str, str]) -> list[float | None]:
    values: list[float | None] = []
    for stage in group:
        values += [stage.value(name, which) for which in pair]
        ends = stage.metrics[name].intervals.get(pair[1]) if name in stage.metrics else None
        values += list(ends or ())
    return values


def _cells(stage: Stage, name: str, pair: tuple[str, str]) -> list[str]:
    shown = [format_number(stage.value(name, which)) for which in pair]
    return [*shown, interval(stage.metrics.get(name), pair[1]) or "—"]


def _curves(panel: Panel, group: Sequence[Stage], name: str, pair: tuple[str, str], colour: str) -> None:
    ends: list[tuple[float, str]] = []
    for stage in group:
        _achieved(panel, stage)
    for which, weight in zip(pair, (" thin", ""), strict=True):
        stable = [(s.position or 0.0, s.value(name, which)) for s in group if s.stable]
        panel.line(stable, f"{colour}{weight}")
        for stage in group:
            value, at = stage.value(name, which), stage.position
            if value is None or at is None:
                continue
            metric = stage.metrics[name]
            bounds = metric.intervals.get(which)
            if which == pair[1] and bounds and bounds != (None, None):
                panel.whisker(at, *bounds, colour)
            mark = " (indicative)" if which in metric.indicative else ""
            title = (
                f"{metric_word(name)} {which} {latency(value)}{mark}, n {metric.n}, {stage.label}, {stage.condition}"
            )
            panel.dot(at, value, f"{colour}{weight}", title, hollow=not stage.stable)
        last = next((s for s in reversed(group) if s.value(name, which) is not None), None)
        if last is not None:
            ends.append((panel.y.clamp(last.value(name, which) or 0.0), which))
    places = spread([at for at, _ in ends], 13, panel.y.stop + 4, panel.y.start)
    for place, (_, which) in zip(places, ends, strict=True):
        panel.text(panel.x.stop + 8, place + 4, which, f"tx label {colour}{' strong' if which == pair[1] else ''}")


def _achieved(panel: Panel, stage: Stage) -> None:
    if stage.offered and stage.achieved is not None and abs(stage.achieved / stage.offered - 1) > 0.02:
        at = panel.x.clamp(stage.achieved)
        panel.add(el("path", d=f"M{px(at)} {px(panel.y.start)}l-3.5 7h7Z", class_="achieved"))


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
        f"spread-{stage.kind}",
        f"Latency at {stage.label}",
        f"First text came after {latency(median)} at the median and {latency(stage.value('ttft', tail))} at {tail}."
        if median is not None
        else "No request brought text, so there is no latency to show.",
        draw,
        ("metric, ms", *stats, "n"),
        rows,
        "Dots are p50, p90, p95 and p99, from left to right; hollow ones are indicative. Bars are 95 % "
        "rank intervals; an arrow is a side that so few samples do not bound.",
    )


def _bar(panel: Panel, y: float, at: float, pair: tuple[float | None, float | None]) -> Html:
    """A horizontal interval; a side that the sample does not bound is a short arrow."""
    path = ""
    for side, away in zip(pair, (-1, 1), strict=True):
        end = at + away * 18 if side is None else panel.x.clamp(side)
        end = max(panel.x.start, min(end, panel.x.stop))
        tip = f"m{-away * 4} -3l{away * 4} 3l{-away * 4} 3" if side is None else "m0 -3v6"
        path += f"M{px(at)} {px(y)}H{px(end)}{tip}"
    return el("path", d=path, class_="wh blue")


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
            panel.add(_bar(panel, y + lift, at, pair))
        tip = el("title", f"{metric_word(name)} {stat} {latency(value)}, interval {interval(metric, stat) or 'none'}")
        hollow = " hollow" if stat in metric.indicative else ""
        panel.add(el("circle", tip, cx=px(at), cy=px(y + lift), r="4", class_=f"dot blue{hollow}"))
    places = spread([panel.x.clamp(value) for _, value in known], 24, panel.x.start, panel.x.stop)
    for at, (stat, _) in zip(places, known, strict=True):
        panel.text(at, y + 18, stat, "tx tick", "middle")


__all__ = ["latency_figure", "spread_figure"]
