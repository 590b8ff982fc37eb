"""A trace's own times, made into a timetable: a part of it, faster or slower, again and again, spread within a tick.

It must not know what the requests ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchlab.errors import UsageError
from benchlab.units import NS_PER_S, parse_duration_ns

_MAX_ARRIVALS = 50_000_000


@dataclass(frozen=True, slots=True)
class TraceShape:
    """What is done to the times of a trace, in this order.

    clip_ns: only what arrives in [begin, end), which then begins at 0. spread_ns: times are told in whole ticks of
    this length, and arrivals are put evenly at random within theirs. scale: times are multiplied by it (0.5 is twice
    as fast). loop: played so many times over.
    """

    scale: float = 1.0
    clip_ns: tuple[int, int] | None = None
    loop: int = 1
    spread_ns: int = 0

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        clip = None if self.clip_ns is None else [ns / NS_PER_S for ns in self.clip_ns]
        return {"scale": self.scale, "clip_s": clip, "loop": self.loop, "spread_s": self.spread_ns / NS_PER_S}

    def times(self, at_ns: np.ndarray, seed: int) -> np.ndarray:
        """The due instants, int64 ns from 0, of arrivals at these instants (ascending, from 0; clipped already)."""
        at = np.asarray(at_ns, dtype=np.float64)
        if len(at) * self.loop > _MAX_ARRIVALS:
            words = f"{len(at) * self.loop:,} requests in one stage are too many"
            raise UsageError(words, where="--trace-loop", hint="play it fewer times")
        # a round is as long as the trace and one mean gap more, so that its last and first arrivals do not meet
        period = (at[-1] - at[0]) * len(at) / (len(at) - 1) if len(at) > 1 and at[-1] > at[0] else float(NS_PER_S)
        rounds = [self._spread(at, seed, turn) + turn * max(period, float(self.spread_ns)) for turn in range(self.loop)]
        return np.round(np.concatenate(rounds) * self.scale).astype(np.int64)

    def _spread(self, at: np.ndarray, seed: int, turn: int) -> np.ndarray:
        if not self.spread_ns:
            return at
        generator = np.random.Generator(np.random.PCG64([seed, 2, turn]))
        ticks = np.floor(at / self.spread_ns)
        within = generator.random(len(at))
        # within a tick the rows keep their order: the smallest draw goes to its first row
        return np.sort(ticks + within) * self.spread_ns


def parse_trace_shape(scale: float | None, clip: str | None, loop: int | None, spread: str | None) -> TraceShape:
    """The four flags -> TraceShape. Raises UsageError."""
    if scale is not None and not 1e-6 <= scale <= 1e6:
        raise UsageError(f"a scale of {scale}", where="--trace-scale", hint="0.5 is twice as fast, 2 half as fast")
    span = None
    if clip is not None:
        begin, dots, end = clip.partition("..")
        hint = "write 10s..70s: from and to, in the trace's own time from its first arrival"
        if not dots:
            raise UsageError(f"'{clip}' is no span", where="--trace-clip", hint=hint)
        span = (
            parse_duration_ns(begin, flag="--trace-clip", allow_zero=True),
            parse_duration_ns(end, flag="--trace-clip"),
        )
        if span[0] >= span[1]:
            raise UsageError(f"'{clip}' holds nothing", where="--trace-clip", hint=hint)
    ticks = 0 if spread is None else parse_duration_ns(spread, flag="--trace-spread")
    return TraceShape(1.0 if scale is None else scale, span, 1 if loop is None else loop, ticks)
