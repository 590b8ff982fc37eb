"""The load axis that every figure over stages shares, so that the same load stands at the same place in all of them."""

from __future__ import annotations

from collections.abc import Sequence

from benchlab.report.svg import Scale, Ticks
from benchlab.report.view import Stage, tidy

LOWER, HIGHER = "↓ lower is better", "↑ higher is better"


def load_scale(stages: Sequence[Stage], start: float, stop: float) -> tuple[Scale, Ticks]:
    """The load axis: ticks are the loads that were measured; logarithmic when they span more than thirtyfold."""
    places = sorted({s.position for s in stages if s.position is not None})
    if not places:
        return Scale(0, 1, start, stop), []
    if places[0] > 0 and places[-1] / places[0] > 30:
        return Scale(places[0] / 1.3, places[-1] * 1.3, start, stop, log=True), [(p, tidy(p)) for p in places]
    room = (places[-1] - places[0]) * 0.09 or places[-1] * 0.5 or 1.0
    low = 0.0 if places[0] - room < places[-1] * 0.25 else places[0] - room
    return Scale(low, places[-1] + room, start, stop), [(p, tidy(p)) for p in places]


def load_title(kind: str) -> str:
    return "offered load, requests/s" if kind == "open" else "concurrency, users (closed loop)"
