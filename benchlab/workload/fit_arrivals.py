"""Arrival times of recipes: gaps by their percentiles, in runs, and rates that drift.

The one idea: gaps come from strata of their distribution, so rate and CV are met at once; what makes counts disperse
over seconds and minutes is the order of the gaps, drawn apart. Times in seconds, made of exact operations only
(draw_math). It must not know what arrives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchlab.workload.draw import Draw, Quantiles, exponential, ranked, values_at
from benchlab.workload.draw_math import Floats, exp

TICK_S = 0.001
"""Times are written to the millisecond."""


def times(gaps: Floats) -> list[float]:
    """Arrival times, the first at 0, from the gaps after each."""
    at = np.concatenate(([0.0], np.cumsum(gaps)[:-1])) if len(gaps) else gaps
    return [round(float(value), 3) for value in at]


def poisson(draw: Draw, num: int, rate: float) -> list[float]:
    """Arrivals at random at a steady rate (1/s)."""
    return times(exponential(draw.strata(num)) / rate)


def drifting(draw: Draw, num: int, rate: float, spread: float, lasting: int) -> list[float]:
    """Poisson arrivals whose rate drifts: `spread` is the deviation of its logarithm, `lasting` how many arrivals a
    drift lasts."""
    drift = exp(spread * swing(draw, num, 1 - 1 / lasting))
    return times(exponential(draw.strata(num)) / (rate * (1 + spread * spread) * drift))


def runs(draw: Draw, num: int, gaps: Quantiles, weight: float, keep: float) -> list[float]:
    """Arrivals whose gaps have these quantiles (s), short ones near short ones.

    weight: the share of a gap's normal score that it has in common with its neighbours; keep: how much of that common
    part lasts from one gap to the next. The weight leaves the CV alone and raises the dispersion of counts.
    """
    score = math.sqrt(weight) * swing(draw, num, keep) + math.sqrt(1 - weight) * draw.normals(num)
    return times(values_at(gaps, ranked(score)))


def swing(draw: Draw, num: int, keep: float) -> Floats:
    """`num` standard normal values, each correlated by `keep` with the one before."""
    fresh, rest = draw.normals(num), math.sqrt(1 - keep * keep)
    values, now = [], 0.0
    for place, new in enumerate(fresh.tolist()):
        now = keep * now + rest * new if place else new
        values.append(now)
    return np.array(values)


def merged(streams: list[Floats]) -> tuple[list[float], Any]:
    """The times of all streams in order, from the first on, and the stream of each."""
    at, of = np.concatenate(streams), np.concatenate([np.full(len(one), place) for place, one in enumerate(streams)])
    order = np.argsort(at, kind="stable")
    at = at[order] - at[order[0]]
    return [round(float(value), 3) for value in at], of[order]
