"""Requests in flight over time: a level is weighted by how long it lasted, never by how many requests saw it.

The one idea: the level is a staircase made of the instants at which requests entered and left; its mean, its
quantiles and its mean in each part of the window are areas under it, exact. It must not know why the level is what
it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchlab.metrics.columns import Columns, Floats
from benchlab.metrics.run import little, stay
from benchlab.metrics.window import Window

PARTS = 60
SHARES = (0.5, 0.9, 0.99)


def staircase(c: Columns, w: Window) -> tuple[Floats, Floats]:
    """(instants in ns, from w0 to w1; the level from each of them to the next)."""
    entered, left = stay(c, w)
    sent = ~np.isnan(entered)
    entered, left = entered[sent], left[sent]
    base = float(((entered <= w.w0_ns) & (left > w.w0_ns)).sum())
    come = entered[(entered > w.w0_ns) & (entered < w.w1_ns)]
    gone = left[(left > w.w0_ns) & (left < w.w1_ns)]
    when = np.concatenate([come, gone])
    step = np.concatenate([np.ones(len(come)), -np.ones(len(gone))])
    order = np.argsort(when, kind="stable")
    instants = np.concatenate([[float(w.w0_ns)], when[order], [float(w.w1_ns)]])
    return instants, base + np.concatenate([[0.0], np.cumsum(step[order])])


def in_flight(c: Columns, w: Window) -> dict[str, Any]:
    """Mean, time-weighted quantiles, peak, and the mean in equal parts of the window; with Little's law beside it."""
    instants, level = staircase(c, w)
    lasting = np.diff(instants)
    area = np.concatenate([[0.0], np.cumsum(level * lasting)])
    edges = np.linspace(w.w0_ns, w.w1_ns, PARTS + 1)
    parts = np.diff(np.interp(edges, instants, area)) / np.diff(edges)
    order = np.argsort(level, kind="stable")
    until = np.cumsum(lasting[order])
    found: dict[str, Any] = {"mean": area[-1] / (w.w1_ns - w.w0_ns), "max": peak_of(level, lasting)}
    for share in SHARES:
        at = min(int(np.searchsorted(until, share * until[-1], side="left")), len(level) - 1)
        found[f"p{share * 100:g}"] = float(level[order][at])
    found["series"] = {"from_ns": w.w0_ns, "step_s": w.seconds / PARTS, "mean": [float(part) for part in parts]}
    law = little(c, w)
    found["little"] = law and {
        "rate": law.rate,
        "stay_s": law.stay_s,
        "product": law.rate * law.stay_s,
        "disagreement": law.disagreement,
        "long_enough": law.long_enough,
    }
    return found


def peak_of(level: Floats, lasting: Floats) -> float:
    """The highest level that lasted at all."""
    return float(level[lasting > 0].max(initial=0.0))


def in_flight_peak(c: Columns, w: Window) -> float | None:
    """The most requests in flight at once inside the window."""
    instants, level = staircase(c, w)
    return peak_of(level, np.diff(instants))
