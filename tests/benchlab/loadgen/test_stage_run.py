"""Sessions, limits and dead servers under the live driver: one record a request, whatever becomes of it."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import pytest

from benchlab.clients.apis import make_dialect
from benchlab.clients.base import ClientCounts
from benchlab.clients.endpoint import parse_endpoint
from benchlab.clients.stamps import Stamps
from benchlab.clients.transports import make_client
from benchlab.loadgen.closed_loop import LONGEST_PAUSE_NS, Backoff, ClosedLoop
from benchlab.loadgen.job import WorkerJob
from benchlab.loadgen.session_graph import in_sessions
from benchlab.loadgen.worker import ItemSource
from benchlab.records.event import Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_MS, NS_PER_S
from benchlab.workload.item import WorkloadItem
from tests.benchlab.loadgen.fake_client import CLOCK, Answer, FakeClient, closed_job, drive, open_job
from tests.benchlab.loadgen.logging_server import LoggingServer
from tests.benchlab.loadgen.test_sessions import DIAMOND, chat

CHATS = chat("a", 3, wait_s=0.05) + chat("b", 2) + DIAMOND[:1]


def end_ns(record: Record) -> int:
    assert record.end_ns is not None
    return record.end_ns


def test_turns_are_intended_when_the_answer_before_has_ended_and_the_pause_is_over(tmp_path: Path) -> None:
    job = open_job([0.0, 0.05, 0.1, 0.15], sessions=True)

    (done,) = drive(tmp_path, FakeClient(), job, items=CHATS)

    by_number = {int(record.request_id[3:]): record for record in done.records}
    assert done.outcomes() == {"ok": 9} and done.report.sessions == 4
    for number, record in by_number.items():
        if record.turn is not None and record.turn > 1:
            pause = 50 * NS_PER_MS if record.session_id == "a" else 0
            late = record.intended_ns - end_ns(by_number[number - 1]) - pause
            assert 0 <= late < 50 * NS_PER_MS
    assert [by_number[n].item_id for n in range(9)] == ["a1", "a2", "a3", "b1", "b2", "plan", "a1", "a2", "a3"]


def test_c26_a_failed_turn_leaves_its_followers_not_sent_and_counted(tmp_path: Path) -> None:
    client = FakeClient(lambda number: Answer(error=ValueError("bad")) if number == 0 else Answer())
    job = closed_job(1, count=3, sessions=True)

    (done,) = drive(tmp_path, client, job, items=CHATS)

    assert done.outcomes() == {"error_protocol": 1, "not_sent": 2, "ok": 3}
    lost = [record for record in done.records if record.outcome is Outcome.NOT_SENT]
    assert {record.error_kind for record in lost} == {"session"} and {r.turn for r in lost} == {2, 3}
    assert all("error_protocol" in (record.error or "") and record.dispatched_ns is None for record in lost)
    assert done.report.requests == 6 == len(done.records)


def test_what_a_timed_stage_did_not_come_to_lies_outside_it(tmp_path: Path) -> None:
    job = closed_job(2, until_s=0.3, sessions=True)

    (done,) = drive(tmp_path, FakeClient(Answer(gap_s=0.02)), job, items=in_sessions(chat("a", 9)))

    until = job.start_ns + (job.until_ns or 0) - done.t0_ns
    cut = [record for record in done.records if record.error_kind == "cut"]
    assert len(done.records) % 9 == 0 and cut
    assert all(record.intended_ns >= until for record in cut)
    assert all(record.intended_ns < until for record in done.records if record not in cut)


def test_a_session_that_is_stopped_is_accounted_for(tmp_path: Path) -> None:
    job = closed_job(2, count=40, sessions=True)

    (done,) = drive(
        tmp_path,
        FakeClient(Answer(gap_s=0.03)),
        job,
        items=chat("a", 5),
        meanwhile=lambda driver: driver.stop("interrupted", NS_PER_S),
        after_s=0.3,
    )

    assert done.report.stopped == "interrupted" and len(done.records) == 5 * (done.report.sessions or 0)
    assert {"ok", "not_sent"} == set(done.outcomes())


def test_a_counted_stage_that_hangs_is_ended_by_its_limit(tmp_path: Path) -> None:
    job = closed_job(3, count=100, limit_ns=200 * NS_PER_MS, drain_ns=100 * NS_PER_MS)

    (done,) = drive(tmp_path, FakeClient(Answer(gap_s=60)), job)

    assert done.outcomes() == {"unfinished": 3}
    assert done.report.stopped is not None and "stage limit of 200 ms" in done.report.stopped


class Dead:
    """Every connection is refused, at once."""

    def __init__(self) -> None:
        self.counts = ClientCounts()

    async def stream(self, item: WorkloadItem, recorder: Recorder) -> None:
        recorder.connect_start_ns = CLOCK.monotonic_ns()
        recorder.fail(Outcome.ERROR_CONNECT, "refused", ns=CLOCK.monotonic_ns(), kind="refused")

    async def close(self) -> None:
        pass


def test_a_dead_server_is_not_flooded(tmp_path: Path) -> None:
    (done,) = drive(tmp_path, Dead(), closed_job(2, until_s=0.6))  # type: ignore[arg-type]

    # pauses of 10, 20, 40, ... ms: six or seven fit in 0.6 s
    assert done.outcomes().keys() == {"error_connect"} and 6 <= len(done.records) <= 16
    assert done.report.backoff_times == len(done.records) and done.report.backoff_ns > 100 * NS_PER_MS


def test_pauses_grow_for_each_user_alone_and_are_forgotten() -> None:
    backoff = Backoff()

    grown = [backoff.after(1, Outcome.ERROR_CONNECT) for _ in range(40)]

    assert grown[:3] == [10 * NS_PER_MS, 20 * NS_PER_MS, 40 * NS_PER_MS] and max(grown) == grown[-1] == LONGEST_PAUSE_NS
    assert backoff.after(2, Outcome.ERROR_CONNECT) == 10 * NS_PER_MS
    assert backoff.after(1, Outcome.ERROR_HTTP) == 0 == backoff.after(1, Outcome.OK)
    assert backoff.after(1, Outcome.ERROR_CONNECT) == 10 * NS_PER_MS
    assert (backoff.times, backoff.ns) == (42, sum(grown) + 20 * NS_PER_MS)


def test_think_times_may_depend_on_user_and_turn() -> None:
    plan = ClosedLoop([0, 1], lambda s: s, think_ns=lambda user, turn: 100 * user + turn)
    first, second = plan.take(0)

    plan.ended(first, 10)
    plan.ended(second, 10)

    assert [due.at_ns for due in plan.take(10**9)] == [11, 111]


def test_salted_rounds_of_a_long_run_are_kept_by_nobody() -> None:
    items = [WorkloadItem(id="a", prompt="some words that stay"), WorkloadItem(id="b", prompt="others that stay")]
    job = WorkerJob(0, "h", 0, "s", "c", "http://x", "chat", "m", {}, {}, items, salt="pepper")
    source = ItemSource(job)

    third = source(5)

    assert source(1) is items[1]
    assert third.prompt != items[1].prompt and third.prompt == source(5).prompt
    assert source(3).prompt not in (third.prompt, items[1].prompt)
    assert third not in gc.get_referents(source) and len(gc.get_referents(source)) <= 3


def test_a_stage_of_sessions_behind_a_cap_loses_nothing(tmp_path: Path) -> None:
    job = open_job([0.0] * 6, sessions=True, max_inflight=2, held_in_drain=True)

    (done,) = drive(tmp_path, client := FakeClient(), job, items=CHATS)

    assert client.peak == 2 and set(done.outcomes()) == {"ok"} and len(done.records) == 12
    assert any(record.held_ns for record in done.records)


def test_precise_pacing_sends_the_same_and_never_early(tmp_path: Path) -> None:
    times = [n / 100 for n in range(30)]

    (done,) = drive(tmp_path, FakeClient(), open_job(times, precise=True))

    assert done.outcomes() == {"ok": 30}
    assert all((record.dispatched_ns or 0) >= record.intended_ns for record in done.records)


def test_a_precise_timer_that_is_set_anew_does_not_spin_until_then(tmp_path: Path) -> None:
    """Ends of requests set the timer again while an earlier wake-up of it is on its way."""
    times = [0.0] + [0.2 + n / 5 for n in range(2)]
    began = time.process_time()

    (done,) = drive(tmp_path, FakeClient(Answer(gap_s=0.001, chunks=100)), open_job(times, precise=True))

    assert done.outcomes() == {"ok": 3} and time.process_time() - began < 0.35


@pytest.mark.parametrize("transport", ["native", "aiohttp"])
def test_bodies_of_items_that_were_not_prepared_are_kept_by_nobody(transport: str) -> None:
    item, salted = WorkloadItem(id="a", prompt="x"), WorkloadItem(id="b", prompt="y", output_tokens=2)

    async def go(url: str) -> None:
        stamps = Stamps(CLOCK, kernel=False)
        client = make_client(transport, parse_endpoint(url), make_dialect("chat", "m", {}), clock=CLOCK, stamps=stamps)
        try:
            client.prepare(item)
            for _ in range(3):
                recorder = Recorder(Identity("preflight", 0, "b", 0))
                await client.stream(salted, recorder)
                assert recorder.outcome is Outcome.OK
            assert [kept for kept, _ in client._bodies._kept.values()] == [item]
        finally:
            await client.close()

    with LoggingServer(gap_s=0.001) as server:
        asyncio.run(go(server.url))
