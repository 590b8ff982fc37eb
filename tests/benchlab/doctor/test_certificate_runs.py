"""Whole runs: a starved client makes the measurement INVALID, a slow or overloaded server does not."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlab.campaign.execute import Outcome, execute
from benchlab.campaign.progress import Progress
from benchlab.campaign.spec import Load, RunSpec
from benchlab.doctor.rig import TruthProcess
from benchlab.loadgen.arrivals import Arrival
from benchlab.units import NS_PER_MS, NS_PER_S
from tests.running import paced_engine

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds the worker through /proc")
OF_THE_CLIENT = {"dispatch_lag_p99_ms", "client_headroom", "client_cpu_share", "loop_lag_p99_ms", "rate_held"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TruthProcess]:
    with TruthProcess(tmp_path) as process:
        yield process


def run(url: str, path: Path, load: Load, *, progress: Progress | None = None, osl: int = 4, **more) -> Outcome:
    plain = {"data": None, "isl": 8, "osl": osl, "out": path, "drain_ns": 20 * NS_PER_S, "gpu": "off", "scrape": "off"}
    spec = RunSpec((load,), url=url, report=False, **(plain | more))
    return execute(spec, progress or Progress("none"))


def failing(outcome: Outcome) -> set[str]:
    return {rule["name"] for rule in outcome.summary["verdict"]["rules"] if rule["state"] == "fail"}


def verdict(outcome: Outcome) -> str:
    return outcome.summary["verdict"]["state"]


def worker_pids() -> list[int]:
    """Load generator processes that this one started."""
    pids: list[int] = []
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += [int(word) for word in children.read_text().split()]
    return [pid for pid in pids if b"benchlab.loadgen.worker" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Starving(Progress):
    """Once a stage is given out, its worker runs 60 ms of every 260."""

    def __init__(self) -> None:
        super().__init__("none")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._starve, daemon=True)
        self.stops = 0

    def stage(self, *words) -> None:
        super().stage(*words)
        self._thread.start()

    def _starve(self) -> None:
        pids = worker_pids()
        with contextlib.suppress(ProcessLookupError):
            while not self._over.is_set():
                for number, seconds in ((signal.SIGSTOP, 0.2), (signal.SIGCONT, 0.06)):
                    for pid in pids:
                        os.kill(pid, number)
                    self.stops += number == signal.SIGSTOP and bool(pids)
                    time.sleep(seconds)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@LINUX
def test_a_client_without_cpu_time_makes_the_measurement_invalid(server: TruthProcess, tmp_path: Path) -> None:
    server.order(f"paced {20 * NS_PER_MS} {5 * NS_PER_MS}")
    starving = Starving()
    try:
        outcome = run(server.url, tmp_path / "run", Load("open", rate=40.0), progress=starving, duration_ns=NS_PER_S)
    finally:
        starving.end()

    assert starving.stops > 3
    assert verdict(outcome) == "INVALID"
    assert {"dispatch_lag_p99_ms", "loop_lag_p99_ms"} <= failing(outcome)
    assert outcome.summary["stages"][0]["client"]["dispatch_lag_ms"]["max"] > 100


@LINUX
def test_a_closed_loop_cannot_hide_a_starved_client(server: TruthProcess, tmp_path: Path) -> None:
    """Nothing is ever due too early for it: it is the loop's own lag that tells."""
    server.order(f"paced {20 * NS_PER_MS} {5 * NS_PER_MS}")
    starving = Starving()
    try:
        closed = Load("closed", concurrency=4)
        outcome = run(server.url, tmp_path / "run", closed, progress=starving, duration_ns=NS_PER_S)
    finally:
        starving.end()

    assert starving.stops > 3
    assert verdict(outcome) == "INVALID" and "loop_lag_p99_ms" in failing(outcome)


def test_more_than_twice_the_ceiling_is_invalid_and_says_by_how_much(server: TruthProcess, tmp_path: Path) -> None:
    """60,000 requests a second: one worker of this client carries about 14,000 on a core to itself."""
    outcome = run(
        server.url,
        tmp_path / "run",
        Load("open", rate=60_000.0, arrival=Arrival("constant")),
        osl=1,
        duration_ns=100 * NS_PER_MS,
    )

    client = outcome.summary["stages"][0]["client"]
    assert verdict(outcome) == "INVALID"
    assert failing(outcome) & OF_THE_CLIENT
    assert client["headroom"] is None or client["headroom"] < 1
    assert client["late"] > 0
    assert outcome.summary["stages"][0]["condition"] != "overloaded"


def believed(attempt) -> Outcome:
    """The first of three attempts that is no fault of this host: other work on it can make any client late, and the
    verdict then rightly says so. Nothing but the client may be at fault meanwhile."""
    for _ in range(3):
        outcome = attempt()
        if verdict(outcome) != "INVALID":
            return outcome
        assert failing(outcome) <= OF_THE_CLIENT, failing(outcome)
    pytest.fail(f"a healthy client was blamed three times: {failing(outcome)}")


def test_an_overloaded_server_and_a_healthy_client_are_a_valid_measurement(tmp_path: Path) -> None:
    with paced_engine("ttft=40ms,itl=10ms", "--max-seqs", "1") as url:  # 80 ms each: it serves 12.5 a second
        paths = iter(tmp_path / f"run{n}" for n in range(3))
        load = Load("open", rate=40.0)
        outcome = believed(lambda: run(url, next(paths), load, duration_ns=2 * NS_PER_S))

    stage = outcome.summary["stages"][0]
    assert stage["condition"] == "overloaded"
    assert stage["client"]["headroom"] > 2 and stage["client"]["not_sent"] == 0
    assert stage["metrics"]["ttft"]["p50"] > 500


def test_a_slow_server_and_a_healthy_client_are_a_valid_measurement(server: TruthProcess, tmp_path: Path) -> None:
    server.order(f"paced {900 * NS_PER_MS} {150 * NS_PER_MS}")
    paths = iter(tmp_path / f"run{n}" for n in range(3))
    outcome = believed(lambda: run(server.url, next(paths), Load("closed", concurrency=8), requests=8))

    stage = outcome.summary["stages"][0]
    assert stage["outcomes"]["ok"] == 8 and stage["condition"] in ("short", "stable")
    assert stage["metrics"]["ttft"]["p50"] > 880
    assert stage["client"]["stamps"] == ("kernel" if sys.platform == "linux" else "callback")
