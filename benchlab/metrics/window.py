"""The measured window [w0, w1), half-open: which requests belong to it, which events happened in it.

A request belongs by its *intended* time, so that no lateness of client or server can move it out; an event belongs
where it happened. Those are two different questions, and no number mixes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchlab.metrics.columns import Bools, Columns, Floats
from benchlab.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class Window:
    """All in ns from t0. `cut_ns`: when the drain ended and what was still in flight was given up."""

    w0_ns: int
    w1_ns: int
    cut_ns: int
    assumed: bool = False
    """True where the manifest does not give the window and it was taken from the records' own span."""

    @property
    def seconds(self) -> float:
        return (self.w1_ns - self.w0_ns) / NS_PER_S

    def holds(self, when_ns: Floats) -> Bools:
        """Which of these instants lie in [w0, w1); NaN does not."""
        return np.asarray((when_ns >= self.w0_ns) & (when_ns < self.w1_ns))


def span_of(columns: Columns) -> tuple[int, int] | None:
    """First to last thing that really happened to any request, ns; None without requests.

    Instants that did not happen take no part: a refused request has no end at zero that could drag the span along.
    """
    first, last = columns.number("intended_ns"), columns.number("end_ns")
    known = np.concatenate([first, last, columns.last_content_ns])
    known = known[~np.isnan(known)]
    return (int(known.min()), int(known.max())) if len(known) else None


def window_of(stage: Mapping[str, Any], columns: Columns) -> Window | None:
    """The window of a stage as its manifest entry gives it, else the span of its records; None if there is neither."""
    w0, w1, cut = (stage.get(key) for key in ("w0_ns", "w1_ns", "drain_end_ns"))
    assumed = w0 is None or w1 is None
    span = span_of(columns)
    if assumed:
        if span is None:
            return None
        w0 = w0 if w0 is not None else span[0]
        # One past the last event, so that the half-open window holds it.
        w1 = max(span[1] + 1, w0 + 1)
    latest = span[1] if span is not None else int(w1 or 0)
    cut = cut if cut is not None else max(latest, int(w1 or 0))
    if int(w1 or 0) <= int(w0 or 0):
        return None
    return Window(int(w0 or 0), int(w1 or 0), int(cut), assumed)
