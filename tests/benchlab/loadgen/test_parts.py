"""The small parts: timer, loop lag, counters in shared memory, messages over pipes, limits of this process."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from pathlib import Path

import pytest

from benchlab.clock import SystemClock
from benchlab.loadgen import timer as timer_module
from benchlab.loadgen.counters import CounterPage, Counts
from benchlab.loadgen.job import (
    Failed,
    Quit,
    Ready,
    StageJob,
    StageReport,
    StopStage,
    WorkerJob,
    receive_in_parent,
    receive_in_worker,
    send,
)
from benchlab.loadgen.lag import LoopLag
from benchlab.loadgen.timer import WakeTimer
from benchlab.units import NS_PER_MS
from benchlab.workload.item import WorkloadItem

CLOCK = SystemClock()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_timer_wakes_at_its_instant_and_not_before(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_module.sys, "platform", platform)

    async def go() -> list[int]:
        woken: list[int] = []
        came = asyncio.Event()

        def wake() -> None:
            woken.append(CLOCK.monotonic_ns() - wanted)
            came.set()

        timer = WakeTimer(asyncio.get_running_loop(), CLOCK, wake)
        try:
            for ahead_ms in (40, 5, -1000):  # the first is replaced, the last lies in the past
                wanted = CLOCK.monotonic_ns() + ahead_ms * NS_PER_MS
                timer.set_ns(wanted)
                if ahead_ms != 40:
                    await asyncio.wait_for(came.wait(), 5)
                    came.clear()
            await asyncio.sleep(0.06)
        finally:
            timer.close()
            timer.close()
        return woken

    late = asyncio.run(go())

    assert len(late) == 2
    assert late[0] >= (0 if platform == "linux" else -NS_PER_MS)


def test_lag_is_seen_when_the_loop_is_blocked() -> None:
    async def go() -> dict[str, float | None]:
        import time

        lag = LoopLag(CLOCK)
        lag.start()
        await asyncio.sleep(0.01)
        time.sleep(0.2)
        await asyncio.sleep(0.06)
        return lag.stop()

    lags = asyncio.run(go())

    assert lags["max"] is not None and lags["max"] >= 100


def test_lag_without_samples_is_not_zero() -> None:
    async def go() -> dict[str, float | None]:
        lag = LoopLag(CLOCK)
        lag.start()
        return lag.stop()

    assert asyncio.run(go()) == {"p50": None, "p99": None, "max": None}


def test_counters_cross_from_one_mapping_to_another(tmp_path: Path) -> None:
    reader = CounterPage(tmp_path / "page", create=True)
    writer = CounterPage(tmp_path / "page", create=False)
    assert Counts() == reader.get()

    for number in range(1, 200):
        writer.put(Counts(*[number] * 8))
        assert Counts(*[number] * 8) == reader.get()

    reader.close()
    writer.close()


def test_a_torn_read_is_off_by_one_write_at_most(tmp_path: Path) -> None:
    """Another process writes without pause; every field that is read was written whole, and close to the others."""
    reader = CounterPage(tmp_path / "page", create=True)
    code = (
        "import sys; from pathlib import Path; from benchlab.loadgen.counters import *\n"
        "page = CounterPage(Path(sys.argv[1]), create=False)\n"
        "print('on', flush=True)\n"
        "for n in range(10**9): page.put(Counts(*[n * 0x1_0001_0001] * 8))"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "page")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"on\n"
            last = 0
            for _ in range(5000):
                values = reader.get().values()
                assert all(value % 0x1_0001_0001 == 0 for value in values if value >= 0)
                assert max(values) >= last
                last = max(values)
        finally:
            process.kill()
    reader.close()


JOB = WorkerJob(0, "h", 5, "s", "c", "http://x", "chat", "m", {"K": "v"}, {"t": 0}, [WorkloadItem(id="a", prompt="é")])
STAGE = StageJob(1, "open", 2**62, None, 0, 3, at_ns=[1, 2**62], sequences=[0, 1])
REPORT = StageReport(0, 1, 0.5, 2.0, {"p50": None, "p99": 1.5, "max": 2}, 1, 2, 3, 4, 5, 6, 7, None, [8], 9, "why", 10)


def test_messages_come_back_as_they_went() -> None:
    pipe = io.BytesIO()
    for message in (JOB, STAGE, StopStage("why", 3), Quit()):
        send(pipe, message)
    for message in (Ready("uvloop", "kernel"), REPORT, Failed("a", "b", "c", 1)):
        send(pipe, message)
    pipe.seek(0)

    assert [JOB, STAGE, StopStage("why", 3), Quit()] == [receive_in_worker(pipe) for _ in range(4)]
    assert [Ready("uvloop", "kernel"), REPORT, Failed("a", "b", "c", 1)] == [receive_in_parent(pipe) for _ in range(3)]
    assert receive_in_parent(pipe) is None and receive_in_worker(pipe) is None


@pytest.mark.parametrize("data", [b"\0\0", b"\0" * 7 + b"\5ab", b"\xff" * 8, b"\0" * 7 + b"\2\xc1\xc1"])
def test_a_message_cut_short_or_senseless_is_the_end(data: bytes) -> None:
    assert receive_in_parent(io.BytesIO(data)) is None


LIMITS = """
import resource, sys
from benchlab.errors import UsageError
from benchlab.loadgen.limits import raise_descriptor_limit
soft, hard, need = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    print(raise_descriptor_limit(need or None), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except UsageError as error:
    print(int(error.exit_code), error)
"""


def limited(soft: int, hard: int, need: int) -> str:
    argv = [sys.executable, "-c", LIMITS, str(soft), str(hard), str(need)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def test_c70_a_low_soft_limit_is_raised_and_a_low_hard_one_is_refused_by_number() -> None:
    assert limited(128, 1000, 300) == "1000 1000\n"
    assert limited(64, 128, 0) == "128 128\n"
    refused = limited(128, 128, 300)
    assert refused.startswith("2 ") and "300 connections" in refused and "128" in refused and "ulimit -Hn" in refused
