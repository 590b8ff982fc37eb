"""Kernel stamps carried to the monotonic clock, and what happens when the wall clock is set."""

from __future__ import annotations

import socket
import struct
import sys
import time

import pytest

from benchlab.clients.stamps import Stamps
from benchlab.clock import ManualClock, SystemClock

NOW = 5_000_000_000


def ancillary(wall_ns: int) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, 35, struct.pack("qq", *divmod(wall_ns, 10**9)))]


@pytest.mark.skipif(sys.platform != "linux", reason="SO_TIMESTAMPNS is Linux")
class TestStamps:
    def test_offset(self) -> None:
        clock = ManualClock(NOW)
        stamps = Stamps(clock)
        try:
            assert stamps.of(ancillary(clock.wall_ns() - 7)) == NOW - 7
            assert stamps.error_ns == 0
        finally:
            stamps.close()

    def test_other_ancillary_data_is_no_stamp(self) -> None:
        stamps = Stamps(ManualClock(NOW))
        try:
            assert stamps.of([]) is None
            assert stamps.of([(socket.SOL_SOCKET, 29, b"\0" * 16), (socket.SOL_SOCKET, 35, b"short")]) is None
        finally:
            stamps.close()

    @pytest.mark.parametrize(
        ("moved_ns", "steps"), [(0, 0), (200_000, 0), (-200_000, 0), (2_000_000, 1), (-(10**9), 1)]
    )
    def test_a_step_is_noticed_and_slewing_is_not(self, moved_ns: int, steps: int) -> None:
        clock = ManualClock(NOW)
        stamps = Stamps(clock)
        try:
            clock.wall_offset_ns += moved_ns
            clock.advance(10)
            stamps.track()
            assert len(stamps.steps) == steps
            assert stamps.of(ancillary(clock.wall_ns())) == NOW + 10
            stamps.track()
            assert len(stamps.steps) == steps
        finally:
            stamps.close()

    def test_the_kernel_stamps_what_a_socket_receives(self) -> None:
        stamps = Stamps(SystemClock())
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as ours:
            stamps.ask(ours)
            ours.connect(listener.getsockname())
            theirs, _ = listener.accept()
            with theirs:
                stamp = None
                for _ in range(100):  # the kernel begins to stamp a moment after the first socket asked for it
                    before = SystemClock().monotonic_ns()
                    theirs.sendall(b"x")
                    _, data, _, _ = ours.recvmsg(10, 64)
                    if (stamp := stamps.of(data)) is not None:
                        break
                    time.sleep(0.01)
        stamps.close()
        assert stamp is not None
        assert before - 1_000_000 <= stamp <= SystemClock().monotonic_ns() + 1_000_000


def test_without_kernel_stamps_nothing_is_opened() -> None:
    stamps = Stamps(SystemClock(), kernel=False)
    assert not stamps.kernel
    with socket.socket() as sock:
        stamps.ask(sock)
    stamps.close()
