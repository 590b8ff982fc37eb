"""A client without a wire, and a driver around it in this process: the load generator's timing without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchlab.clients.base import ClientCounts
from benchlab.clock import SystemClock
from benchlab.loadgen.counters import CounterPage, Counts
from benchlab.loadgen.driver import Driver
from benchlab.loadgen.job import StageJob, StageReport
from benchlab.loadgen.worker import make_plan
from benchlab.records import spool
from benchlab.records.event import Kind
from benchlab.records.record import Record
from benchlab.records.recorder import Recorder
from benchlab.records.schema import records_from
from benchlab.records.spool import Spool
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem

CLOCK = SystemClock()
ITEMS = [WorkloadItem(id=f"i{n}", prompt="x", output_tokens=4) for n in range(8)]


@dataclass(frozen=True, slots=True)
class Answer:
    """`chunks` chunks, the first after `gap_s`, one every `gap_s`; then the end, or this exception."""

    gap_s: float = 0.01
    chunks: int = 4
    error: Exception | None = None


@dataclass(slots=True)
class FakeClient:
    """Answers each request as `answer` says, by its number from 0 in order of sending."""

    answer: Answer | Callable[[int], Answer] = field(default_factory=Answer)
    counts: ClientCounts = field(default_factory=ClientCounts)
    sent: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    inflight: int = 0
    peak: int = 0

    async def stream(self, item: WorkloadItem, recorder: Recorder) -> None:
        answer = self.answer if isinstance(self.answer, Answer) else self.answer(len(self.sent))
        self.sent.append(recorder.identity.request_id)
        self.items.append(item.id)
        self.inflight += 1
        self.peak = max(self.peak, self.inflight)
        try:
            recorder.sent_ns = CLOCK.monotonic_ns()
            for _ in range(answer.chunks):
                await asyncio.sleep(answer.gap_s)
                recorder.chunk(CLOCK.monotonic_ns(), Kind.CONTENT, text="a")
                self.counts.events += 1
            if answer.error is not None:
                raise answer.error
            recorder.finish_reason = "stop"
            recorder.end(CLOCK.monotonic_ns())
        finally:
            self.inflight -= 1

    async def close(self) -> None:
        pass


def open_job(times_s: Sequence[float], *, until_s: float | None = None, **more) -> StageJob:
    """A stage that is due at these seconds and lasts to `until_s`."""
    at_ns = [round(s * NS_PER_S) for s in times_s]
    until = None if until_s is None else round(until_s * NS_PER_S)
    plain = {"stage": 0, "kind": "open", "drain_ns": 10 * NS_PER_S, "offset": 0, "start_ns": 0}
    return StageJob(**(plain | more), until_ns=until, at_ns=at_ns, sequences=list(range(len(at_ns))))


def closed_job(users: int, *, count: int | None = None, until_s: float | None = None, **more) -> StageJob:
    """A closed loop of so many users."""
    until = None if until_s is None else round(until_s * NS_PER_S)
    plain = {"stage": 0, "kind": "closed", "drain_ns": 10 * NS_PER_S, "offset": 0, "start_ns": 0}
    return StageJob(**(plain | more), until_ns=until, users=list(range(users)), count=count)


@dataclass(slots=True)
class Driven:
    """What a stage left."""

    report: StageReport
    records: list[Record]
    t0_ns: int
    counts: Counts

    def outcomes(self) -> dict[str, int]:
        words = [record.outcome.value for record in self.records]
        return {word: words.count(word) for word in sorted(set(words))}


def drive(
    folder: Path,
    client: FakeClient,
    *jobs: StageJob,
    meanwhile: Callable[[Driver], object] | None = None,
    after_s: float = 0.0,
    spool_class: type[Spool] = Spool,
    items: Sequence[WorkloadItem] = ITEMS,
) -> list[Driven]:
    """Run stages one after another, each from 50 ms after it is given out, and read the spool back.

    meanwhile: called once, `after_s` after the start of the last stage.
    """

    async def go() -> list[tuple[StageReport, Counts]]:
        page = CounterPage(folder / "page", create=True)
        store = spool_class(folder / "spool", 0)
        driver = Driver(
            client,
            item_at=lambda position: items[position % len(items)],
            spool=store,
            counters=page,
            clock=CLOCK,
            t0_ns=t0_ns,
            worker=0,
            host="h",
            keep_text=False,
        )
        done: list[tuple[StageReport, Counts]] = []
        try:
            for job in jobs:
                job.start_ns = CLOCK.monotonic_ns() + NS_PER_S // 20
                if meanwhile is not None and job is jobs[-1]:
                    asyncio.get_running_loop().call_later(0.05 + after_s, meanwhile, driver)
                done.append((await driver.run(job, make_plan(job, items)), page.get()))
        finally:
            await client.close()
            store.close()
            page.close()
        return done

    t0_ns = CLOCK.monotonic_ns()
    done = asyncio.run(go())
    table = spool.merge(folder / "spool", why_unfinished="lost")
    records = list(records_from(table))
    assert [fault for record in records for fault in record.audit()] == []
    ids = [record.request_id for record in records]
    assert len(ids) == len(set(ids))
    return [
        Driven(report, [r for r in records if r.stage == job.stage], t0_ns, counts)
        for (report, counts), job in zip(done, jobs, strict=True)
    ]
