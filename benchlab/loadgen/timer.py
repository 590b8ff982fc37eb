"""A timer that wakes an event loop at an absolute instant. uvloop rounds its own timers to a millisecond; on Linux a
timerfd under the loop's reader callback does not.

A precise timer is set a little before its instant and spins for the rest: the wake-up itself (tens of microseconds,
more where a core has to come out of sleep) is then no part of the lateness, at the price of that much CPU a wake-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Callable

from benchlab.clock import Clock
from benchlab.units import NS_PER_S

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_ABSOLUTE = 1
SPIN_NS = 400_000
"""How long before its instant a precise timer wakes: the most that it spins."""


class WakeTimer:
    """Calls `wake` at or just after the instant last given to `set_ns` (monotonic ns)."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, wake: Callable[[], None], *, precise: bool = False
    ) -> None:
        self._loop, self._clock, self._wake = loop, clock, wake
        self._precise, self._at_ns = precise, 0
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
            if self._fd >= 0:
                loop.add_reader(self._fd, self._fired)

    def set_ns(self, at_ns: int) -> None:
        """Wake at `at_ns`; replaces what was set before."""
        self._at_ns = at_ns
        if self._precise:
            at_ns -= SPIN_NS
        if self._fd >= 0:
            # an instant of 0 would disarm it, one in the past fires at once
            spec = struct.pack("qqqq", 0, 0, *divmod(max(at_ns, 1), NS_PER_S))
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, spec, None)
            return
        if self._handle is not None:
            self._handle.cancel()
        delay = max(0, at_ns - self._clock.monotonic_ns()) / NS_PER_S
        self._handle = self._loop.call_later(delay, self._spin_and_wake)

    def _fired(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._spin_and_wake()

    def _spin_and_wake(self) -> None:
        if self._precise:
            now, at = self._clock.monotonic_ns, self._at_ns
            while 0 < at - now() <= SPIN_NS:  # beyond that it was set anew meanwhile, and fires again
                pass
        self._wake()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
