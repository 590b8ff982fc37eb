"""Chance, handed in as a seed: the same numbers on every machine and in every version.

Only `random.Random.random` is used, whose stream Python promises to keep, with inverse transforms of our own.
It must not know what is drawn.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")
Quantiles = Sequence[tuple[float, float]]
"""(share, value) from share 0 to share 1, both rising: a distribution by its published percentiles."""


class Draw:
    """Seeded chance; seed 0 is a seed. `name` keeps the streams of one recipe apart."""

    def __init__(self, seed: int, name: str) -> None:
        self._next = random.Random(f"{name}\0{seed}").random  # texts are seeded by SHA-512, alike everywhere

    def unit(self) -> float:
        """A number in [0, 1)."""
        return self._next()

    def below(self, limit: int) -> int:
        """An integer in [0, limit)."""
        return min(limit - 1, int(self._next() * limit))

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """One of the choices, evenly or by weight."""
        if weights is None:
            return choices[self.below(len(choices))]
        point = self._next() * sum(weights)
        for choice, weight in zip(choices, weights, strict=True):
            point -= weight
            if point < 0:
                return choice
        return choices[-1]

    def shuffled(self, values: list[T]) -> list[T]:
        """The values in another order (Fisher and Yates)."""
        values = list(values)
        for place in range(len(values) - 1, 0, -1):
            other = self.below(place + 1)
            values[place], values[other] = values[other], values[place]
        return values

    def strata(self, num: int) -> list[float]:
        """`num` shares in (0, 1), one from each of `num` equal parts, shuffled: their quantiles are near at once."""
        return self.shuffled([(place + max(self._next(), 1e-9)) / num for place in range(num)])


def at(quantiles: Quantiles, share: float) -> int:
    """The value at a share, between the known ones on a straight line in the logarithm."""
    right = min(max(1, bisect.bisect_left(quantiles, (share,))), len(quantiles) - 1)
    (low_share, low), (high_share, high) = quantiles[right - 1], quantiles[right]
    along = (share - low_share) / (high_share - low_share)
    return max(1, round(math.exp(math.log(low) + along * (math.log(high) - math.log(low)))))


def lognormal(share: float, median: float, sigma: float, low: int, high: int) -> int:
    """The integer at a share of a lognormal, kept between low and high."""
    return round(min(high, max(low, median * math.exp(sigma * NormalDist().inv_cdf(share)))))


def weibull_gap(share: float, shape: float) -> float:
    """A gap of mean 1 at a share; the shape sets the CV (1: Poisson, below 1: bursty)."""
    return float((-math.log1p(-share)) ** (1 / shape) / math.gamma(1 + 1 / shape))


def hyper_gap(share: float, other: float, cv: float) -> float:
    """A gap of mean 1 with a CV above 1: two exponentials with balanced means; `other` chooses between them."""
    lean = math.sqrt((cv * cv - 1) / (cv * cv + 1))
    short = (1 + lean) / 2
    weight = short if other < short else 1 - short
    return -math.log1p(-share) / (2 * weight)
