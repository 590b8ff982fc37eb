"""The steady span of a stage: found by how precisely it fixes a level, never by what the level is.

The one idea: requests in the order in which they were sent are grouped, each group gives the median of its TPOT (of
its end-to-end time where that is not known); the beginning is cut where the rest fixes the mean best (MSER), at most
half; what is left is searched for one change of level (Pettitt) and for a trend (Mann-Kendall), on groups so large
that neighbours are no longer alike. A span that shifts is cut at the shift, and the longer part is taken whether it is
the slow one or the fast one. It must not know objectives.

Sources: White's MSER (Simulation 1997); Pettitt (Applied Statistics 1979); the design of MLCommons' endpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from benchlab.metrics.columns import Columns, Floats
from benchlab.metrics.intervals import effective_n, first_lag
from benchlab.metrics.table import BY_NAME, measure
from benchlab.metrics.trend import rising
from benchlab.metrics.window import Window
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_S

Word = Literal["steady", "shifted", "drifting", "short"]

GROUPS = 60
LEAST_GROUPS = 10
LEAST_REQUESTS = 50
LEVEL = 0.01
"""Chance of a false alarm of each test."""
MATERIAL = 0.05
"""A shift or a drift of less than 5% of the level is none worth a word."""

GAIN = 0.7
"""What is left must fix the level with at most so much of the whole's squared error, else nothing is cut."""
ENOUGH = 0.9
"""The shortest cut that is within a tenth of the best one is taken."""
WARM_UP = 0.25
"""A cut of more than this share of the groups is no warm-up: the level changed, and that is said."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of level: when, the medians before and after in ms, the chance of such a one in a level series."""

    at_ns: int
    before: float
    after: float
    p: float


@dataclass(frozen=True, slots=True)
class Steady:
    """word: 'steady', 'shifted' (the span is the longer part), 'drifting', or 'short' (nothing can be said).

    span: [w0, w1) in ns from t0. dropped: share of the window's requests outside of it. series: tpot or e2e; groups:
    how many. lag: correlation of neighbours among requests; n, effective_n: of the requests inside. level, error: its
    mean in ms and the half width of that mean's 95% interval as a share of it.
    """

    word: Word
    span: tuple[int, int]
    dropped: float
    series: str
    groups: int
    n: int
    effective_n: float
    lag: float
    level: float | None
    error: float | None
    shift: Shift | None
    drift: float | None

    def as_dict(self, w: Window) -> dict[str, Any]:
        """As summary.json has it: times in s from the told window's begin."""
        shift = self.shift and {
            "at_s": (self.shift.at_ns - w.w0_ns) / NS_PER_S,
            "before": self.shift.before,
            "after": self.shift.after,
            "p": self.shift.p,
        }
        return {
            "state": self.word,
            "from_s": (self.span[0] - w.w0_ns) / NS_PER_S,
            "to_s": (self.span[1] - w.w0_ns) / NS_PER_S,
            "dropped_share": self.dropped,
            "series": self.series,
            "groups": self.groups,
            "n": self.n,
            "effective_n": self.effective_n,
            "autocorrelation": self.lag,
            "level": self.level,
            "error_share": self.error,
            "shift": shift,
            "drift_share": self.drift,
        }


def pettitt(values: Floats) -> tuple[int, float]:
    """(how many values stand before the likeliest change of level, chance of so strong a one in a level series)."""
    from scipy.stats import rankdata

    n = len(values)
    ahead = 2 * np.cumsum(rankdata(values))[:-1] - np.arange(1, n) * (n + 1)
    at = int(np.argmax(np.abs(ahead)))
    strength = float(abs(ahead[at]))
    return at + 1, min(1.0, 2 * math.exp(-6 * strength**2 / (n**3 + n**2)))


def mser(values: Floats) -> int:
    """How many values at the beginning to leave out, at most half, so that the rest fixes its mean best."""
    n = len(values)
    backwards = values[::-1]
    count = np.arange(1, n + 1)
    mean = np.cumsum(backwards) / count
    spread = np.maximum(np.cumsum(backwards**2) - count * mean**2, 0.0)
    error = (spread / count**2)[::-1]  # error[d]: with the first d left out
    error = error[: n // 2 + 1]
    least = float(error.min())
    # of a series that is level throughout, chance alone would cut a piece; and a little more of one that is not
    return int(np.argmax(error <= least / ENOUGH)) if least < GAIN * error[0] else 0


def find_steady(c: Columns, w: Window) -> Steady | None:
    """The steady span inside a window, among the requests sent in it; never wider than it. None where none was."""
    sent = c.number("sent_ns")
    among = w.holds(sent) & c.is_outcome(Outcome.OK)
    name, values = _series(c, among)
    rows = np.flatnonzero(among & np.isfinite(values))
    if not len(rows):
        return None
    rows = rows[np.argsort(sent[rows], kind="stable")]
    when, took = sent[rows], values[rows]
    if len(rows) < LEAST_REQUESTS:
        return _told(w, name, took, "short", (w.w0_ns, w.w1_ns), when)
    edges = np.linspace(0, len(rows), min(GROUPS, len(rows) // 5) + 1).astype(np.int64)
    levels = np.array([np.median(took[a:b]) for a, b in pairwise(edges)])
    first, last = mser(levels), len(levels)
    shift: Shift | None = None
    word: Word = "steady"
    if first > WARM_UP * last:
        shift = _shift(levels, edges, when, 0)
        first = 0 if shift is not None else first
    shift = shift or _shift(levels, edges, when, first)
    if shift is not None:
        at = int(np.searchsorted(when[edges[:-1]], shift.at_ns))
        first, last = (at, last) if last - at > at - first else (first, at)
        word = "shifted"
    drift = _drift(levels[first:last])
    if drift is not None:
        word = "drifting"
    begin_ns = w.w0_ns if first == 0 else math.floor(when[edges[first]])
    end_ns = w.w1_ns if last == len(levels) else math.floor(when[edges[last]])
    return _told(w, name, took, word, (begin_ns, end_ns), when, len(levels), shift, drift)


def _series(c: Columns, among: Any) -> tuple[str, Floats]:
    for name in ("tpot", "e2e"):
        samples = measure(BY_NAME[name], c, among)
        values = np.full(c.n, np.nan)
        values[samples.rows] = samples.values
        if name == "e2e" or len(samples.rows) >= 0.5 * among.sum():
            break
    return name, values


def _apart(levels: Floats) -> tuple[Floats, int]:
    """Medians of neighbours, by twos, fours, ... until they are no longer alike; and how many make one."""
    size = 1
    while len(levels) >= 2 * LEAST_GROUPS and first_lag(_detrended(levels)) > 2 / math.sqrt(len(levels)):
        even = levels[: len(levels) // 2 * 2].reshape(-1, 2)
        levels, size = even.mean(axis=1), size * 2
    return levels, size


def _detrended(levels: Floats) -> Floats:
    """Without its own change of level: a shift makes neighbours alike, and is what is looked for."""
    if len(levels) < LEAST_GROUPS:
        return levels
    at, _ = pettitt(levels)
    return np.concatenate([levels[:at] - np.median(levels[:at]), levels[at:] - np.median(levels[at:])])


def _shift(levels: Floats, edges: Any, when: Floats, first: int) -> Shift | None:
    apart, size = _apart(levels[first:])
    if len(apart) < LEAST_GROUPS:
        return None
    at, p = pettitt(apart)
    before, after = float(np.median(apart[:at])), float(np.median(apart[at:]))
    if p >= LEVEL or abs(after - before) < MATERIAL * before:
        return None
    return Shift(math.floor(when[edges[first + at * size]]), before, after, p)


def _drift(levels: Floats) -> float | None:
    """Sen's growth over the span as a share of its median, where it is significant and material; else None."""
    apart, _ = _apart(levels)
    if len(apart) < LEAST_GROUPS:
        return None
    x, middle = np.arange(len(apart), dtype=np.float64), float(np.median(apart))
    for sign in (1.0, -1.0):
        trend = rising(x, sign * apart)
        if trend is not None and trend.p < LEVEL / 2 and trend.growth >= MATERIAL * middle:
            return sign * trend.growth / middle
    return None


def _told(
    w: Window,
    name: str,
    took: Floats,
    word: Word,
    span: tuple[int, int],
    when: Floats,
    groups: int = 0,
    shift: Shift | None = None,
    drift: float | None = None,
) -> Steady:
    inside = took[(when >= span[0]) & (when < span[1])]
    n = len(inside)
    m = effective_n(inside) if n else 0.0
    level = float(inside.mean()) if n else None
    error = 1.96 * float(inside.std(ddof=1)) / math.sqrt(m) / level if n > 1 and level else None
    lag = first_lag(inside) if n > 1 else 0.0
    return Steady(word, span, 1 - n / len(took), name, groups, n, m, lag, level, error, shift, drift)
