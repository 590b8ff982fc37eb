"""Arrival processes: the due instants of an open loop, all fixed before time zero, from a seed that is handed in.

constant: truly even. poisson: exponential gaps. gamma:CV: gaps of the same mean with coefficient of variation CV
(1 is Poisson, 0 is constant, above 1 is bursty). trace: the workload's own times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchlab.errors import UsageError
from benchlab.units import NS_PER_S

_MAX_ARRIVALS = 50_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """An arrival process by name. `cv` only for gamma."""

    kind: str
    cv: float = 1.0

    def __str__(self) -> str:
        return f"gamma:{self.cv:g}" if self.kind == "gamma" else self.kind


def parse_arrival(text: str) -> Arrival:
    """'constant', 'poisson', 'gamma:2', 'trace' -> Arrival. Raises UsageError."""
    kind, colon, value = text.partition(":")
    if kind == "gamma":
        try:
            cv = float(value)
        except ValueError:
            cv = -1.0
        if not 0 < cv <= 100:
            raise UsageError(f"'{text}' is no arrival process", where="--arrival", hint="write gamma:2 (0 < CV <= 100)")
        return Arrival("gamma", cv)
    if kind not in ("constant", "poisson", "trace") or colon:
        raise UsageError(
            f"'{text}' is no arrival process", where="--arrival", hint="one of constant, poisson, gamma:CV, trace"
        )
    return Arrival(kind)


def arrival_times(arrival: Arrival, *, rate: float, until_ns: int | None, count: int | None, seed: int) -> np.ndarray:
    """Due instants as int64 ns from 0, ascending.

    With `count`, count + 1 of them: the last is when the request after the last would have come, which closes the
    window of the count that was asked for. With `until_ns`, all below it. rate is in requests per second.
    """
    if count is None and until_ns is None:
        raise ValueError("either a count or a time")
    mean_ns = NS_PER_S / rate
    expected = count + 1 if count is not None else int((until_ns or 0) / mean_ns) + 1
    if expected > _MAX_ARRIVALS:
        raise UsageError(f"{expected:,} requests in one stage are too many", where="--rate/--duration", hint="split it")
    if arrival.kind == "constant":
        times = np.arange(expected + 1, dtype=np.float64) * mean_ns
    else:
        times = _random_times(arrival, mean_ns, expected, until_ns, seed)
    whole = np.round(times).astype(np.int64)
    return whole[: count + 1] if count is not None else whole[whole < (until_ns or 0)]


def _random_times(arrival: Arrival, mean_ns: float, expected: int, until_ns: int | None, seed: int) -> np.ndarray:
    generator = np.random.Generator(np.random.PCG64(seed))
    shape = 1.0 if arrival.kind == "poisson" else 1.0 / arrival.cv**2
    pieces: list[np.ndarray] = []
    end = 0.0
    while not pieces or (until_ns is not None and end < until_ns) or sum(map(len, pieces)) < expected:
        size = max(64, int(expected * 1.1) if not pieces else expected // 10 + 64)
        gaps = generator.standard_gamma(shape, size) * (mean_ns / shape)
        # summed one after the other from the last piece's end, so that a piece's length changes no instant
        times = np.cumsum(np.concatenate(([end], gaps)))[1:]
        end = float(times[-1])
        pieces.append(times)
    return np.concatenate(pieces)
