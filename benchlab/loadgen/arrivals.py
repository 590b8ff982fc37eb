"""Arrival processes: the due instants of an open loop, all fixed before time zero, from a seed that is handed in.

constant: truly even. poisson: exponential gaps. gamma:CV: gaps of the same mean with coefficient of variation CV
(1 is Poisson, 0 is constant, above 1 is bursty). weibull:SHAPE: Weibull gaps (1 is Poisson, below 1 heavy-tailed).
mmpp: Poisson arrivals whose rate switches between two levels by chance: bursts. trace: the workload's own times.

Each is made at rate one and stretched to the rate that is wanted, constant or a ramp (`rate_curve`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchlab.errors import UsageError
from benchlab.loadgen.rate_curve import Floats, RateCurve
from benchlab.units import NS_PER_S, parse_duration_ns, parse_share

_MAX_ARRIVALS = 50_000_000
_KINDS = "constant, poisson, gamma:CV, weibull:SHAPE, mmpp:high=3x,share=0.2,stay=5s, trace"


@dataclass(frozen=True, slots=True)
class Arrival:
    """An arrival process by name. cv: of gamma. shape: of weibull.

    mmpp: for a `share` of the time the rate is `high` times the mean (and lower else, so that the mean is kept), in
    spells that last `stay_ns` in the mean, exponentially distributed as those between them.
    """

    kind: str
    cv: float = 1.0
    shape: float = 1.0
    high: float = 1.0
    share: float = 0.0
    stay_ns: int = 0

    def __str__(self) -> str:
        if self.kind == "mmpp":
            return f"mmpp:high={self.high:g}x,share={self.share:g},stay={self.stay_ns / NS_PER_S:g}s"
        figure = {"gamma": self.cv, "weibull": self.shape}.get(self.kind)
        return self.kind if figure is None else f"{self.kind}:{figure:g}"


def parse_arrival(text: str) -> Arrival:
    """'constant', 'poisson', 'gamma:2', 'weibull:0.7', 'mmpp:high=3x,share=0.2,stay=5s', 'trace'. Raises UsageError."""
    kind, colon, value = text.partition(":")
    if kind == "gamma":
        return Arrival("gamma", cv=_figure(text, value, 0.0, 100.0, "write gamma:2 (0 < CV <= 100)"))
    if kind == "weibull":
        return Arrival("weibull", shape=_figure(text, value, 0.1, 100.0, "write weibull:0.7 (0.1 to 100)"))
    if kind == "mmpp":
        return _parse_mmpp(text, value)
    if kind not in ("constant", "poisson", "trace") or colon:
        raise UsageError(f"'{text}' is no arrival process", where="--arrival", hint=f"one of {_KINDS}")
    return Arrival(kind)


def from_burstiness(text: str) -> Arrival:
    """`--burstiness B`: gaps gamma distributed with shape B, a CV of 1/sqrt(B); 1 is Poisson. Raises UsageError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1e-4 <= value <= 1e6:
        raise UsageError(f"'{text}' is no burstiness", where="--burstiness", hint="1 is Poisson, below 1 is bursty")
    return Arrival("poisson") if value == 1 else Arrival("gamma", cv=1 / math.sqrt(value))


def _figure(text: str, value: str, low: float, high: float, hint: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not low <= number <= high or number == 0:
        raise UsageError(f"'{text}' is no arrival process", where="--arrival", hint=hint)
    return number


def _parse_mmpp(text: str, value: str) -> Arrival:
    given = {"high": "3x", "share": "0.2", "stay": "5s"}
    for word in filter(None, (word.strip() for word in value.split(","))):
        name, equals, one = word.partition("=")
        if name not in given or not equals:
            hint = "write mmpp:high=3x,share=0.2,stay=5s"
            raise UsageError(f"'{text}': '{word}' is not known here", where="--arrival", hint=hint)
        given[name] = one
    share = parse_share(given["share"], flag="--arrival mmpp share")
    hint = "high times share must not exceed 1: the mean rate is kept, so what is left is for the rest of the time"
    high = _figure(text, given["high"].removesuffix("x"), 1.0, 1e6, hint)
    if not 0 < share < 1 or high * share > 1:
        raise UsageError(f"'{text}' cannot keep its mean", where="--arrival", hint=hint)
    return Arrival("mmpp", high=high, share=share, stay_ns=parse_duration_ns(given["stay"], flag="--arrival mmpp stay"))


def arrival_times(
    arrival: Arrival,
    *,
    rate: float,
    until_ns: int | None,
    count: int | None,
    seed: int,
    curve: RateCurve | None = None,
) -> np.ndarray:
    """Due instants as int64 ns from 0, ascending.

    With `count`, count + 1 of them: the last is when the request after the last would have come, which closes the
    window of the count that was asked for. With `until_ns`, all below it. rate is in requests per second; `curve`
    instead where it changes.
    """
    if count is None and until_ns is None:
        raise ValueError("either a count or a time")
    mean_ns = NS_PER_S / rate
    until_s = (until_ns or 0) / NS_PER_S
    wanted = until_s * rate if curve is None else float(curve.due_by(np.asarray([until_s]))[0])
    expected = count + 1 if count is not None else int(wanted) + 1
    if expected > _MAX_ARRIVALS:
        raise UsageError(f"{expected:,} requests in one stage are too many", where="--rate/--duration", hint="split it")
    if arrival.kind == "constant" and curve is None:
        times = np.arange(expected + 1, dtype=np.float64) * mean_ns
    else:
        times = _times(arrival, curve or RateCurve(rate), expected, until_ns, seed)
    whole = np.round(times).astype(np.int64)
    return whole[: count + 1] if count is not None else whole[whole < (until_ns or 0)]


def _times(arrival: Arrival, curve: RateCurve, expected: int, until_ns: int | None, seed: int) -> Floats:
    """Instants, ns: at least `expected` of them, and up to `until_ns`."""
    generator = np.random.Generator(np.random.PCG64(seed))
    bursts = _Bursts(arrival, seed) if arrival.kind == "mmpp" else None
    pieces: list[Floats] = []
    end = end_ns = 0.0
    count = 0
    while not pieces or (until_ns is not None and end_ns < until_ns) or count < expected:
        size = max(64, int(expected * 1.1) if not pieces else expected // 10 + 64)
        if arrival.kind == "constant":
            at = np.arange(count, count + size, dtype=np.float64)
        else:
            # summed one after the other from the last piece's end, so that a piece's length changes no instant
            at = np.cumsum(np.concatenate(([end], _gaps(arrival, generator, size))))[1:]
        end = float(at[-1])
        times = (curve.when(at) if bursts is None else bursts.when(at, curve)) * NS_PER_S
        end_ns = float(times[-1])
        pieces.append(times)
        count += size
    return np.concatenate(pieces)


def _gaps(arrival: Arrival, generator: np.random.Generator, size: int) -> Floats:
    """Gaps of mean one."""
    if arrival.kind == "weibull":
        return generator.weibull(arrival.shape, size) / math.gamma(1 + 1 / arrival.shape)
    shape = 1.0 if arrival.kind in ("poisson", "mmpp") else 1.0 / arrival.cv**2
    return generator.standard_gamma(shape, size) / shape


class _Bursts:
    """The spells of an mmpp: M(t), by which the expected number of arrivals is stretched, is linear in each."""

    def __init__(self, arrival: Arrival, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64([seed, 1]))  # a stream of its own, beside the gaps'
        high, share = arrival.high, arrival.share
        stay_s = arrival.stay_ns / NS_PER_S
        begins_high = bool(self._generator.random() < share)
        levels, stays = (high, (1 - high * share) / (1 - share)), (stay_s, stay_s * (1 - share) / share)
        order = 1 if begins_high else -1
        self._levels, self._stays = np.asarray(levels[::order]), np.asarray(stays[::order])
        self._begin_s = np.zeros(1)

    def when(self, expected: Floats, curve: RateCurve) -> Floats:
        """When so many arrivals are expected, the curve's rate being multiplied by the spell's level."""
        due, total = self._due(curve)
        while total[-1] <= expected[-1]:
            size = max(256, len(self._begin_s) - 1)  # even, so that the spells go on in turn
            spells = self._generator.standard_exponential(size) * np.resize(self._stays, size)
            self._begin_s = np.concatenate((self._begin_s, self._begin_s[-1] + np.cumsum(spells)))
            due, total = self._due(curve)
        # linear within a spell; a spell in which nothing comes is a step, of which the later end is meant
        return curve.when(np.interp(expected, total, due))

    def _due(self, curve: RateCurve) -> tuple[Floats, Floats]:
        """At the begin of each spell: arrivals expected without bursts, and with them."""
        due = curve.due_by(self._begin_s)
        steps = np.diff(due) * np.resize(self._levels, max(len(due) - 1, 0))
        return due, np.concatenate(([0.0], np.cumsum(steps)))
