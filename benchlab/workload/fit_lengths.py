"""Lengths by a word: `512`, `lognormal:1000:0.8`, `quantiles:0.5=120,0.99=900`: a distribution of tokens.

The one idea: a distribution is its quantile function, so that strata give near-exact percentiles at once and ranks can
carry any correlation into it. It must not know what the lengths belong to.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchlab.errors import UsageError
from benchlab.workload import draw_math
from benchlab.workload.draw import Draw, Quantiles, ranked, tokens_at
from benchlab.workload.draw_math import Floats
from benchlab.workload.item import MAX_TOKENS

HELP = (
    "N | uniform:LOW:HIGH | normal:MEAN:SD | lognormal:MEDIAN:SIGMA | gamma:MEAN:CV | "
    "quantiles:SHARE=TOKENS,... | empirical:FILE; each may end in @LOW..HIGH"
)
"""The words of a distribution, for the command line."""

_MOST_NUMBERS = 5_000_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths in tokens. `at`: shares in (0, 1) to whole tokens of 1 and more. `text`: its word."""

    at: Callable[[Any], Any]
    text: str
    fixed: int | None = None


def parse_lengths(text: str, *, where: str) -> Lengths:
    """A distribution from its word (HELP). Raises UsageError naming the flag and what is wrong."""
    body, _, limits = text.partition("@")
    low, high = _limits(limits, where) if "@" in text else (1, MAX_TOKENS)
    kind, colon, rest = body.partition(":")
    if not colon:
        tokens = _number(kind, where)
        if tokens != int(tokens) or not 1 <= tokens <= MAX_TOKENS:
            raise UsageError(f"expected a length >= 1, got {kind}", where=where, hint="give tokens, for example 512")
        return Lengths(lambda shares: np.full(np.shape(shares), int(tokens)), text, int(tokens))
    made = _KINDS.get(kind)
    if made is None:
        raise UsageError(f"no distribution '{kind[:40]}'", where=where, hint=HELP)
    quantile = made(rest, where)

    def at(shares: Any) -> Any:
        return np.clip(np.rint(quantile(shares)), low, high).astype(np.int64)

    return Lengths(at, text)


def of_quantiles(quantiles: Quantiles) -> Lengths:
    """Lengths by published percentiles."""
    return Lengths(lambda shares: tokens_at(quantiles, shares), "a table of quantiles")


def pair_shares(draw: Draw, num: int, correlation: float) -> tuple[Floats, Floats]:
    """Two shares for each of `num` items, each evenly spread, their normal scores correlated as given (-1 to 1)."""
    first, own = draw.normals(num), draw.normals(num)
    second = correlation * first + math.sqrt(1 - correlation * correlation) * own
    return ranked(first), ranked(second)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"expected a number, got '{text[:40]}'", where=where, hint=HELP)
    return value


def _two(text: str, where: str) -> tuple[float, float]:
    parts = text.split(":")
    if len(parts) != 2:
        raise UsageError(f"expected two numbers, got '{text[:40]}'", where=where, hint=HELP)
    return _number(parts[0], where), _number(parts[1], where)


def _limits(text: str, where: str) -> tuple[int, int]:
    low, dots, high = text.partition("..")
    first = int(_number(low or "1", where))
    last = int(min(MAX_TOKENS, _number(high, where))) if high else MAX_TOKENS
    if not dots or not 1 <= first <= last:
        raise UsageError(f"'@{text[:40]}' is not a span of lengths", where=where, hint="write @LOW..HIGH, LOW >= 1")
    return first, last


def _check(good: bool, what: str, where: str) -> None:
    if not good:
        raise UsageError(what, where=where, hint=HELP)


def _uniform(text: str, where: str) -> Callable[[Any], Any]:
    low, high = _two(text, where)
    _check(1 <= low <= high <= MAX_TOKENS, f"expected 1 <= LOW <= HIGH, got {text[:40]}", where)
    return lambda shares: np.floor(low + np.asarray(shares) * (high - low + 1)).clip(low, high)


def _normal(text: str, where: str) -> Callable[[Any], Any]:
    mean, deviation = _two(text, where)
    _check(1 <= mean <= MAX_TOKENS and 0 <= deviation <= MAX_TOKENS, f"expected MEAN >= 1, SD >= 0, got {text}", where)
    return lambda shares: mean + deviation * draw_math.normal(shares)


def _lognormal(text: str, where: str) -> Callable[[Any], Any]:
    median, sigma = _two(text, where)
    _check(1 <= median <= MAX_TOKENS and 0 <= sigma <= 10, f"expected MEDIAN >= 1, SIGMA 0 to 10, got {text}", where)
    return lambda shares: median * draw_math.exp(sigma * draw_math.normal(shares))


def _gamma(text: str, where: str) -> Callable[[Any], Any]:
    mean, cv = _two(text, where)
    _check(1 <= mean <= MAX_TOKENS and 0.01 <= cv <= 4, f"expected MEAN >= 1, CV 0.01 to 4, got {text[:40]}", where)
    return lambda shares: mean * draw_math.gamma(shares, 1 / (cv * cv))


def _quantiles(text: str, where: str) -> Callable[[Any], Any]:
    points: list[tuple[float, float]] = []
    for part in text.split(","):
        share, _, value = part.partition("=")
        points.append((_number(share, where), _number(value, where)))
    rising = all(one[0] < two[0] and one[1] <= two[1] for one, two in itertools.pairwise(points))
    sound = all(0 <= share <= 1 and 1 <= value <= MAX_TOKENS for share, value in points)
    _check(rising and sound, "expected SHARE=TOKENS pairs, shares from 0 to 1 and both rising", where)
    if points[0][0] > 0:
        points.insert(0, (0.0, points[0][1]))
    if points[-1][0] < 1:
        points.append((1.0, points[-1][1]))
    return lambda shares: tokens_at(points, shares)


def _empirical(text: str, where: str) -> Callable[[Any], Any]:
    """The numbers of a file, one a line: each is drawn as often as it stands there."""
    try:
        words = Path(text).read_text(encoding="utf-8-sig").split()
    except (OSError, ValueError) as fault:
        raise UsageError(
            f"cannot be read: {fault}", where=f"{where} empirical:{text[:200]}", hint="name a file of one length a line"
        ) from None
    _check(0 < len(words) <= _MOST_NUMBERS, f"expected 1 to {_MOST_NUMBERS:,} numbers in the file", where)
    values = np.sort(np.array([_number(word, where) for word in words]))
    _check(values[0] >= 1 and values[-1] <= MAX_TOKENS, f"expected lengths >= 1, got {values[0]:g}", where)
    return lambda shares: values[np.minimum((np.asarray(shares) * len(values)).astype(np.int64), len(values) - 1)]


_KINDS: dict[str, Callable[[str, str], Callable[[Any], Any]]] = {
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "gamma": _gamma,
    "quantiles": _quantiles,
    "empirical": _empirical,
}
