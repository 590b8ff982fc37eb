"""Is a series rising? Mann-Kendall's test with Sen's slope: no shape is assumed, one outlier decides nothing.

Long series are thinned to medians of equal groups first, which bounds the work and says the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchlab.metrics.columns import Floats

MAX_POINTS = 200


@dataclass(frozen=True, slots=True)
class Trend:
    """p: chance of so strong a rise in a series without one (one-sided). slope: Sen's, units of y a unit of x.

    growth: the slope over the whole span of x. n: points that were compared.
    """

    p: float
    slope: float
    growth: float
    n: int


def rising(x: Floats, y: Floats) -> Trend | None:
    """The trend of y over x (x rising). Infinite y are the largest of all. None below 5 points or without spread."""
    x, y = _thin(x, y)
    n = len(y)
    if n < 5:
        return None
    _, rank, ties = np.unique(y, return_inverse=True, return_counts=True)
    first, second = np.triu_indices(n, 1)
    score = float(np.sign(rank[second].astype(np.int64) - rank[first]).sum())
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0:
        return None
    z = (score - math.copysign(1, score)) / math.sqrt(variance) if score else 0.0
    finite = np.isfinite(y)
    both = finite[first] & finite[second] & (x[second] > x[first])
    slopes = (y[second][both] - y[first][both]) / (x[second][both] - x[first][both])
    slope = float(np.median(slopes)) if len(slopes) else math.inf
    return Trend(0.5 * math.erfc(z / math.sqrt(2)), slope, slope * float(x[-1] - x[0]), n)


def _thin(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    if len(y) <= MAX_POINTS:
        return x, y
    groups = np.array_split(np.arange(len(y)), MAX_POINTS)
    middle = np.array([group[len(group) // 2] for group in groups])
    return x[middle], np.array([np.median(y[group]) for group in groups])
