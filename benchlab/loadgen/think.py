"""Think times: how long a user pauses after an answer, by a law and a seed.

The one idea: a pause is a function of (seed, stage, user, how many pauses before), so that neither the number of
workers nor the order of answers changes any.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from random import Random

from benchlab.errors import UsageError
from benchlab.units import NS_PER_S, parse_duration_ns

_HINT = "write 2s, exp:2s, uniform:1s..3s or lognormal:2s,0.5 (median, sigma)"
_LONGEST_NS = 24 * 3600 * NS_PER_S


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """A law of pauses, ns. constant: `first`; exp: mean `first`; uniform: `first` to `second`; lognormal: median
    `first`, `sigma` of the logarithm. No pause is longer than a day.
    """

    law: str = "constant"
    first: int = 0
    second: int = 0
    sigma: float = 0.0

    def __str__(self) -> str:
        first = f"{self.first / NS_PER_S:g}s"
        words = {
            "constant": first,
            "exp": f"exp:{first}",
            "uniform": f"uniform:{first}..{self.second / NS_PER_S:g}s",
            "lognormal": f"lognormal:{first},{self.sigma:g}",
        }
        return words[self.law]

    def draw(self, seed: int, stage: int, user: int, turn: int) -> int:
        """The pause in ns."""
        if self.law == "constant":
            return self.first
        key = hashlib.blake2b(f"think:{seed}:{stage}:{user}:{turn}".encode(), digest_size=8).digest()
        chance = Random(int.from_bytes(key, "big"))
        if self.law == "exp":
            pause = chance.expovariate(1.0) * self.first
        elif self.law == "uniform":
            pause = chance.uniform(self.first, self.second)
        else:
            pause = self.first * math.exp(min(chance.gauss(0.0, 1.0) * self.sigma, 50.0))
        return min(round(pause), _LONGEST_NS)


def parse_think(text: str) -> ThinkTime:
    """'2s', 'exp:2s', 'uniform:1s..3s', 'lognormal:2s,0.5' -> ThinkTime. Raises UsageError."""
    law, colon, rest = text.partition(":")
    if not colon:
        return ThinkTime("constant", parse_duration_ns(text, flag="--think", allow_zero=True))
    if law in ("exp", "exponential"):
        return ThinkTime("exp", parse_duration_ns(rest, flag="--think"))
    if law == "uniform":
        low, dots, high = rest.partition("..")
        if dots:
            first = parse_duration_ns(low, flag="--think", allow_zero=True)
            second = parse_duration_ns(high, flag="--think")
            if first <= second:
                return ThinkTime("uniform", first, second)
    if law == "lognormal":
        median, comma, sigma = rest.partition(",")
        if comma and _number(sigma) is not None and 0 <= (_number(sigma) or 0) <= 5:
            return ThinkTime("lognormal", parse_duration_ns(median, flag="--think"), sigma=float(sigma))
    raise UsageError(f"'{text}' is no think time", where="--think", hint=_HINT)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
