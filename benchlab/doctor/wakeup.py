"""A descriptor that becomes readable at an absolute time: a selector's own timeout is rounded up to a millisecond.

The one idea: Linux has such a descriptor (timerfd); elsewhere `fd` is -1 and the caller uses a timeout. It must not
know what it wakes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys

_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_ABSOLUTE = 1
_S = 1_000_000_000


class Wakeup:
    """One timer. `fd` is to be watched for reading; call `clear` when it is readable."""

    def __init__(self) -> None:
        self.fd = -1
        self._set_ns = 0
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self.fd = self._libc.timerfd_create(_MONOTONIC, _NONBLOCK_CLOEXEC)

    def at(self, ns: int) -> None:
        """Wake at this monotonic ns, at once if it has passed; replaces what was set."""
        if ns != self._set_ns:
            self._set_ns = ns
            spec = struct.pack("qqqq", 0, 0, *divmod(max(ns, 1), _S))
            self._libc.timerfd_settime(self.fd, _ABSOLUTE, spec, None)

    def clear(self) -> None:
        """It fired: do not be readable any more."""
        self._set_ns = 0
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
