"""Percentiles with n and an interval, and what a sample of this size cannot say.

Exact, from all samples, linear between order statistics (numpy's `linear`). The interval is distribution-free: the
number of samples below the true quantile is binomial, so two order statistics bound it, whatever the shape. Where n
is too small one of them does not exist: the bound is None and the percentile is *indicative*.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from benchlab.metrics.columns import Floats

METHOD = "linear"
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Quantile:
    """One percentile: value and its two bounds in the unit of the samples; a bound is None where n is too small."""

    value: float
    low: float | None
    high: float | None

    @property
    def indicative(self) -> bool:
        """True when the interval is not closed on both sides: nothing can be proved with it."""
        return self.low is None or self.high is None


def quantile(ordered: Floats, share: float) -> float:
    """The `share` quantile (0..1) of samples in rising order, linear between order statistics."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = float(ordered[below]), float(ordered[above])
    step = place - below
    # From the nearer end, as numpy does: so the result never leaves [low, high] by rounding.
    return low + (high - low) * step if step < 0.5 else high - (high - low) * (1 - step)


def interval_ranks(n: int, share: float, confidence: float = CONFIDENCE) -> tuple[int | None, int | None]:
    """Ranks (1 is the smallest) of the two order statistics that bound the `share` quantile; None if there is none.

    Each tail is missed with at most (1 - confidence) / 2.
    """
    if n < 1:
        return None, None
    tail = (1 - confidence) / 2
    # P(fewer than `low` below) <= tail, and no higher rank's is
    low = bisect_left(range(n), True, key=lambda k: _at_most(k, n, share) > tail)
    high = bisect_left(range(n), True, key=lambda k: _at_most(k, n, share) >= 1 - tail) + 1
    return (low if low >= 1 else None), (high if high <= n else None)


def _at_most(k: int, n: int, share: float) -> float:
    """P(X <= k) for X binomial(n, share), k below n."""
    # scipy.special, not scipy.stats: the same number, and two seconds less to import.
    from scipy.special import bdtr

    return float(bdtr(k, n, share))


def quantile_with_interval(ordered: Floats, share: float, independent: int | None = None) -> Quantile:
    """The quantile and its 95% interval, from samples in rising order.

    independent: how many of them count as independent (gaps of one request do not: then the number of requests), which
    widens the interval to that of so many samples, as if the gaps of a request all said the same.
    """
    n = len(ordered)
    m = min(n, independent) if independent is not None else n
    low, high = interval_ranks(m, share)
    low_at = None if low is None else math.floor((low - 1) * n / m)
    high_at = None if high is None else min(n, math.ceil(high * n / m)) - 1
    value = quantile(ordered, share)
    # Interpolation may step over a bound that is the very next sample; no interval leaves out its value.
    return Quantile(
        value,
        None if low_at is None else min(value, float(ordered[low_at])),
        None if high_at is None else max(value, float(ordered[high_at])),
    )


def samples_needed(share: float, confidence: float = CONFIDENCE) -> int:
    """The least n whose interval bounds the `share` quantile on both sides (p50: 6, p99: 368). 0 < share < 1."""
    tail = (1 - confidence) / 2
    n = max(1, math.floor(math.log(tail) / math.log(max(share, 1 - share))))
    while None in interval_ranks(n, share, confidence):
        n += 1
    return n


def wilson(hits: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Wilson's score interval of a share, hits of n; None where n is 0."""
    from scipy.special import ndtri

    if n == 0:
        return None
    z = float(ndtri((1 + confidence) / 2))
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At the ends the exact bound is the end itself; rounding may miss it by one bit.
    return (0.0 if hits == 0 else max(0.0, middle - half)), (1.0 if hits == n else min(1.0, middle + half))


def ordered(values: Floats) -> Floats:
    """The samples in rising order."""
    return np.sort(values)
