"""Intervals of shares, rates and means from requests that are not independent of each other.

The one idea: requests share a queue and a batch, so what follows each other is alike; a series of n says as much as
n_eff independent ones would. Quantiles and shares take their interval from n_eff, rates and means from a bootstrap
of whole blocks. How often the truth is inside is simulated (tests, `slow`), on independent and on AR(1) series.

Sources: initial sequence of Geyer (Statistical Science 1992); block length of Carlstein's rule for AR(1) (Annals of
Statistics 1986); circular blocks of Politis and Romano (1992).
"""

from __future__ import annotations

import math

import numpy as np

from benchlab.metrics.columns import Bools, Floats
from benchlab.metrics.quantiles import CONFIDENCE, wilson

Interval = tuple[float, float]

LEAST_SERIES = 30
"""Below so many values an autocorrelation is not told from chance: the series counts as independent."""
DRAWS = 999
GROUPS = 500
LEAST_BLOCKS = 10


def autocorrelation(series: Floats, lags: int) -> Floats:
    """Correlation of a series with itself shifted by 0..lags. All 1, 0, 0, ... where it does not vary."""
    from scipy.fft import irfft, next_fast_len, rfft

    centred = series - series.mean()
    power = float(centred @ centred)
    if power <= 0 or len(series) < 2:
        return np.concatenate([[1.0], np.zeros(lags)])
    size = next_fast_len(len(series) + lags + 1, real=True)
    spectrum = np.abs(rfft(centred, size)) ** 2
    return np.asarray(irfft(spectrum, size)[: lags + 1] / power, dtype=np.float64)


def first_lag(series: Floats) -> float:
    """Correlation of each value with the one before it; 0 where there is no spread."""
    centred = series - series.mean()
    power = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0


def effective_n(series: Floats) -> float:
    """How many independent values would say as much of the mean as this series in time order: at most its length.

    Where neighbours are not significantly alike (2 / sqrt n) it is the length itself. NaN is not allowed.
    """
    n = len(series)
    if n < LEAST_SERIES or first_lag(series) <= 2 / math.sqrt(n):
        return float(n)
    lags = min(n // 3, 2000)
    lags -= (lags + 1) % 2
    rho = autocorrelation(series, lags)
    pairs = rho[0::2] + rho[1::2]
    negative = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: negative[0]] if len(negative) else pairs)
    tau = max(1.0, 2 * float(pairs.sum()) - 1)
    # the estimate of each correlation is low by about tau / n, the mean being taken from the same series
    tau = min(tau / max(1 - 2 * tau / n, 0.5), n / 2)
    return n / max(1.0, tau)


def clopper_pearson(hits: float, n: float, confidence: float = CONFIDENCE) -> Interval | None:
    """The exact interval of a share: never covers less than it says. None where n is 0; fractions are n_eff's."""
    from scipy.special import betaincinv

    if n <= 0:
        return None
    tail = (1 - confidence) / 2
    low = 0.0 if hits <= 0 else float(betaincinv(hits, n - hits + 1, tail))
    high = 1.0 if hits >= n else float(betaincinv(hits + 1, n - hits, 1 - tail))
    return low, high


def share_intervals(hits: Bools) -> tuple[Interval | None, Interval | None]:
    """(Wilson's interval, the exact one) of the share of hits, in time order, each from n_eff of them."""
    n = len(hits)
    if not n:
        return None, None
    m = effective_n(hits.astype(np.float64))
    scaled = float(hits.sum()) * m / n
    return wilson(scaled, m), clopper_pearson(scaled, m)


def mean_interval(sums: Floats, counts: Floats | None = None, *, draws: int = DRAWS) -> Interval | None:
    """95% interval of sum(sums) / sum(counts), from items in time order (counts: 1 each); None below ten items.

    Seeded, so that the same records always give the same interval.
    """
    if len(sums) < LEAST_BLOCKS:
        return None
    weights = np.ones(len(sums)) if counts is None else counts
    if len(sums) > GROUPS:
        edges = np.linspace(0, len(sums), GROUPS + 1).astype(np.int64)[:-1]
        sums, weights = np.add.reduceat(sums, edges), np.add.reduceat(weights, edges)
    total = float(weights.sum())
    if total <= 0:
        return None
    middle = float(sums.sum()) / total
    length = _block_length(sums - middle * weights)
    n, blocks = len(sums), math.ceil(len(sums) / length)
    starts = np.random.default_rng(0).integers(0, n, (draws, blocks))
    drawn = _block_sums(sums, length)[starts].sum(axis=1)
    held = _block_sums(weights, length)[starts].sum(axis=1)
    found = drawn[held > 0] / held[held > 0]
    low, high = np.quantile(found - middle, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    wider = _wider(n, blocks, length)
    spread = float(found.std())
    residuals = sums - middle * weights
    if spread > 0:
        # blocks cannot be long enough for a strong likeness in a short series: never narrower than n_eff says
        m = effective_n(residuals)
        plain = float(residuals.std()) * math.sqrt(n * n / m) / total
        wider = max(wider, _student(m) * plain / spread)
    return middle + float(low) * wider, middle + float(high) * wider


def _block_sums(values: Floats, length: int) -> Floats:
    """The sum of each circular block of `length` that begins at each place."""
    running = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: length - 1]]))])
    return np.asarray(running[length:] - running[:-length])


def _block_length(residuals: Floats) -> int:
    """Longer where neighbours are alike, never so long that there are fewer than ten blocks."""
    n = len(residuals)
    rho = min(max(first_lag(residuals), 0.0), 0.97)
    rule = (math.sqrt(6) * rho / (1 - rho * rho)) ** (2 / 3) * n ** (1 / 3)
    return int(min(max(math.ceil(rule), math.ceil(n ** (1 / 3)), 1), max(1, n // LEAST_BLOCKS)))


def _wider(n: int, blocks: int, length: int) -> float:
    """Blocks are few: Student's factor for them, and what a resampled mean lacks in spread."""
    student = _student(blocks)
    return student * math.sqrt(n / (n - length)) if n > length else student


def _student(n: float) -> float:
    """How much wider Student's interval of n values is than the normal one."""
    from scipy.special import ndtri, stdtrit

    share = (1 + CONFIDENCE) / 2
    return float(stdtrit(max(n - 1, 1.0), share) / ndtri(share))


def parts_of(num_events: int) -> int | None:
    """Into how many equal parts a window with so many events is cut for its rate's interval; None below ten."""
    return int(min(GROUPS, max(num_events // 2, LEAST_BLOCKS))) if num_events >= LEAST_BLOCKS else None


def sums_over_time(when_s: Floats, weights: Floats | None, window_s: float, parts: int) -> Floats:
    """The weights (1 each without them) of the events in each of the equal parts of [0, window_s)."""
    place = np.minimum((when_s * (parts / window_s)).astype(np.int64), parts - 1)
    return np.asarray(np.bincount(place, weights=weights, minlength=parts), dtype=np.float64)


def rate_interval(sums: Floats, window_s: float) -> Interval | None:
    """95% interval of a rate a second, from its sums over equal parts of the window, drawn again in blocks."""
    found = mean_interval(sums * (len(sums) / window_s)) if window_s > 0 else None
    return None if found is None else (max(0.0, found[0]), found[1])
