"""The live driver with a client that has no wire: one record a request, whatever happens."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from benchlab.errors import StorageError
from benchlab.loadgen.driver import Driver
from benchlab.loadgen.think import ThinkTime
from benchlab.records.event import Outcome
from benchlab.records.record import Record
from benchlab.records.spool import Spool
from benchlab.units import NS_PER_MS, NS_PER_S
from tests.benchlab.loadgen.fake_client import Answer, FakeClient, closed_job, drive, open_job


def even(rate: float, count: int) -> list[float]:
    return [n / rate for n in range(count)]


def sent_ns(record: Record) -> int:
    assert record.sent_ns is not None
    return record.sent_ns


def test_every_due_gets_exactly_one_record(tmp_path: Path) -> None:
    client = FakeClient()
    job = open_job(even(200, 100), until_s=0.5, offset=5)

    (done,) = drive(tmp_path, client, job)

    assert done.outcomes() == {"ok": 100}
    assert [f"s0-{n}" for n in range(100)] == sorted((r.request_id for r in done.records), key=lambda i: int(i[3:]))
    start = job.start_ns - done.t0_ns
    assert job.at_ns == [r.intended_ns - start for r in sorted(done.records, key=lambda r: int(r.request_id[3:]))]
    assert {f"i{(5 + int(r.request_id[3:])) % 8}" for r in done.records} == {r.item_id for r in done.records}
    assert all(r.item_id == f"i{(5 + int(r.request_id[3:])) % 8}" for r in done.records)
    assert (done.report.requests, done.report.held, done.report.stopped) == (100, 0, None)
    assert (done.counts.ok, done.counts.inflight, done.counts.dispatched, done.counts.failed) == (100, 0, 100, 0)
    assert done.report.events == 400 and done.report.peak_inflight == client.peak


def test_c19_sends_do_not_drift_when_each_costs_time(tmp_path: Path) -> None:
    class Costly(FakeClient):
        async def stream(self, item, recorder) -> None:
            time.sleep(0.002)
            recorder.sent_ns = time.monotonic_ns()
            recorder.finish_reason = "stop"
            recorder.end(time.monotonic_ns())

    client = Costly()

    (done,) = drive(tmp_path, client, open_job(even(100, 120)))

    late = [(r.dispatched_ns or 0) - r.intended_ns for r in done.records]
    assert min(late) >= 0
    # relative sleeps would end 240 ms late; the last third is no later than a busy host makes it
    assert sorted(late[80:])[20] < 100 * NS_PER_MS


def test_c14_latency_from_the_due_time_holds_the_wait_for_the_cap(tmp_path: Path) -> None:
    answer = Answer(gap_s=0.1, chunks=1)
    job = open_job(even(20, 4), until_s=0.2, max_inflight=1, held_in_drain=True)

    (done,) = drive(tmp_path, FakeClient(answer), job)

    assert done.outcomes() == {"ok": 4}
    records = sorted(done.records, key=lambda r: r.intended_ns)
    assert done.report.held == 3 and done.report.peak_inflight == 1
    for before, after in itertools.pairwise(records):
        assert before.end_ns is not None and sent_ns(after) >= before.end_ns
    waits = [sent_ns(r) - r.intended_ns for r in records]
    assert waits == sorted(waits) and waits[3] > 2 * waits[1] > 0
    for record in records:
        assert record.held_ns <= sent_ns(record) - record.intended_ns
        assert (record.end_ns or 0) - sent_ns(record) >= 0.1 * NS_PER_S - NS_PER_MS
    assert records[0].held_ns == 0 and all(r.held_ns > 30 * NS_PER_MS for r in records[1:])


def test_c28_what_the_cap_kept_back_to_the_end_of_a_timed_stage_is_not_sent(tmp_path: Path) -> None:
    job = open_job(even(50, 50), until_s=1.0, max_inflight=2)

    (done,) = drive(tmp_path, FakeClient(Answer(gap_s=0.2, chunks=1)), job)

    outcomes = done.outcomes()
    assert 50 == len(done.records) == done.report.requests
    assert 4 <= outcomes["ok"] <= 10 and outcomes["ok"] + outcomes["not_sent"] == 50
    unsent = [r for r in done.records if r.outcome is Outcome.NOT_SENT]
    assert all(r.error_kind == "held" and r.sent_ns is None and r.held_ns > 0 for r in unsent)
    assert done.counts.dispatched == 50 and done.counts.held == 0


def test_c23_a_stage_is_over_when_it_is_over(tmp_path: Path) -> None:
    client = FakeClient(Answer(gap_s=0.1, chunks=1))
    first = open_job(even(200, 100), until_s=0.5, max_inflight=10)
    second = open_job(even(20, 8), until_s=0.4, max_inflight=10, stage=1, offset=100)

    one, two = drive(tmp_path, client, first, second)

    assert {"ok", "not_sent"} == set(one.outcomes()) and len(one.records) == 100
    assert two.outcomes() == {"ok": 8}
    last_sent = max(r.sent_ns for r in one.records if r.sent_ns is not None) + one.t0_ns
    assert last_sent < first.start_ns + NS_PER_S // 2 + NS_PER_S // 10 < second.start_ns + NS_PER_S // 2
    assert max(r.end_ns or 0 for r in one.records) < min(r.intended_ns for r in two.records)


def test_c20_freed_places_are_taken_no_faster_than_they_free(tmp_path: Path) -> None:
    job = open_job(even(100, 16), until_s=0.16, max_inflight=4, held_in_drain=True)

    (done,) = drive(tmp_path, client := FakeClient(Answer(gap_s=0.1, chunks=1)), job)

    assert done.outcomes() == {"ok": 16} and client.peak == 4 == done.report.peak_inflight


def test_held_requests_of_a_counted_stage_are_given_up_with_its_drain(tmp_path: Path) -> None:
    job = open_job(even(100, 10), until_s=0.1, max_inflight=1, held_in_drain=True, drain_ns=NS_PER_S // 4)

    (done,) = drive(tmp_path, FakeClient(Answer(gap_s=0.1, chunks=1)), job)

    outcomes = done.outcomes()
    assert len(done.records) == 10 and outcomes["not_sent"] >= 6 and outcomes["ok"] >= 1
    assert outcomes.get("unfinished", 0) <= 1


def test_c103_what_the_drain_could_not_wait_for_keeps_its_chunks(tmp_path: Path) -> None:
    def answer(number: int) -> Answer:
        return Answer(gap_s=0.05, chunks=1200) if number == 1 else Answer(gap_s=0.05, chunks=2)

    (done,) = drive(tmp_path, FakeClient(answer), closed_job(2, until_s=1.0, drain_ns=NS_PER_S // 5))

    outcomes = done.outcomes()
    assert outcomes["unfinished"] == 1 and 3 <= outcomes["ok"] <= 11
    (cut,) = [r for r in done.records if r.outcome is Outcome.UNFINISHED]
    assert 8 <= len(cut.chunk_ns) <= 26 and cut.error_kind == "drain"
    assert (cut.end_ns or 0) - cut.intended_ns >= NS_PER_S


@pytest.mark.parametrize("users", [1, 5])
def test_a_closed_loop_keeps_so_many_in_flight(tmp_path: Path, users: int) -> None:
    client = FakeClient()

    (done,) = drive(tmp_path, client, closed_job(users, count=23))

    assert done.outcomes() == {"ok": 23} and users == client.peak == done.report.peak_inflight
    starts, ends = (sorted(ns) for ns in zip(*((r.sent_ns, r.end_ns) for r in done.records), strict=True))
    for n in range(users, 23):
        assert starts[n] >= ends[n - users]


def test_a_user_thinks_before_its_next(tmp_path: Path) -> None:
    (done,) = drive(tmp_path, FakeClient(), closed_job(1, count=4, think=ThinkTime(first=80 * NS_PER_MS)))

    assert done.outcomes() == {"ok": 4}
    records = sorted(done.records, key=lambda r: r.intended_ns)
    for before, after in itertools.pairwise(records):
        assert after.intended_ns - (before.end_ns or 0) >= 80 * NS_PER_MS


def test_a_client_that_raises_costs_one_record_and_no_more(tmp_path: Path) -> None:
    def answer(number: int) -> Answer:
        return Answer(error=ValueError("odd")) if number == 2 else Answer()

    (done,) = drive(tmp_path, FakeClient(answer), closed_job(2, count=9))

    assert done.outcomes() == {"error_protocol": 1, "ok": 8}
    (bad,) = [r for r in done.records if r.outcome is not Outcome.OK]
    assert "ValueError: odd" in (bad.error or "") and bad.error_kind == "client" and len(bad.chunk_ns) == 4


def test_a_stop_ends_the_sending_and_lets_the_rest_finish(tmp_path: Path) -> None:
    job = open_job(even(50, 500), until_s=10)

    (done,) = drive(
        tmp_path, FakeClient(Answer(0.1, 2)), job, meanwhile=lambda driver: driver.stop("why", NS_PER_S), after_s=0.5
    )

    assert {"ok"} == set(done.outcomes()) and 20 <= len(done.records) <= 60
    assert done.report.stopped == "why" and done.report.requests == len(done.records)
    stopped = done.report.stopped_ns or 0
    start = job.start_ns - done.t0_ns
    due = [ns for ns in job.at_ns if ns < stopped]
    assert due == sorted(r.intended_ns - start for r in done.records)


def test_a_stop_without_a_drain_keeps_what_came(tmp_path: Path) -> None:
    job = closed_job(4, until_s=10)
    client = FakeClient(Answer(0.05, 1000))

    (done,) = drive(tmp_path, client, job, meanwhile=lambda driver: driver.stop("now", 0), after_s=0.4)

    assert done.outcomes() == {"unfinished": 4} and all(r.chunk_ns for r in done.records)
    assert client.inflight == 0


def test_a_stop_that_comes_with_a_burst_loses_nothing(tmp_path: Path) -> None:
    """Requests that are launched and cancelled in the same breath never take their first step."""
    job = open_job([0.0] * 5 + [0.2] * 40, until_s=5, max_inflight=7)

    def late(driver: Driver) -> None:
        time.sleep(0.3)  # the loop was busy: all forty are due now, and so is the stop
        driver.stop("now", 0)

    (done,) = drive(tmp_path, FakeClient(Answer(0.5, 2)), job, meanwhile=late, after_s=0.1)

    assert 45 == len(done.records) == done.report.requests
    assert {"not_sent", "unfinished"} == set(done.outcomes())


def test_a_stop_before_the_start_sends_nothing(tmp_path: Path) -> None:
    job = open_job(even(50, 20), until_s=1)

    (done,) = drive(tmp_path, FakeClient(), job, meanwhile=lambda driver: driver.stop("early", NS_PER_S), after_s=-0.05)

    assert done.records == [] and done.report.stopped_ns == 0


def test_a_stop_during_the_drain_shortens_it(tmp_path: Path) -> None:
    job = open_job([0.0], until_s=0.1, drain_ns=60 * NS_PER_S)

    (done,) = drive(
        tmp_path, FakeClient(Answer(30, 1)), job, meanwhile=lambda driver: driver.stop("enough", 0), after_s=0.3
    )

    assert done.outcomes() == {"unfinished": 1}
    assert done.report.stopped is None  # the load was whole; only the wait was cut


def test_a_plan_that_fails_ends_the_stage_with_its_error(tmp_path: Path) -> None:
    job = open_job(even(50, 20), until_s=10)
    job.sequences[3] = None  # type: ignore[call-overload]

    with pytest.raises(TypeError):
        drive(tmp_path, FakeClient(), job)


class Full(Spool):
    """Refuses from the second flush on, as a full disk does."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        if self.flushes > 1:
            raise StorageError("cannot write records: No space left on device", where="x")
        super().flush()


@pytest.mark.parametrize(
    "job", [open_job(even(20, 1000), until_s=50), closed_job(3, until_s=50)], ids=["open", "closed"]
)
def test_a_full_disk_ends_the_stage_with_one_error(tmp_path: Path, job) -> None:
    began = time.monotonic()

    with pytest.raises(StorageError, match="No space"):
        drive(tmp_path, FakeClient(Answer(0.05, 2)), job, spool_class=Full)

    assert time.monotonic() - began < 20
    from benchlab.records import spool

    assert spool.merge(tmp_path / "spool", why_unfinished="lost").num_rows > 0  # what was written is kept


def test_records_reach_the_disk_while_the_stage_runs(tmp_path: Path) -> None:
    from benchlab.records import spool

    seen: list[int] = []

    def look(driver: Driver) -> None:
        seen.append(spool.merge(tmp_path / "spool", why_unfinished="lost").num_rows)

    (done,) = drive(tmp_path, FakeClient(), open_job(even(50, 100), until_s=2), meanwhile=look, after_s=1.5)

    assert len(done.records) == 100
    assert 15 <= seen[0] < 100  # all but the last second, at the least


def test_cpu_share_is_of_the_sending_phase(tmp_path: Path) -> None:
    (done,) = drive(tmp_path, FakeClient(Answer(1.2, 1)), open_job([0.0, 0.1], until_s=0.2))

    assert 0.1 < done.report.wall_s < 1.0 and done.report.cpu_s <= done.report.wall_s
