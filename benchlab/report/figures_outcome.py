"""How requests ended and how many met every limit, stage by stage. Every value is the summary's own.

The denominator is always the attempted requests. It must not know the records.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchlab.report.axes import HIGHER, load_scale, load_title
from benchlab.report.figure import MARGIN_LEFT, MARGIN_TOP, Figure, key_item
from benchlab.report.html import Html, el
from benchlab.report.sentences import outcomes_reading
from benchlab.report.svg import Panel, Scale, drawing, linear_domain, nice_ticks, px
from benchlab.report.view import Stage, share
from benchlab.report.words import OUTCOMES
from benchlab.units import format_number


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
                        "title",
                        f"{stage.label}: {parts[stage.index][name]} of {stage.attempted} {_word(name, by_limit)}",
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
        columns=["stage", "attempted", *(_word(name, by_limit) for name in present)],
        rows=rows,
        legend=[key_item(_pattern(name, by_limit), _word(name, by_limit), shape="box") for name in present],
        caption="The denominator is every request that was due in the measured window; nothing is dropped.",
    )


def _word(name: str, by_limit: bool) -> str:
    return "ok, but a limit was missed" if name == "ok" and by_limit else OUTCOMES[name]


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
        x, ticks = load_scale(group, MARGIN_LEFT, width - 20)
        upper = Panel(x, Scale(0, 1.04, MARGIN_TOP + height, MARGIN_TOP))
        upper.frame_y(
            [(v, f"{round(v * 100)} %") for v in (0, 0.25, 0.5, 0.75, 1)],
            f"attainment, share of attempted  {HIGHER}",
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
        lower.frame_y(nice_ticks(low, high), f"good requests/s (dotted: offered)  {HIGHER}")
        lower.frame_x(ticks, load_title("open"))
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
