"""How many samples a claim about a percentile needs, and how much longer a run must be to have them.

The one idea: a limit on a percentile is proved when so few misses would be unlikely if more than its share missed: of
n requests with t misses, the chance of t or fewer is binomial. With t = 1, one request may be thrown away, which is
what a *reported* percentile asks for. The rule is MLPerf's early stopping (confidence 99%, tolerance 0), worked out
here from the binomial distribution. It must not know what is measured.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

CONFIDENCE = 0.99
MOST = 10**9
"""Beyond so many samples nothing is asked for: the limit lies where the figure is."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether n samples with so many misses prove it; needed: samples that would at this share of misses.

    needed is None where no number would: as many miss as may.
    """

    n: float
    misses: float
    proven: bool
    needed: int | None

    def longer_s(self, per_second: float) -> float | None:
        """Seconds of more load at the rate at which these samples came; 0 if proven, None where none is enough."""
        if self.proven:
            return 0.0
        if self.needed is None or per_second <= 0:
            return None
        return max(0.0, self.needed - self.n) / per_second


def chance_of_so_few(n: float, misses: float, share: float) -> float:
    """Chance of at most `misses` of n when 1 - share of all miss."""
    from scipy.special import betainc

    if n <= misses:
        return 1.0
    return float(betainc(n - misses, misses + 1, share))


def proves(n: float, misses: float, share: float, confidence: float = CONFIDENCE) -> bool:
    """Do so few misses among n prove that at most 1 - share miss?"""
    return chance_of_so_few(n, misses, share) <= 1 - confidence


def samples_to_prove(share: float, misses: int = 0, confidence: float = CONFIDENCE) -> int:
    """The least n that proves the `share` quantile with so many misses (p99: 459 with none, 662 with one)."""
    return _least(lambda n: proves(n, misses, share, confidence), misses + 1)


def samples_to_report(share: float) -> int:
    """The least n from which a percentile is reported without a mark by MLPerf's rule: one sample may be discarded."""
    return samples_to_prove(share, 1)


def proof(n: float, misses: float, share: float, confidence: float = CONFIDENCE) -> Proof:
    """What n independent samples with so many misses say of the `share` quantile; fractions are an effective n's."""
    if n > 0 and proves(n, misses, share, confidence):
        return Proof(n, misses, True, math.ceil(n))
    part = misses / n if n > 0 else 0.0
    if part >= 1 - share:
        return Proof(n, misses, False, None)
    needed = _least(lambda m: proves(m, part * m, share, confidence), max(1, math.floor(n)))
    return Proof(n, misses, False, needed if needed < MOST else None)


def _least(holds: Callable[[int], bool], start: int) -> int:
    """The least n from `start` on for which a condition holds that holds from there on; MOST if none does."""
    below, above = start - 1, start
    while not holds(above):
        if above >= MOST:
            return MOST
        below, above = above, min(2 * above, MOST)
    return bisect_left(range(above), True, below + 1, key=holds)


def in_words(seconds: float) -> str:
    """'9 min 12 s', '2 h 5 min', '40 s'; upwards, so that it is enough."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = math.ceil(whole / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
