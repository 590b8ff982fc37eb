"""A rate that changes within a stage, and the arrivals that follow it.

The one idea: an arrival process of rate one, its time rescaled. If R(t) is the number of arrivals due by t, then the
instants R^-1(u) of a process u of rate one have the rate R'(t); so every arrival process works under every curve.
Before its start a curve stays at its first rate (the warm-up), after its end at its last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchlab.errors import UsageError
from benchlab.units import NS_PER_S, parse_duration_ns, parse_rate

Floats = np.ndarray[Any, np.dtype[np.float64]]

LAWS = ("linear", "exp", "step", "sine")
_HINT = "write linear:2..20, exp:2..20, step:2,5,10 or sine:2..20@30s (a period of 30 s), rates in requests a second"
_MAX_STEPS = 1000
_GRID = 4096


@dataclass(frozen=True, slots=True)
class Ramp:
    """How the rate (requests/s) goes over the measured part of a stage. step: equal parts, one a rate; linear, exp,
    sine: between two rates. sine begins and ends a period (`period_ns`, the whole stage if None) at the first.
    """

    law: str
    rates: tuple[float, ...]
    period_ns: int | None = None

    def __str__(self) -> str:
        if self.law == "step":
            return "step:" + ",".join(f"{rate:g}" for rate in self.rates)
        period = "" if self.period_ns is None else f"@{self.period_ns / NS_PER_S:g}s"
        return f"{self.law}:{self.rates[0]:g}..{self.rates[-1]:g}{period}"

    @property
    def mean(self) -> float:
        """Mean rate over the stage (a sine's over whole periods)."""
        first, last = self.rates[0], self.rates[-1]
        if self.law == "step":
            return sum(self.rates) / len(self.rates)
        if self.law == "exp" and first != last:
            return (last - first) / math.log(last / first)
        return (first + last) / 2

    @property
    def peak(self) -> float:
        return max(self.rates)


def parse_ramp(text: str) -> Ramp:
    """'linear:2..20' and the like -> Ramp. Raises UsageError."""
    law, colon, rest = text.partition(":")
    law = {"exponential": "exp", "steps": "step"}.get(law, law)
    if not colon or law not in LAWS:
        raise UsageError(f"'{text}' is no ramp", where="--ramp", hint=_HINT)
    rest, at, period = rest.partition("@")
    if at and law != "sine":
        raise UsageError(f"'{text}': only a sine has a period", where="--ramp", hint=_HINT)
    words = rest.split(",") if law == "step" else rest.split("..")
    if not words[-1] or len(words) > _MAX_STEPS or (law != "step" and len(words) != 2):
        raise UsageError(f"'{text}' is no ramp", where="--ramp", hint=_HINT)
    rates = tuple(parse_rate(word, flag="--ramp") for word in words)
    return Ramp(law, rates, parse_duration_ns(period, flag="--ramp") if at else None)


class RateCurve:
    """R(t) and its inverse for one stage, t in s from its start; rate alone is a constant rate.

    begin_s, span_s: where the ramp begins, and how long it is.
    """

    def __init__(self, rate: float, ramp: Ramp | None = None, *, begin_s: float = 0.0, span_s: float = 0.0) -> None:
        self._ramp, self._begin_s, self._span_s = ramp, begin_s, span_s
        self._first = self._last = rate if ramp is None else ramp.rates[0]
        if ramp is not None:  # a sine need not end where it began
            self._last = float(self.rate(np.asarray([begin_s + span_s]))[0])
            self._total = float(self._within(np.asarray([span_s]))[0])

    def rate(self, t: Floats) -> Floats:
        """The rate at each t."""
        if self._ramp is None:
            return np.full_like(t, self._first, dtype=np.float64)
        x = np.clip(t - self._begin_s, 0.0, self._span_s)
        first, last = self._ramp.rates[0], self._ramp.rates[-1]
        if self._ramp.law == "step":
            index = np.minimum((x / self._span_s * len(self._ramp.rates)).astype(int), len(self._ramp.rates) - 1)
            return np.asarray(np.asarray(self._ramp.rates)[index], dtype=np.float64)
        if self._ramp.law == "exp":
            return np.asarray(first * (last / first) ** (x / self._span_s))
        if self._ramp.law == "sine":
            return np.asarray(first + (last - first) * (1 - np.cos(2 * math.pi * x / self._period_s)) / 2)
        return np.asarray(first + (last - first) * x / self._span_s)

    def due_by(self, t: Floats) -> Floats:
        """R(t): the number of arrivals expected by t."""
        if self._ramp is None:
            return np.asarray(t * self._first)
        x = t - self._begin_s
        inside = self._within(np.clip(x, 0.0, self._span_s))
        before = (self._begin_s + np.minimum(x, 0.0)) * self._first
        return np.asarray(before + inside + np.maximum(x - self._span_s, 0.0) * self._last)

    def when(self, expected: Floats) -> Floats:
        """R^-1: when so many arrivals are expected; `expected` ascending."""
        if self._ramp is None:
            return np.asarray(expected / self._first)
        u = expected - self._begin_s * self._first
        t = np.where(u < 0, expected / self._first, self._begin_s)
        inside = (u >= 0) & (u < self._total)
        t[inside] += self._inverse(u[inside])
        beyond = u >= self._total
        t[beyond] += self._span_s + (u[beyond] - self._total) / self._last
        return np.asarray(t)

    @property
    def _period_s(self) -> float:
        assert self._ramp is not None
        return self._span_s if self._ramp.period_ns is None else self._ramp.period_ns / NS_PER_S

    def _within(self, x: Floats) -> Floats:
        """Arrivals expected in the first x seconds of the ramp."""
        assert self._ramp is not None
        first, last, span = self._ramp.rates[0], self._ramp.rates[-1], self._span_s
        if self._ramp.law == "step":
            knots, totals = self._steps()
            return np.interp(x, knots, totals)
        if self._ramp.law == "exp" and first != last:
            steep = math.log(last / first) / span
            return np.asarray(first * np.expm1(steep * x) / steep)
        if self._ramp.law == "sine":
            half = (last - first) / 2
            turn = 2 * math.pi / self._period_s
            return np.asarray((first + half) * x - half * np.sin(turn * x) / turn)
        return np.asarray(first * x + (last - first) * x * x / (2 * span))

    def _steps(self) -> tuple[Floats, Floats]:
        assert self._ramp is not None
        rates = np.asarray(self._ramp.rates, dtype=np.float64)
        part = self._span_s / len(rates)
        knots = np.arange(len(rates) + 1, dtype=np.float64) * part
        return knots, np.asarray(np.concatenate(([0.0], np.cumsum(rates * part))), dtype=np.float64)

    def _inverse(self, u: Floats) -> Floats:
        """x in the ramp at which u arrivals are expected."""
        assert self._ramp is not None
        first, last, span = self._ramp.rates[0], self._ramp.rates[-1], self._span_s
        if self._ramp.law == "step":
            knots, totals = self._steps()
            return np.interp(u, totals, knots)
        if first == last:
            return np.asarray(u / first)
        if self._ramp.law == "exp":
            steep = math.log(last / first) / span
            return np.asarray(np.log1p(u * steep / first) / steep)
        if self._ramp.law == "linear":
            slope = (last - first) / span  # u = first x + slope x^2 / 2, without the cancellation of a small slope
            return np.asarray(2 * u / (first + np.sqrt(np.maximum(first * first + 2 * slope * u, 0.0))))
        grid = np.linspace(0.0, span, _GRID * max(1, math.ceil(span / self._period_s)) + 1)
        x = np.interp(u, self._within(grid), grid)
        for _ in range(3):  # from so near a start each step doubles the digits
            x = np.clip(x - (self._within(x) - u) / self.rate(x + self._begin_s), 0.0, span)
        return np.asarray(x)
