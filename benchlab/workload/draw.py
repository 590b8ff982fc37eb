"""Chance, handed in as a seed: the same numbers on every machine and in every version.

The one idea: only `random.Random.random` is used, whose stream Python promises to keep, with inverse transforms of our
own (draw_math). It must not know what is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from benchlab.workload import draw_math
from benchlab.workload.draw_math import Floats

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

    def units(self, num: int) -> Floats:
        """`num` numbers in [0, 1)."""
        return np.array([self._next() for _ in range(num)])

    def normals(self, num: int) -> Floats:
        """`num` standard normal values."""
        return np.asarray(draw_math.normal(np.maximum(self.units(num), 1e-12)))

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

    def zipf(self, num: int, choices: int, slant: float) -> Any:
        """`num` places in [0, choices), place k with a weight of (k + 1) ** -slant (0: all alike)."""
        weights = draw_math.exp(-slant * draw_math.log(np.arange(1, choices + 1)))
        upto = np.cumsum(weights)
        return np.minimum(np.searchsorted(upto, self.units(num) * upto[-1], "right"), choices - 1)


def ranked(latent: Floats) -> Floats:
    """Values as shares in (0, 1) by their rank: the same order, spread evenly (equal ones by place).

    So any structure can be drawn first, and then be given a published distribution exactly.
    """
    shares = np.empty(len(latent))
    shares[np.argsort(latent, kind="stable")] = (np.arange(len(latent)) + 0.5) / len(latent)
    return shares


def values_at(quantiles: Quantiles, shares: Any) -> Floats:
    """The values at shares, between the known ones on a straight line in the logarithm."""
    known = np.array([share for share, _ in quantiles], dtype=np.float64)
    values = draw_math.log(np.array([value for _, value in quantiles], dtype=np.float64))
    return np.asarray(draw_math.exp(draw_math.along(shares, known, values)))


def tokens_at(quantiles: Quantiles, shares: Any) -> Any:
    """`values_at` as whole tokens, at least 1."""
    return np.maximum(1, np.rint(values_at(quantiles, shares))).astype(np.int64)


def at(quantiles: Quantiles, share: float) -> int:
    """The tokens at one share."""
    return int(tokens_at(quantiles, share))


def lognormal(share: float, median: float, sigma: float, low: int, high: int) -> int:
    """The integer at a share of a lognormal, kept between low and high."""
    return round(min(high, max(low, median * float(draw_math.exp(sigma * draw_math.normal(share))))))


def exponential(shares: Any) -> Floats:
    """Values of mean 1 at shares in (0, 1)."""
    return np.asarray(-draw_math.log(1 - np.asarray(shares, np.float64)))


def weibull(shares: Any, shape: float) -> Floats:
    """Values of scale 1 at shares in (0, 1); the shape sets the CV (1: exponential, below 1: bursty)."""
    return np.asarray(draw_math.exp(draw_math.log(exponential(shares)) / shape))
