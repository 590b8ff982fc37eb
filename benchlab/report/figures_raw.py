"""Figures that need one point a request: the percentile plot and the dispatch lag.

The percentile line stops where the sample stops supporting it, and where attempted requests did not succeed. It must
not know the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchlab.report.figure import MARGIN_LEFT, MARGIN_TOP, Figure
from benchlab.report.html import Html
from benchlab.report.objectives import Objective
from benchlab.report.points import Points, thin
from benchlab.report.svg import Panel, Scale, drawing, log_domain, log_ticks, milliseconds, spread
from benchlab.report.view import Rule, Stage, latency, metric_word
from benchlab.units import format_number

_COLOURS = ("blue", "vermillion", "green", "purple")
_NINES = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)
_ONE_SIDED = 0.025
"""Half of 5 %: a quantile q is bounded from above by n samples when q**n is no more than this."""


def _supported(n: int) -> float:
    """The highest quantile whose 95 % interval n samples can bound on both sides."""
    return float(_ONE_SIDED ** (1 / n)) if n else 0.0


def _nines(q: float) -> float:
    return -math.log10(1 - min(q, 0.999999))


def _steps(values: np.ndarray, attempted: int) -> list[tuple[float, float]]:
    """(quantile among attempted, value) up to what the sample supports, thinned evenly along the nines axis."""
    n = len(values)
    stop = int(np.floor(_supported(n) * n))
    places = np.arange(1, max(stop, 1) + 1)
    nines = -np.log10(1 - np.minimum(places / (n + 1), 0.999999))
    keep = np.unique(np.searchsorted(nines, np.linspace(nines[0], nines[-1], 160)).clip(0, len(places) - 1))
    scale = n / max(attempted, n)
    return [(float(places[i] / (n + 1) * scale), float(values[i])) for i in keep]


def percentile_figure(
    points: Points, stages: Sequence[Stage], picked: Stage | None, objectives: list[Objective], metric: str
) -> Figure | None:
    """Latency against the share of attempted requests that were at least that fast, on an axis of nines."""
    samples = {s.index: points.sample(metric, s.index) for s in stages}
    shown = [s for s in stages if len(samples[s.index][0]) > 1]
    if not shown:
        return None
    lines = {s.index: _steps(*samples[s.index]) for s in shown}
    bright = _bright(shown, picked)
    limits = [o for o in objectives if o.metric == metric and o.limit is not None]

    def draw(width: float) -> Html:
        height = 230.0
        low, high = log_domain([v for line in lines.values() for _, v in line] + [o.limit for o in limits])
        far = max(_nines(line[-1][0]) for line in lines.values())
        x = Scale(0, max(1.05, far * 1.04), MARGIN_LEFT, width - 74)
        panel = Panel(x, Scale(low, high, MARGIN_TOP + height, MARGIN_TOP, log=True))
        panel.frame_y(log_ticks(low, high, milliseconds, height), f"{metric_word(metric)} (log)  ↓ lower is better")
        ticks = [(_nines(q), f"{100 * q:.6g} %") for q in _NINES if _nines(q) <= x.high]
        for at, _ in ticks[1:]:
            panel.rule(x(at), panel.y.start, x(at), panel.y.stop, "grid")
        title = (
            "share of attempted requests at least this fast"
            if width > 500
            else "share of attempted, this fast or faster"
        )
        panel.frame_x(ticks, title)
        for objective in limits:
            panel.limit(objective.limit or 0.0, f"objective {objective.short}")
        for stage in sorted(shown, key=lambda s: s.index in bright):
            colour = bright.get(stage.index, "faint")
            path = [(_nines(q), value) for q, value in lines[stage.index]]
            panel.line(path, colour)
            reached = len(samples[stage.index][0]) / max(1, samples[stage.index][1])
            if reached < 0.999:
                panel.crosses([path[-1]], colour)
        ends = [panel.y.clamp(lines[s.index][-1][1]) for s in shown]
        for stage, place in zip(shown, spread(ends, 13, panel.y.stop, panel.y.start), strict=True):
            at = x(_nines(lines[stage.index][-1][0]))
            strong = " strong" if stage is picked else ""
            panel.text(
                min(at + 8, width - 66), place + 4, stage.label, f"tx label {bright.get(stage.index, 'muted')}{strong}"
            )
        return drawing(width, MARGIN_TOP + height + 44, f"{metric_word(metric)} percentiles", [panel])

    rows = []
    for stage in shown:
        values, attempted = samples[stage.index]
        stop = f"{100 * lines[stage.index][-1][0]:.2f} %"
        rows.append(
            [stage.label, stage.condition, f"{len(values):,}", f"{attempted:,}", stop, *_figures(stage, metric)]
        )
    return Figure(
        f"percentiles-{metric}-{stages[0].kind}",
        f"{metric_word(metric)} by percentile" + (" (closed loop)" if stages[0].kind == "closed" else ""),
        _reading(shown, picked, metric, samples),
        draw,
        ("stage", "condition", "n", "attempted", "line stops at", "p50 ms", "p90 ms", "p95 ms", "p99 ms"),
        rows,
    )


def _figures(stage: Stage, metric: str) -> list[str]:
    return [format_number(stage.value(metric, stat)) for stat in ("p50", "p90", "p95", "p99")]


def _bright(shown: Sequence[Stage], picked: Stage | None) -> dict[int, str]:
    """Which stages are coloured: the pick first, then its neighbours; all of them when they are few."""
    centre = next((i for i, s in enumerate(shown) if s is picked), 0)
    order = sorted(range(len(shown)), key=lambda i: (abs(i - centre), -i))[: 3 if len(shown) > 4 else 4]
    return {shown[i].index: colour for i, colour in zip(order, _COLOURS, strict=False)}


def _reading(
    shown: Sequence[Stage], picked: Stage | None, metric: str, samples: dict[int, tuple[np.ndarray, int]]
) -> str:
    stage = picked if picked is not None and picked in shown else shown[0]
    values, attempted = samples[stage.index]
    far = _supported(len(values)) * len(values) / max(1, attempted)
    text = (
        f"Half of the answers at {stage.label} had a {metric_word(metric)} of at most "
        f"{latency(stage.value(metric, 'p50'))}; "
        f"{len(values):,} samples carry the line to {100 * far:.1f} %."
    ).replace("a End to end", "an end-to-end time")
    short = [s for s in shown if len(samples[s.index][0]) < samples[s.index][1]]
    return text + (f" In {len(short)} of {len(shown)} stages some attempted requests have no value." if short else "")


def lag_figure(points: Points, rule: Rule | None, limit_ms: float | None, stages: Sequence[Stage]) -> Figure | None:
    """The client's own lateness, by intended time: the proof that the load was applied as planned."""
    lag = points.values["dispatch_lag"]
    known = np.flatnonzero(np.isfinite(lag))
    if not len(known):
        return None
    at, values = points.intended[known], np.maximum(lag[known], 0.001)
    pick = thin(values, 1500)

    def draw(width: float) -> Html:
        height = 150.0
        low, high = log_domain([*np.quantile(values, [0.001, 1.0]).tolist(), limit_ms])
        x = Scale(float(min(0.0, at.min())), float(at.max()) * 1.01 or 1.0, MARGIN_LEFT, width - 16)
        panel = Panel(x, Scale(max(low, 0.001), high, MARGIN_TOP + height, MARGIN_TOP, log=True))
        panel.frame_y(
            log_ticks(panel.y.low, high, milliseconds, height), "dispatched − intended (log)  ↓ lower is better"
        )
        panel.frame_x(_seconds(x), "intended time, s from the start")
        panel.cloud(zip(at[pick].tolist(), values[pick].tolist(), strict=True), "blue")
        if limit_ms is not None:
            panel.limit(limit_ms, f"limit {milliseconds(limit_ms)}")
        return drawing(width, MARGIN_TOP + height + 44, "Dispatch lag by intended time", [panel])

    worst = max((s for s in stages if s.value("dispatch_lag", "p99") is not None), key=_lag99, default=None)
    reading = "No stage has a dispatch lag."
    if worst is not None:
        verdict = f"; its validity rule: {rule.state}" if rule is not None else ""
        reading = (
            f"The client acted within {latency(_lag99(worst))} of the schedule for 99 % of requests in its worst "
            f"stage{verdict}."
        )
    rows = [[s.label, *_figures(s, "dispatch_lag"), format_number(s.value("dispatch_lag", "max"))] for s in stages]
    note = (
        ""
        if len(pick) == len(known)
        else f" Drawn: {len(pick):,} of {len(known):,} requests, the latest quarter of them all."
    )
    return Figure(
        "dispatch-lag",
        "Was the load applied as planned?",
        reading,
        draw,
        ("stage", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "max ms"),
        rows,
        "The client's own lateness, before any waiting for a cap or a connection. Values below 1 µs are drawn at 1 µs."
        + note,
    )


def _lag99(stage: Stage) -> float:
    return stage.value("dispatch_lag", "p99") or 0.0


def _seconds(x: Scale) -> list[tuple[float, str]]:
    from benchlab.report.svg import nice_ticks

    return nice_ticks(x.low, x.high, 8)


__all__ = ["lag_figure", "percentile_figure"]
