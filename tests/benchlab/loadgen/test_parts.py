"""The small parts: timer, loop lag, counters in shared memory, messages over pipes, limits of this process."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from pathlib import Path

import pytest

from benchlab.campaign.abort import FailingWatch
from benchlab.clock import SystemClock
from benchlab.loadgen import limits as limits_module
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
from benchlab.loadgen.limits import choose_sources
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
        writer.put(Counts(*[number] * 9))
        assert Counts(*[number] * 9) == reader.get()

    reader.close()
    writer.close()


def test_a_torn_read_is_off_by_one_write_at_most(tmp_path: Path) -> None:
    """Another process writes without pause; every field that is read was written whole, and close to the others."""
    reader = CounterPage(tmp_path / "page", create=True)
    code = (
        "import sys; from pathlib import Path; from benchlab.loadgen.counters import *\n"
        "page = CounterPage(Path(sys.argv[1]), create=False)\n"
        "print('on', flush=True)\n"
        "for n in range(10**9): page.put(Counts(*[n * 0x1_0001_0001] * 9))"
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


def test_c71_ports_are_counted_before_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ranges = tmp_path / "range"
    ranges.write_text("40000\t40399\n")
    monkeypatch.setattr(limits_module, "_PORT_RANGE", ranges)

    assert choose_sources(None, "127.0.0.1", []) == ([], None)
    assert choose_sources(200, "127.0.0.1", []) == ([], None)
    sources, words = choose_sources(500, "localhost", [])
    assert sources == ["127.0.0.1", "127.0.0.2", "127.0.0.3"] and "500 connections" in (words or "")
    none, words = choose_sources(500, "10.0.0.9", [])
    assert none == [] and "give 3 with --source-address" in (words or "") and "ip_local_port_range" in (words or "")
    assert choose_sources(500, "10.0.0.9", ["a", "b", "c"]) == (["a", "b", "c"], None)
    assert "give 3" in (choose_sources(500, "::1", [])[1] or "")
    monkeypatch.setattr(limits_module, "_PORT_RANGE", tmp_path / "none")
    assert choose_sources(10**6, "127.0.0.1", []) == ([], None)


def test_the_watch_for_failures_needs_all_of_them_for_all_of_the_time() -> None:
    watch = FailingWatch(10)
    assert watch.look(Counts(ok=3), 0) is None
    assert watch.look(Counts(ok=3, failed=5), 1) is None
    assert watch.look(Counts(ok=4, failed=6), 9) is None  # one success, and the time runs anew
    assert watch.look(Counts(ok=4, failed=7), 12) is None
    assert watch.look(Counts(ok=4, failed=8), 25) is None  # two are no proof
    found = watch.look(Counts(ok=4, failed=9), 26)
    assert found is not None and int(found.exit_code) == 7 and "3 of them" in str(found)
    quiet = FailingWatch(10)
    assert quiet.look(Counts(), 0) is None and quiet.look(Counts(), 1000) is None  # nothing ended: nothing failed
    streaming = FailingWatch(10)
    for now in range(50):  # refusals beside a long answer
        assert streaming.look(Counts(failed=now, events=now), now) is None
    assert FailingWatch(None).look(Counts(failed=99), 10**12) is None
