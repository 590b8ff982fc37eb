"""A few honest chart primitives in plain SVG: scales, ticks, axes, marks. No chart library, no script needed.

A panel maps data to pixels and refuses to invent: None is a gap in a line, nothing is smoothed, and a value off the
panel is drawn at its edge only where the caller asks for it. Colours come from CSS classes, so that one drawing serves
the light and the dark theme. It must not know what is drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchlab.report.html import Html, el, join
from benchlab.units import format_number

Point = tuple[float, float | None]
Ticks = list[tuple[float, str]]


def px(value: float) -> str:
    """A coordinate with one decimal and no needless zeros."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Scale:
    """Data to pixels, linear or logarithmic; `low` lands on `start`, `high` on `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = math.log10(max(value, self.low * 1e-3)) if self.log else value
        return self.start + (at - low) / ((high - low) or 1.0) * (self.stop - self.start)

    def clamp(self, value: float) -> float:
        """As a call, but never outside the panel."""
        return self(min(max(value, self.low), self.high))


def log_domain(values: Iterable[float | None]) -> tuple[float, float]:
    """A domain with room around the positive values, at least a factor of three wide."""
    known = [value for value in values if value is not None and value > 0 and math.isfinite(value)]
    if not known:
        return 1.0, 10.0
    low, high = min(known) / 1.25, max(known) * 1.25
    if high / low < 3:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(3), middle * math.sqrt(3)
    return low, high


def linear_domain(values: Iterable[float | None]) -> tuple[float, float]:
    """From zero to a little above the largest value."""
    top = max((value for value in values if value is not None and math.isfinite(value)), default=0.0)
    return 0.0, top * 1.08 if top > 0 else 1.0


def nice_ticks(low: float, high: float, wanted: int = 5, label: Callable[[float], str] | None = None) -> Ticks:
    """Round numbers between low and high."""
    step = 10 ** math.floor(math.log10((high - low) / wanted or 1.0))
    step *= next((factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= wanted), 10)
    first = math.ceil(low / step - 1e-9)
    values = [round(place * step, 10) for place in range(first, math.floor(high / step + 1e-9) + 1)]
    return [(value, (label or plain)(value)) for value in values]


def log_ticks(low: float, high: float, label: Callable[[float], str], room: float) -> Ticks:
    """1-2-5 ticks where there is room for labels, else 1-3, else decades; in a narrow domain round numbers."""
    decades = math.log10(high / low)
    heads = next((h for h in ((1, 2, 5), (1, 3)) if decades * len(h) * 17 <= room), (1,))
    ticks: Ticks = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for head in range(1, 10):
            value = head * 10.0**exponent
            if low <= value <= high:
                ticks.append((value, label(value) if head in heads else ""))
    if sum(bool(text) for _, text in ticks) < 3 and decades < 1.2:
        return nice_ticks(low, high, max(3, min(5, int(room / 26))), label)
    return ticks


def plain(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e9 else format_number(value)


def milliseconds(value: float) -> str:
    """A latency tick: 0.5 ms, 50 ms, 2 s."""
    return f"{value / 1000:,.6g} s" if value >= 1000 else f"{value:.6g} ms"


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Label places moved apart to at least `gap`, kept in order and inside [low, high] where that is possible."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for before, this in itertools.pairwise(order):
        moved[this] = max(moved[this], moved[before] + gap)
    ceiling = high
    for this in reversed(order):
        moved[this] = max(low, min(moved[this], ceiling))
        ceiling = moved[this] - gap
    return moved


@dataclass(slots=True)
class Panel:
    """One plotting area. Marks are collected in drawing order; `body` is the group to put into a drawing."""

    x: Scale
    y: Scale
    marks: list[Html] = field(default_factory=list)

    def add(self, mark: Html) -> None:
        self.marks.append(mark)

    def text(self, x: float, y: float, label: str, class_: str = "tx", anchor: str = "start") -> None:
        self.add(el("text", label, x=px(x), y=px(y), class_=class_, text_anchor=anchor))

    def rule(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
        self.add(el("line", x1=px(x1), y1=px(y1), x2=px(x2), y2=px(y2), class_=class_))

    def frame_y(self, ticks: Ticks, title: str) -> None:
        """Horizontal grid, labels left of the panel, title above it."""
        for value, label in ticks:
            at = self.y(value)
            self.rule(self.x.start, at, self.x.stop, at, "grid" if label else "grid minor")
            if label:
                self.text(self.x.start - 7, at + 3.5, label, "tx tick", "end")
        self.text(0, self.y.stop - 9, title, "tx axis")

    def frame_x(self, ticks: Ticks, title: str = "", *, room: float = 6.5) -> None:
        """Baseline with ticks; labels that would touch the one before are left out."""
        base = self.y.start
        self.rule(self.x.start, base, self.x.stop, base, "base")
        free = -1e9
        for value, label in ticks:
            at, half = self.x(value), len(label) * room / 2
            self.rule(at, base, at, base + 4, "base")
            if label and at - half > free:
                self.text(at, base + 16, label, "tx tick", "middle")
                free = at + half + 4
        if title:
            self.text((self.x.start + self.x.stop) / 2, base + 34, title, "tx axis", "middle")

    def line(self, points: Sequence[Point], class_: str, *, step: bool = False) -> None:
        """Straight (or staircase) segments through the known points; an unknown one breaks the line."""
        parts: list[str] = []
        pen_up, last_y = True, ""
        for x, y in points:
            if y is None:
                pen_up = True
                continue
            at_x, at_y = px(self.x(x)), px(self.y.clamp(y))
            if pen_up:
                parts.append(f"M{at_x} {at_y}")
            else:
                parts.append(f"H{at_x}V{at_y}" if step else f"L{at_x} {at_y}")
            pen_up, last_y = False, at_y
        if parts and last_y:
            self.add(el("path", d="".join(parts), class_=f"ln {class_}"))

    def band(self, points: Sequence[tuple[float, float, float]], class_: str) -> None:
        """The area between low and high."""
        if len(points) > 1:
            there = [f"{px(self.x(x))} {px(self.y.clamp(high))}" for x, _, high in points]
            back = [f"{px(self.x(x))} {px(self.y.clamp(low))}" for x, low, _ in reversed(points)]
            self.add(el("path", d=f"M{'L'.join(there + back)}Z", class_=f"band {class_}"))

    def whisker(self, x: float, low: float | None, high: float | None, class_: str) -> None:
        """An interval at x; a side that the sample does not bound is a short arrow instead of an end."""
        at = self.x(x)
        known = [self.y.clamp(side) for side in (low, high) if side is not None]
        path = "".join(f"M{px(at - 3)} {px(y)}h6" for y in known)
        if len(known) == 2:
            path += f"M{px(at)} {px(known[0])}V{px(known[1])}"
        elif known:
            away = -1 if high is None else 1
            tip = max(self.y.stop, min(known[0] + away * 18, self.y.start))
            path += f"M{px(at)} {px(known[0])}V{px(tip)}m-3 {px(-away * 4)}l3 {px(away * 4)}l3 {px(-away * 4)}"
        self.add(el("path", d=path, class_=f"wh {class_}"))

    def dot(self, x: float, y: float, class_: str, title: str, *, hollow: bool = False) -> None:
        """A measured point; hollow and crossed where it does not count."""
        at_x, at_y = self.x(x), self.y.clamp(y)
        mark = [
            el(
                "circle",
                el("title", title),
                cx=px(at_x),
                cy=px(at_y),
                r="4",
                class_=f"dot {class_}{' hollow' * hollow}",
            )
        ]
        if hollow:
            path = f"M{px(at_x - 6)} {px(at_y - 6)}l12 12m0 -12l-12 12"
            mark.append(el("path", d=path, class_=f"cross {class_}"))
        self.add(join(mark))

    def cloud(self, points: Iterable[tuple[float, float]], class_: str) -> None:
        """Many small dots as one path: a zero-length stroke with round ends each."""
        path = "".join(f"M{px(self.x(x))} {px(self.y.clamp(y))}h0" for x, y in points)
        if path:
            self.add(el("path", d=path, class_=f"cloud {class_}"))

    def crosses(self, points: Iterable[tuple[float, float]], class_: str) -> None:
        """Many small crosses as one path."""
        path = "".join(f"M{px(self.x(x) - 3)} {px(self.y.clamp(y) - 3)}l6 6m0 -6l-6 6" for x, y in points)
        if path:
            self.add(el("path", d=path, class_=f"cross {class_}"))

    def limit(self, value: float, label: str, class_: str = "objective") -> None:
        """A labelled horizontal line. The label stands on the line at the right end, inside the panel."""
        at = self.y.clamp(value)
        self.rule(self.x.start, at, self.x.stop, at, class_)
        self.text(self.x.stop - 4, at - 4 if at - 14 > self.y.stop else at + 12, label, f"tx label {class_}", "end")


def drawing(width: float, height: float, label: str, panels: Sequence[Panel], extra: Sequence[Html] = ()) -> Html:
    """An SVG of this size whose panels are drawn in order; `label` is what a screen reader says."""
    body = [mark for panel in panels for mark in panel.marks] + list(extra)
    return el("svg", join(body), viewBox=f"0 0 {px(width)} {px(height)}", role="img", aria_label=label, class_="chart")
