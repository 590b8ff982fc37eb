"""When did these bytes arrive? The kernel's own receive time of their packet, carried to the monotonic clock.

Linux hands over, beside the bytes of a read, the wall-clock time at which their last packet was received
(SO_TIMESTAMPNS). A busy client, a garbage collection or a noisy neighbour then no longer falsifies a latency: it
only merges reads, which can be counted. The wall clock is carried to the monotonic one by an offset that is measured
all through the run; a step of the wall clock shows as a jump of that offset. Where the platform has no such stamp,
the time is read in the socket's callback, before any parsing.
"""

from __future__ import annotations

import socket
import struct
import sys

from benchlab.clock import Clock
from benchlab.units import NS_PER_S

_SO_TIMESTAMPNS = 35
_SCM_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
ANCILLARY_BYTES = 64
READ_BYTES = 65536
_STEP_NS = 1_000_000
"""A jump of the offset beyond this is a step of the wall clock: slewing moves it by at most 0.5 ms a second."""

CLOCK_STEP = "wall_clock"
"""In a record's `unknown`: the wall clock stepped while the request was under way, so that kernel stamps of it are
believed only as far as the client's own clock bears them out."""


class Stamps:
    """Turns ancillary data of a read into monotonic ns. `track` re-measures the offset; call it twice a second."""

    def __init__(self, clock: Clock, *, kernel: bool = True) -> None:
        self._clock = clock
        self.kernel = kernel and sys.platform == "linux" and struct.calcsize("l") == 8
        self.steps: list[int] = []
        """Monotonic ns at which a step of the wall clock was noticed."""
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Where every connection of this loop reads into: what a read gave must be used before the next."""
        self.buffers = (self.buffer,)
        self._offset_ns, self.error_ns = self._measure()
        self._primer = self._prime() if self.kernel else None

    def _prime(self) -> socket.socket:
        """The kernel starts to stamp packets when the first socket asks for it, with a little delay: ask early."""
        primer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        primer.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        return primer

    def ask(self, sock: socket.socket) -> None:
        """Ask the kernel to stamp what this socket receives."""
        if self.kernel:
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def of(self, ancillary: list[tuple[int, int, bytes]]) -> int | None:
        """Monotonic ns at which the kernel took the last packet of a read; None where it did not say."""
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SCM_TIMESTAMPNS and len(data) == _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack(data)
                return int(seconds * NS_PER_S + nanoseconds - self._offset_ns)
        return None

    def track(self) -> None:
        """Measure the offset again; remember when the wall clock stepped."""
        offset, error = self._measure()
        if abs(offset - self._offset_ns) > _STEP_NS:
            self.steps.append(self._clock.monotonic_ns())
        self._offset_ns, self.error_ns = offset, error

    def stepped_since(self, ns: int) -> bool:
        """True if the wall clock stepped after `ns`, seen now at the latest: a stamp of that time may be off by a
        step that is too small to be told from the stamp alone. Cheap: one reading of each clock."""
        if self.kernel:
            wall, now = self._clock.wall_ns(), self._clock.monotonic_ns()
            if abs(wall - now - self._offset_ns) > _STEP_NS:
                self.track()  # measured with care: one loose reading proves nothing
        return bool(self.steps) and self.steps[-1] >= ns

    def _measure(self) -> tuple[int, int]:
        """Wall minus monotonic, ns, from the tightest of five bracketed readings, and half that bracket's width."""
        best, offset = 1 << 62, 0
        for _ in range(5):
            before = self._clock.monotonic_ns()
            wall = self._clock.wall_ns()
            after = self._clock.monotonic_ns()
            if after - before < best:
                best, offset = after - before, wall - (before + after) // 2
        return offset, best // 2

    def close(self) -> None:
        if self._primer is not None:
            self._primer.close()
