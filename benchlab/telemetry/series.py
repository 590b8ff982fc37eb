"""What a counter or a histogram says over a window: increases with resets, percentiles with their bounds.

Pure: numbers in, numbers with their caveats out. A reset makes an increase a lower bound, never a negative; a rank
in the open-ended bucket gives a bound, never the last finite edge as if it had been measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Increase:
    """value: how much a counter grew. resets: how often it went down; with any, value is a lower bound."""

    value: float | None
    resets: int = 0

    @property
    def lower_bound(self) -> bool:
        """True when what happened around a reset cannot be known."""
        return self.resets > 0


def increase(readings: Iterable[float | None]) -> Increase:
    """The growth of a counter over its readings in order (C79: 100, 160, 20, 50 is at least 110).

    After a reset it has counted from zero, so the new reading is growth. Fewer than two readings: None. Readings
    that are missing or not finite are passed over.
    """
    values = [value for value in readings if value is not None and math.isfinite(value)]
    if len(values) < 2:
        return Increase(None)
    grown, resets = 0.0, 0
    for before, after in pairwise(values):
        if after < before:
            resets += 1
            grown += after
        else:
            grown += after - before
    return Increase(grown, resets)


@dataclass(frozen=True, slots=True)
class BucketPercentile:
    """An estimate from buckets. low, high: the edges between which the true value lies (high None: open-ended).

    value: linear inside the bucket, None when there are no observations or the rank falls into the open-ended bucket.
    """

    value: float | None
    low: float | None
    high: float | None
    count: float
    reason: str = ""


def _not_a_histogram(edges: Sequence[tuple[float, float]]) -> str:
    if not edges or edges[-1][0] != math.inf:
        return "the histogram has no +Inf bucket"
    if not edges[-1][1] > 0:
        return "no observations"
    if any(after[1] < before[1] for before, after in pairwise(edges)):
        return "the buckets are not cumulative"
    return ""


def bucket_percentile(buckets: Mapping[float, float] | Sequence[tuple[float, float]], share: float) -> BucketPercentile:
    """A percentile (share 0.99) from cumulative buckets {upper edge: observations up to it}, +Inf among them.

    C83: {0.5: 60, 1: 90, 10: 97, inf: 100} has a p95 of about 7.43, known to lie between 1 and 10, and a p99 above
    10. For a window give the differences of the buckets over it (`bucket_increase`).
    """
    edges = sorted(buckets.items() if isinstance(buckets, Mapping) else buckets)
    broken = _not_a_histogram(edges)
    if broken:
        return BucketPercentile(None, None, None, edges[-1][1] if edges else 0.0, broken)
    total = edges[-1][1]
    rank, below, low = share * total, 0.0, 0.0
    for edge, count in edges:
        if count >= rank and count > below:
            if edge == math.inf:
                return BucketPercentile(None, low, None, total, f"above {low:g}, the last finite edge")
            if edge <= 0:  # a first edge below zero has no lower one to interpolate from
                return BucketPercentile(edge, None, edge, total, "estimate from buckets")
            value = low + (edge - low) * (rank - below) / (count - below)
            return BucketPercentile(value, low, edge, total, f"estimate from buckets, within {low:g}-{edge:g}")
        below, low = count, edge
    return BucketPercentile(None, low, None, total, "the rank lies beyond the buckets")


def bucket_increase(before: Mapping[float, float], after: Mapping[float, float]) -> tuple[dict[float, float], bool]:
    """Buckets of what was observed between two readings, and whether a reset lies between (then: a lower bound)."""
    reset = any(after.get(edge, 0.0) < count for edge, count in before.items())
    if reset:
        return dict(after), True
    return {edge: count - before.get(edge, 0.0) for edge, count in after.items()}, False


def parse_edge(labels: str) -> float | None:
    """The upper edge from a bucket Sample's labels (le="0.5"), None when there is none."""
    if not (labels.startswith('le="') and labels.endswith('"')):
        return None
    try:
        return float(labels[4:-1])
    except ValueError:
        return None


def count_mismatch(server: float, client: float, *, tolerance: float = 0.0) -> str | None:
    """Why the server's count of requests does not fit the client's, None when it does (C82).

    tolerance: share of the client's count; other clients' requests, and requests that the server does not count
    (broken off), are the innocent causes.
    """
    if abs(server - client) <= tolerance * client:
        return None
    text = f"the server counts {server:g} requests, the client sent {client:g}"
    times = server / client if client else 0.0
    if times >= 2 and math.isclose(times, round(times), rel_tol=1e-9):
        text += f": exactly {round(times)} times as many, as if one server was scraped {round(times)} times"
    return text
