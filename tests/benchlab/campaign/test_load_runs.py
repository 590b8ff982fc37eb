"""Whole runs of every new shape against a server that keeps its own log of what arrived."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from benchlab.campaign.execute import execute
from benchlab.campaign.replay import read_replay
from benchlab.campaign.spec import Load, RunSpec, Warmup
from benchlab.clients.base import Timeouts
from benchlab.errors import Exit, NotComparableError, UsageError
from benchlab.loadgen.abandon import Abandon
from benchlab.loadgen.arrivals import Arrival
from benchlab.records.manifest import read_json
from benchlab.records.record import Record
from benchlab.units import NS_PER_MS, NS_PER_S
from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import to_bytes
from tests.benchlab.campaign.test_execute import QUIET, records_of, rules, run, spec_for
from tests.benchlab.loadgen.logging_server import LoggingServer


def chats(folder: Path, sessions: int, turns: int, *, output_tokens: int = 4) -> Path:
    """A workload of conversations whose turns carry their whole messages."""
    items = [
        WorkloadItem(
            id=f"{session}.{turn}",
            session=f"s{session}",
            turn=turn,
            wait_s=0.02 if turn > 1 else None,
            messages=[{"role": "user", "content": f"session {session} turn {turn}"}],
            output_tokens=output_tokens,
        )
        for turn in range(1, turns + 1)
        for session in range(sessions)  # not next to each other in the file
    ]
    path = folder / "chats.jsonl"
    path.write_bytes(to_bytes(items))
    return path


def turns_in_order(records: list[Record], wait_ns: int) -> None:
    for _, group in itertools.groupby(
        sorted(records, key=lambda r: (r.stage, int(r.request_id.partition("-")[2]))),
        key=lambda r: (r.stage, (int(r.request_id.partition("-")[2])) // 4),
    ):
        session = list(group)
        assert [r.turn for r in session] == [1, 2, 3, 4] and len({r.worker for r in session}) == 1
        for before, after in itertools.pairwise(session):
            assert before.end_ns is not None and after.intended_ns >= before.end_ns + wait_ns


def test_sessions_are_whole_in_order_and_on_one_worker(tmp_path: Path) -> None:
    data = chats(tmp_path, 6, 4)
    loads = (Load("open", rate=20.0), Load("closed", concurrency=3))
    with LoggingServer(gap_s=0.005) as server:
        outcome = run(server, tmp_path / "run", *loads, data=data, workers=2, requests=20, warmup=Warmup())

    records = records_of(tmp_path / "run")
    assert outcome.error is None and {"ok"} == {r.outcome.value for r in records} and len(records) == 40
    turns_in_order(records, 20 * NS_PER_MS)
    assert {"pass"} == rules(outcome, "whole_sessions") == rules(outcome, "complete_records")
    # the second stage goes on in the workload: session 5, then round again
    first = [r.item_id for r in records if r.stage == 1 and r.turn == 1]
    assert {"5.1", "0.1", "1.1", "2.1", "3.1"} == set(first)
    assert [entry["planned"] for entry in read_json(tmp_path / "run" / "manifest.json")["stages"]] == [20, 20]


def test_c26_sessions_of_failed_turns_are_counted_and_the_run_compares_with_no_other(tmp_path: Path) -> None:
    data = chats(tmp_path, 8, 5, output_tokens=30)
    more = {"data": data, "requests": 40, "warmup": Warmup(), "timeouts": Timeouts(total_ns=400 * NS_PER_MS)}
    with LoggingServer(gap_s=0.03, chunks=30) as server:  # no answer of a turn is whole within the client's time
        outcome = run(server, tmp_path / "run", Load("open", rate=40.0), **more)

    records = records_of(tmp_path / "run")
    assert Counter(r.outcome.value for r in records) == {"timeout": 8, "not_sent": 32}
    assert {"warn"} == rules(outcome, "whole_sessions") and {"pass"} == rules(outcome, "rate_held")
    figures = outcome.summary["stages"][0]
    assert figures["condition"] == "errored" and figures["attempted"] == 40


@pytest.mark.parametrize("load", [Load("closed", concurrency=2), Load("open", rate=30.0)], ids=["closed", "open"])
def test_a_server_that_dies_ends_the_run_by_a_rule_and_is_not_flooded(tmp_path: Path, load: Load) -> None:
    with LoggingServer(gap_s=0.01) as server:
        killer = threading.Timer(1.2, server.close)
        killer.start()
        more = {"duration_ns": 60 * NS_PER_S, "abort_ns": NS_PER_S, "warmup": Warmup()}
        began = time.monotonic()
        outcome = run(server, tmp_path / "run", load, load, **more)
        killer.join()

    assert time.monotonic() - began < 30
    assert outcome.error is not None and outcome.error.exit_code == Exit.ABORTED
    entry, later = read_json(tmp_path / "run" / "manifest.json")["stages"]
    assert "every request has failed for 1" in entry["why"] and entry["aborted"] and "start_ns" not in later
    figures = outcome.summary["stages"][0]
    assert figures["condition"] == "errored"
    records = records_of(tmp_path / "run")
    failed = [r for r in records if r.outcome.value == "error_connect"]
    if load.kind == "closed":
        assert len(failed) < 60  # a second of refusals at full speed would be thousands
        (worker,) = entry["workers"]
        assert worker["backoff"]["times"] >= len(failed) - 2 and worker["backoff"]["ns"] > 0


def test_the_cap_holds_over_all_workers_and_its_waiting_is_seen(tmp_path: Path) -> None:
    with LoggingServer(gap_s=0.02, chunks=4) as server:
        outcome = run(server, tmp_path / "run", Load("open", rate=120.0), requests=45, workers=3, max_inflight=2, osl=4)

    records = records_of(tmp_path / "run")
    assert {"ok"} == {r.outcome.value for r in records}
    edges = sorted(edge for r in records for edge in ((r.sent_ns or 0, 1), ((r.end_ns or 0), -1)))
    assert max(itertools.accumulate(step for _, step in edges)) == 2 and {r.worker for r in records} == {0, 1, 2}
    assert sum(r.held_ns > 0 for r in records) > 20 and {"fail"} == rules(outcome, "inflight_cap")
    # who has waited longest goes first, whichever worker it is on
    order = [r.intended_ns for r in sorted(records, key=lambda r: r.sent_ns or 0)]
    overtaken = sum(later < earlier - 100 * NS_PER_MS for earlier, later in itertools.pairwise(order))
    assert overtaken <= 3


def test_abandoned_requests_close_their_connection_and_count_apart(tmp_path: Path) -> None:
    with LoggingServer(gap_s=0.02, chunks=6) as server:
        rule = (Abandon(None, 2, 0.4),)
        outcome = run(server, tmp_path / "run", Load("open", rate=60.0), requests=50, abandon=rule, warmup=Warmup())
        time.sleep(0.1)

    records = records_of(tmp_path / "run")
    cancelled = {r.request_id for r in records if r.outcome.value == "cancelled"}
    assert 8 < len(cancelled) < 35
    assert set(server.whole) == {r.request_id for r in records} - cancelled  # the server never got to their end
    figures = outcome.summary["stages"][0]
    assert figures["outcomes"]["cancelled"] == len(cancelled) and figures["condition"] in ("stable", "short")


def test_arrivals_at_the_server_follow_the_timetable(tmp_path: Path) -> None:
    """KS of what the server's log says arrived, against the timetable that was drawn (its law has tests of its own)."""
    with LoggingServer(gap_s=0.001, chunks=2) as server:
        run(server, tmp_path / "run", Load("open", rate=50.0), requests=200, osl=2, workers=2, warmup=Warmup())
        begun = dict(server.begun)

    records = {r.request_id: r for r in records_of(tmp_path / "run")}
    assert set(begun) == set(records)
    intended = np.sort([r.intended_ns for r in records.values()]) / NS_PER_S
    arrived = np.sort(list(begun.values()))
    shift = np.median(arrived - intended)
    assert stats.ks_2samp(arrived - shift, intended).statistic < 0.05
    gaps = stats.ks_2samp(np.diff(arrived), np.diff(intended))
    assert gaps.statistic < 0.2  # a busy host moves small gaps; a client that paces by sleeping fails by far more
    drift = (arrived[-1] - arrived[0]) - (intended[-1] - intended[0])
    assert abs(drift) < 0.5


def test_c25_the_clock_of_the_schedule_begins_when_every_worker_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set-up, and a worker that takes a second longer, are no part of the timetable: nothing comes in a burst."""
    slow = tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\nmkdir {tmp_path}/first 2>/dev/null || sleep 1\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr("benchlab.loadgen.pool.sys", SimpleNamespace(executable=str(slow)))
    load = Load("open", rate=50.0, arrival=Arrival("constant"))
    with LoggingServer(gap_s=0.001, chunks=2) as server:
        run(server, tmp_path / "run", load, duration_ns=2 * NS_PER_S, osl=2, workers=2, warmup=Warmup())
        begun = np.sort(list(server.begun.values()))

    assert len(begun) == 100
    # of a schedule that began with the set-up, fifty would come at once
    assert max(np.searchsorted(begun, begun + 0.2, side="left") - np.arange(100)) <= 25
    assert begun[-1] - begun[0] > 1.8


@pytest.mark.parametrize("made", [pytest.param(True, marks=pytest.mark.slow), False], ids=["made", "sessions"])
def test_a_stored_run_is_sent_again_as_it_was(tmp_path: Path, made: bool) -> None:
    more: dict = {} if made else {"data": chats(tmp_path, 5, 3), "isl": None, "osl": None}
    loads = (Load("open", rate=60.0), Load("closed", concurrency=3))
    with LoggingServer(gap_s=0.003) as server:
        run(server, tmp_path / "one", *loads, requests=15, seed=5, **more)
        before = sorted(server.prompts)
        server.begun.clear()
        server.prompts.clear()
        found = read_replay(tmp_path / "one")
        plain = RunSpec(
            found.loads, found.data, url=server.url, isl=found.isl, osl=found.osl, seed=found.seed, gpu="off"
        )
        again = replace(plain, scrape="off", out=tmp_path / "two", workers=2, replay=tmp_path / "one", report=False)
        execute(again, QUIET)

    assert sorted(server.prompts) == before
    one, two = (timetable(tmp_path / name) for name in ("one", "two"))
    assert one == two
    entry = read_json(tmp_path / "two" / "manifest.json")["stages"][1]
    assert entry["shape"]["replay"] and entry["kind"] == "open" and entry["complete"] is True


def timetable(path: Path) -> set[tuple[int, str, str]]:
    starts = {entry["stage"]: entry["start_ns"] for entry in read_json(path / "manifest.json")["stages"]}
    return {(r.intended_ns - starts[r.stage], r.request_id, r.item_id) for r in records_of(path)}


def test_a_replay_needs_the_workload_it_was_made_with(tmp_path: Path) -> None:
    data = chats(tmp_path, 4, 2)
    with LoggingServer(gap_s=0.002) as server:
        run(server, tmp_path / "one", Load("open", rate=60.0), requests=8, data=data, isl=None, osl=None)
        found = read_replay(tmp_path / "one")
        spec = spec_for(tmp_path / "two", *found.loads, url=server.url, replay=tmp_path / "one", data=data)
        data.write_bytes(b"\n".join(reversed(data.read_bytes().splitlines())) + b"\n")
        with pytest.raises(NotComparableError, match="does not hold"):
            execute(replace(spec, isl=None, osl=None), QUIET)
    data.unlink()
    with pytest.raises(UsageError, match="is not there"):
        read_replay(tmp_path / "one")


def test_many_connections_may_leave_from_many_addresses(tmp_path: Path) -> None:
    with LoggingServer(gap_s=0.005) as server:
        outcome = run(
            server,
            tmp_path / "run",
            Load("closed", concurrency=4),
            requests=12,
            source_addresses=("127.0.0.1", "127.0.0.9"),
        )

    assert outcome.error is None and {"ok"} == {r.outcome.value for r in records_of(tmp_path / "run")}
    assert read_json(tmp_path / "run" / "manifest.json")["client"]["source_addresses"] == ["127.0.0.1", "127.0.0.9"]
