"""Ctrl-C and SIGTERM at every time: before the load, during it, during the drain, twice, and while storing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from benchlab.campaign.interrupt import Interrupt, NothingMeasuredError
from benchlab.errors import Exit
from benchlab.records.manifest import read_json
from benchlab.records.record import Record
from benchlab.records.schema import records_from
from benchlab.records.store import Run
from tests.benchlab.campaign.process import Command, launch_file
from tests.benchlab.loadgen.logging_server import LoggingServer

LOAD = ("-r", "30,31", "--duration", "60s", "--warmup", "none", "--isl", "8", "--osl", "8", "--progress", "plain")
INT, TERM = signal.SIGINT, signal.SIGTERM


def records_of(path: Path) -> list[Record]:
    return list(records_from(Run(path).requests()))


def wait_for(server: LoggingServer, count: int) -> None:
    end = time.monotonic() + 60
    while len(server.begun) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(INT, 130), pytest.param(TERM, 143, marks=pytest.mark.slow)])
def test_the_first_signal_drains_and_writes_what_was_measured(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    with LoggingServer(gap_s=0.1) as server:
        with Command("run", "-u", server.url, *LOAD, "--workers", "2", "-o", run, cwd=tmp_path) as command:
            command.until("stage 1/2")
            wait_for(server, 30)
            command.signal(number)
            assert code == command.end(), command.err
            assert command.left == []
        begun, whole = len(server.begun), len(server.whole)

    records = records_of(run)
    assert {"ok"} == {record.outcome.value for record in records}  # drained: none was cut
    assert begun == whole == len(records)
    manifest = read_json(run / "manifest.json")
    first, second = manifest["stages"]
    assert "interrupted" == manifest["state"] == first["why"] and second["why"] == "not run"
    assert first["planned"] == len(records) and first["complete"] is False
    # the window ends where the sending did: the drain is no part of it, and the rate is that of the load
    assert all(first["w0_ns"] <= r.intended_ns < first["w1_ns"] + 300_000_000 for r in records)
    assert first["drain_end_ns"] - first["w1_ns"] >= 300_000_000
    assert first["offered_rps"] == pytest.approx(30, rel=0.6)
    summary = read_json(run / "summary.json")
    assert [stage["condition"] for stage in summary["stages"][:1]] == ["incomplete"]
    complete = [r for r in summary["stages"][0]["verdict"]["rules"] if r["name"] == "complete_records"]
    assert [rule["state"] for rule in complete] == ["pass"]
    assert (run / "report.html").exists() and not (run / "spool").exists()
    assert command.err.count(f"exit {code}") == 1 and "Traceback" not in command.err


def test_the_second_signal_skips_the_drain(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = (*LOAD, "--drain", "120s", "-o", run)
    with LoggingServer(gap_s=0.01) as server, Command("run", "-u", server.url, *words, cwd=tmp_path) as command:
        command.until("stage 1/2")  # the preflight has had its answer
        server.gap_s = 5.0
        wait_for(server, 20)
        command.signal(INT)
        command.until("interrupted: draining")
        time.sleep(0.3)
        command.signal(INT)
        began = time.monotonic()
        assert command.end() == 130, command.err
        assert time.monotonic() - began < 30  # no drain, and no answer before 40 s
        assert command.left == []

    records = records_of(run)
    assert {"unfinished"} == {r.outcome.value for r in records} and len(records) == len(server.begun)
    (first, _) = read_json(run / "manifest.json")["stages"]
    assert first["why"] == "interrupted" and first["planned"] == len(records)
    assert (first["w1_ns"] - first["w0_ns"]) / 1e9 < 20


@pytest.mark.parametrize(("number", "code"), [pytest.param(INT, 130, marks=pytest.mark.slow), (TERM, 143)])
def test_a_signal_while_the_engine_loads_leaves_nothing(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = tmp_path / "run"
    words = ("run", "--engine", launch_file(tmp_path), "-m", "any", "--engine-arg=--load", "--engine-arg", "60")
    with Command(*words, *LOAD, "-o", run, cwd=tmp_path) as command:
        command.until("starting engine")
        end = time.monotonic() + 20
        while not command.children() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.3)
        command.signal(number)
        assert code == command.end(), command.err
        assert command.left == []

    assert not run.exists()
    assert "Traceback" not in command.err and command.err.count(f"exit {code}") == 1


def test_a_signal_between_the_first_request_and_the_first_stage_leaves_nothing(tmp_path: Path) -> None:
    """Worker processes are being started then: half a second in which nothing has been measured."""
    run = tmp_path / "run"
    with (
        LoggingServer(gap_s=0.005) as server,
        Command("run", "-u", server.url, *LOAD, "-o", run, cwd=tmp_path) as command,
    ):
        end = time.monotonic() + 30
        while not (run / "spool" / "worker-0.counters").exists() and time.monotonic() < end:
            time.sleep(0.005)
        command.signal(INT)
        assert command.end() == 130, command.err
        assert command.left == []

    assert not run.exists()


def raised(interrupt: Interrupt, number: signal.Signals) -> bool:
    try:
        interrupt._arrived(number, None)
    except KeyboardInterrupt:
        return True
    return False


def test_what_a_signal_does_at_each_time() -> None:
    before = Interrupt()
    assert raised(before, TERM) and raised(before, INT) and before.code is Exit.TERMINATED

    loading = Interrupt()
    loading.loading = True
    assert not raised(loading, INT) and loading.code is Exit.INTERRUPTED
    assert raised(loading, TERM) and loading.code is Exit.INTERRUPTED
    assert not raised(loading, INT)  # what was measured is being stored

    storing = Interrupt()
    storing.loading = storing.ending = True
    assert not raised(storing, INT) and storing.code is None


def test_handlers_are_put_back_and_each_signal_has_its_own_code() -> None:
    kept = signal.getsignal(INT), signal.getsignal(TERM)
    with pytest.raises(NothingMeasuredError) as caught, Interrupt():
        signal.raise_signal(TERM)

    assert kept == (signal.getsignal(INT), signal.getsignal(TERM))
    assert caught.value.exit_code == Exit.TERMINATED
    with pytest.raises(NothingMeasuredError) as caught, Interrupt():
        signal.raise_signal(INT)
    assert caught.value.exit_code == Exit.INTERRUPTED
    assert kept == (signal.getsignal(INT), signal.getsignal(TERM))
