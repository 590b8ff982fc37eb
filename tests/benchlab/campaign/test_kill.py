"""What is left when nobody could say goodbye: kill -9, a worker that dies, a disk that is full."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from benchlab.campaign.finish import KILLED, recover
from benchlab.errors import UsageError
from benchlab.records.manifest import read_json
from benchlab.records.record import Record
from benchlab.records.schema import records_from
from benchlab.records.store import Run
from tests.benchlab.campaign.process import Command
from tests.benchlab.loadgen.logging_server import LoggingServer

LOAD = ("-r", "40", "--duration", "60s", "--warmup", "none", "--isl", "8", "--osl", "8", "--progress", "plain")


def records_of(path: Path) -> list[Record]:
    return list(records_from(Run(path).requests()))


def wait_for(server: LoggingServer, count: int) -> None:
    end = time.monotonic() + 60
    while len(server.whole) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_kill_9_loses_at_most_the_last_second(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with LoggingServer(gap_s=0.05) as server:
        with Command("run", "-u", server.url, *LOAD, "--workers", "2", "-o", run, cwd=tmp_path) as command:
            command.until("stage 1/1")
            wait_for(server, 90)
            command.kill_all()
            killed = time.monotonic()
            assert command.left == []
        time.sleep(0.2)
        begun, whole = dict(server.begun), dict(server.whole)

    with pytest.raises(UsageError, match="did not finish"):
        Run(run)
    summary = recover(run)

    records = records_of(run)
    outcomes = {record.request_id: record.outcome.value for record in records}
    assert len(records) == len(outcomes)
    assert all(begun[name] > killed - 1.0 for name in set(begun) - set(outcomes))
    finished = {name for name, when in whole.items() if when < killed - 1.0}
    assert len(finished) > 30 and {"ok"} == {outcomes[name] for name in finished}
    assert {KILLED} == {record.error for record in records if record.outcome.value == "unfinished"}
    manifest = read_json(run / "manifest.json")
    (stage,) = manifest["stages"]
    assert manifest["state"] == "recovered" and stage["complete"] is False and "killed" in stage["why"]
    assert (stage["w1_ns"] - stage["w0_ns"]) / 1e9 < 10  # what was sent, not what was planned
    assert summary["stages"][0]["condition"] == "incomplete"
    assert not (run / "spool").exists() and (run / "report.html").exists() and (run / "summary.json").exists()
    with pytest.raises(UsageError, match="it is complete"):
        recover(run)


def test_workers_whose_parent_is_killed_end_and_keep_everything(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with LoggingServer(gap_s=0.05) as server:
        with Command("run", "-u", server.url, *LOAD, "-o", run, cwd=tmp_path) as command:
            command.until("stage 1/1")
            wait_for(server, 40)
            command.children()
            command.process.kill()
            assert command.left == []
        begun = dict(server.begun)

    recover(run)

    outcomes = {record.request_id: record.outcome.value for record in records_of(run)}
    assert set(begun) == {name for name, word in outcomes.items() if word in ("ok", "unfinished")}
    assert set(Counter(outcomes.values())) <= {"ok", "unfinished", "not_sent"}


@pytest.mark.slow
def test_a_closed_loop_that_is_killed_gets_its_warm_up_cut(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with LoggingServer(gap_s=0.01) as server:
        words = ("-c", "4", "-n", "5000", "--warmup", "20req", "--isl", "8", "--osl", "8", "--progress", "plain")
        with Command("run", "-u", server.url, *words, "-o", run, cwd=tmp_path) as command:
            command.until("stage 1/1")
            wait_for(server, 60)
            command.kill_all()

    recover(run)

    (stage,) = read_json(run / "manifest.json")["stages"]
    assert sum(record.intended_ns < stage["w0_ns"] for record in records_of(run)) == 20


def test_a_full_disk_is_one_error_and_what_was_written_is_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with LoggingServer(gap_s=0.005) as server:
        # no file may grow beyond 48 KiB: to the writer the same as a disk without room
        words = ("run", "-u", server.url, *LOAD, "-o", run)
        with Command(*words, cwd=tmp_path, before="ulimit -f 48") as command:
            code = command.end()
        assert command.left == []

    assert code == 1, command.err
    assert command.err.count("error: ") == 1 and "cannot write" in command.err and "Traceback" not in command.err
    assert "recover" in command.err
    if (run / "spool").exists():
        recover(run)
    outcomes = Counter(record.outcome.value for record in records_of(run))
    assert outcomes["ok"] > 10 and outcomes.total() <= len(server.begun) + 5
    (stage,) = read_json(run / "manifest.json")["stages"]
    assert stage["complete"] is False and stage["why"] != "not run"


def test_a_run_that_is_still_going_is_not_recovered(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with LoggingServer(gap_s=0.05) as server:
        with Command("run", "-u", server.url, *LOAD, "-o", run, cwd=tmp_path) as command:
            command.until("stage 1/1")
            wait_for(server, 20)
            with pytest.raises(UsageError, match="still going"):
                recover(run)
            command.kill_all()
        recover(run)

    assert len(records_of(run)) >= 20
