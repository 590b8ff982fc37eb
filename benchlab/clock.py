"""Clocks are arguments. Durations come from the monotonic clock, wall time only labels a run.

Every number of benchlab is a difference of two integers of `monotonic_ns`. Tests hand in a `ManualClock`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Two readings, both int64 nanoseconds."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on a clock that is never set; its zero means nothing."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC, on a clock that may be stepped."""
        ...


class SystemClock:
    """The host's clocks. Read for each packet, hence the library's own functions without a call of ours around them."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)


@dataclass(slots=True)
class ManualClock:
    """A clock that is turned by hand, for tests and simulation (both readings in ns)."""

    now_ns: int = 0
    wall_offset_ns: int = 1_700_000_000_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns + self.wall_offset_ns

    def advance(self, ns: int) -> None:
        self.now_ns += ns
