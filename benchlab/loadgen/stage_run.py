"""One stage under way in one worker: what is due is sent, and every request gets exactly one record.

Wakes on "due, or one ended", nothing else. Knows neither the wire (the client does) nor the load shape (the plan).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchlab.loadgen.abandon import Abandon, CountingRecorder, rule_for
from benchlab.loadgen.counters import Counts
from benchlab.loadgen.job import StageJob
from benchlab.loadgen.permits import Permits
from benchlab.loadgen.plan import Dropped, Due, LoadPlan
from benchlab.loadgen.timer import WakeTimer
from benchlab.records.event import Outcome
from benchlab.records.record import Identity
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_S, format_duration
from benchlab.workload.item import WorkloadItem

if TYPE_CHECKING:
    from benchlab.loadgen.driver import Driver

ItemAt = Callable[[int], WorkloadItem]
"""From a position in the workload (which may lie beyond its end: it goes round) to the item to send."""


@dataclass(slots=True, eq=False)
class _Flight:
    """A request between its dispatch and its end. rule: by which it is given up on purpose, if it is to be."""

    due: Due
    item: WorkloadItem
    recorder: Recorder
    rule: Abandon | None = None
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    given_up: bool = False

    def give_up(self) -> None:
        """The user has had enough: the client closes the connection."""
        if self.task is not None and not self.task.done():
            self.given_up = True
            self.task.cancel()


class StageRun:
    """The state of one stage under way."""

    def __init__(self, driver: Driver, job: StageJob, plan: LoadPlan) -> None:
        self._driver, self._job, self._plan = driver, job, plan
        self._clock = driver.clock
        self._until_ns = job.until_ns
        self._drain_ns = job.drain_ns
        self._held: deque[_Flight] = deque()
        self._flights: dict[asyncio.Task[None], _Flight] = {}
        self._permits: Permits | None = None
        self._counts = Counts(stage=job.stage)
        self._sending = self._launching = True
        self._fault: Exception | None = None
        self._began: tuple[float, int, int] | None = None
        self._sent_all = asyncio.Event()
        self.peak_inflight = self.num_held = self.num_records = 0
        self.cpu_s = self.wall_s = 0.0
        self.events_sending = 0
        self.stopped: str | None = None
        self.stopped_ns: int | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        job = self._job
        self._timer = WakeTimer(loop, self._clock, self._pump, precise=job.precise)
        if job.permits is not None and job.max_inflight is not None:
            self._permits = Permits(
                Path(job.permits),
                self._driver.worker,
                workers=job.workers,
                cap=job.max_inflight,
                wake=self._next_held,
                name=f"permits-{job.stage}",
            )
        flusher = loop.create_task(self._flush_regularly())
        self._pump()
        try:
            await self._until_sent(flusher)
            await self._drain(flusher)
            if flusher.done():
                flusher.result()  # a disk that refuses is told, not swallowed
            if self._fault is not None:
                raise self._fault
        finally:
            flusher.cancel()
            self._timer.close()
            if self._permits is not None:
                self._permits.close()
            self._publish()

    def stop(self, why: str, drain_ns: int) -> None:
        if self._sending:
            self._cut_short(why, self._now())
        self._drain_ns = min(self._drain_ns, drain_ns)
        self._pump()
        self._give_up_held()

    def _cut_short(self, why: str, now: int) -> None:
        self.stopped, self.stopped_ns = why, max(now, 0)
        self._until_ns = now if self._until_ns is None else min(self._until_ns, now)
        self._plan.stop(now)

    # -- sending

    def _now(self) -> int:
        return self._clock.monotonic_ns() - self._job.start_ns

    def _pump(self) -> None:
        """Send what is due. The loop would only log an error: it ends the stage and is raised there."""
        if not self._sending:
            return
        try:
            self._send_due()
        except Exception as error:
            self._fault, self._drain_ns = error, 0
            self._stop_sending()
            self._give_up_held()

    def _send_due(self) -> None:
        """Send what is due, set the timer to what comes next, notice the end of the sending phase."""
        now = self._now()
        if self._began is None and now >= 0:
            events = self._driver.client.counts.events
            self._began = time.process_time(), self._clock.monotonic_ns(), events
        limit = self._job.limit_ns
        if limit is not None and now >= limit and self.stopped is None:
            self._cut_short(f"the stage limit of {format_duration(limit)} was over", now)
        until = self._until_ns
        for due in self._plan.take(now if until is None else min(now, until - 1)):
            self._dispatch(due)
        self._account_dropped()
        if (until is not None and now >= until) or self._exhausted():
            self._stop_sending()
            return
        wakes = [ns for ns in (self._plan.next_due_ns(), until, limit) if ns is not None]
        if wakes:
            self._timer.set_ns(self._job.start_ns + min(wakes))

    def _exhausted(self) -> bool:
        """Nothing is due, nothing can become due, and no clock has to run out first."""
        idle = not self._flights and not self._held
        return self._until_ns is None and self._plan.next_due_ns() is None and idle

    def _stop_sending(self) -> None:
        self._sending = False
        if self._began is not None:
            cpu, ns, events = self._began
            self.events_sending = self._driver.client.counts.events - events
            self.cpu_s, self.wall_s = time.process_time() - cpu, (self._clock.monotonic_ns() - ns) / NS_PER_S
        self._plan.stop(self._now())  # what follows an answer of the drain is no part of the stage
        self._account_dropped()
        if not self._job.held_in_drain:
            self._give_up_held()
        self._sent_all.set()

    def _give_up_held(self) -> None:
        self._launching = False
        if self._permits is not None:
            self._permits.nobody_waits()
        while self._held:
            flight = self._held.popleft()
            recorder = flight.recorder
            ns = self._clock.monotonic_ns()
            recorder.held_ns = ns - (recorder.dispatched_ns or ns)
            words = f"held back by --max-inflight {self._job.max_inflight} until the stage was over"
            recorder.fail(Outcome.NOT_SENT, words, ns=ns, kind="held")
            self._record(flight.due, recorder)

    def _identity(self, due: Due, item: WorkloadItem) -> Identity:
        driver, job = self._driver, self._job
        return Identity(
            request_id=job.request_id(due.sequence),
            stage=job.stage,
            item_id=item.id,
            intended_ns=job.start_ns + due.at_ns,
            session_id=item.session,
            turn=item.turn,
            tenant=item.tenant,
            tags=tuple(item.tags),
            requested_tokens=item.output_tokens,
            host=driver.host,
            worker=driver.worker,
        )

    def _dispatch(self, due: Due) -> None:
        driver, job = self._driver, self._job
        item = driver.item_at(job.offset + due.sequence)
        who = self._identity(due, item)
        flight = self._flight(due, item, who)
        recorder = flight.recorder
        ns = self._clock.monotonic_ns()
        recorder.dispatched_ns = ns
        self._counts.dispatched += 1
        driver.spool.begin(who, intended_ns=who.intended_ns - driver.t0_ns, dispatched_ns=ns - driver.t0_ns)
        if self._held or not self._may_launch(flight):
            self.num_held += 1
            self._held.append(flight)
        else:
            self._launch(flight)

    def _flight(self, due: Due, item: WorkloadItem, who: Identity) -> _Flight:
        job, keep_text = self._job, self._driver.keep_text
        rule = None
        if job.abandon or item.tags:
            rule = rule_for(job.abandon, item.tags, seed=job.seed, stage=job.stage, sequence=due.sequence)
        if rule is None or rule.tokens is None:
            return _Flight(due, item, Recorder(who, keep_text=keep_text), rule)
        recorder = CountingRecorder(who, rule.tokens, keep_text=keep_text)
        flight = _Flight(due, item, recorder, rule)
        recorder.enough = flight.give_up
        return flight

    def _may_launch(self, flight: _Flight) -> bool:
        """Whether the cap has a place for it now."""
        if self._permits is not None:
            return self._permits.take(flight.recorder.identity.intended_ns)
        return self._job.max_inflight is None or len(self._flights) < self._job.max_inflight

    def _launch(self, flight: _Flight) -> None:
        loop = asyncio.get_running_loop()
        flight.task = task = loop.create_task(self._serve(flight))
        if flight.rule is not None and flight.rule.after_ns is not None:
            flight.timer = loop.call_later(flight.rule.after_ns / NS_PER_S, flight.give_up)
        self._flights[task] = flight
        self.peak_inflight = max(self.peak_inflight, len(self._flights))
        self._publish()

    async def _serve(self, flight: _Flight) -> None:
        recorder = flight.recorder
        try:
            await self._driver.client.stream(flight.item, recorder)
        except asyncio.CancelledError:
            self._given_up(flight)
        except Exception as error:
            words = f"the client failed: {type(error).__name__}: {error}"
            recorder.fail(Outcome.ERROR_PROTOCOL, words[:500], ns=self._clock.monotonic_ns(), kind="client")
        finally:
            if flight.task is not None:
                self._flights.pop(flight.task, None)
            self._landed(flight)
            self._next_held()
            self._pump()

    def _given_up(self, flight: _Flight) -> None:
        """The request was cancelled: on purpose, or because the drain was over."""
        ns = self._clock.monotonic_ns()
        if flight.given_up and flight.rule is not None:
            flight.recorder.fail(Outcome.CANCELLED, flight.rule.words, ns=ns, kind="abandoned")
        else:
            words = f"still in flight when the drain of {format_duration(self._drain_ns)} was over"
            flight.recorder.fail(Outcome.UNFINISHED, words, ns=ns, kind="drain")

    def _landed(self, flight: _Flight) -> None:
        """A request that was launched has ended, one way or another."""
        if flight.timer is not None:
            flight.timer.cancel()
        if self._permits is not None:
            self._permits.give_back()
        self._record(flight.due, flight.recorder)

    def _next_held(self) -> None:
        while self._held and self._launching and self._may_launch(self._held[0]):
            flight = self._held.popleft()
            recorder = flight.recorder
            recorder.held_ns = self._clock.monotonic_ns() - (recorder.dispatched_ns or 0)
            self._launch(flight)
        if self._permits is not None and not self._held:
            self._permits.nobody_waits()

    # -- recording

    def _record(self, due: Due, recorder: Recorder) -> None:
        """The one record of a request, and the news of it to the plan."""
        record = recorder.record(self._driver.t0_ns)
        self._driver.spool.add(record, recorder.all_text() if self._driver.keep_text else None)
        self.num_records += 1
        counts = self._counts
        counts.ok += record.outcome is Outcome.OK
        counts.failed += record.outcome not in (Outcome.OK, Outcome.CANCELLED)
        counts.tokens += record.output_tokens or 0
        first_ns = recorder.first_visible_ns if record.outcome is Outcome.OK else None
        if first_ns is not None and recorder.sent_ns is not None:
            counts.ttft_us = (first_ns - recorder.sent_ns) // 1000
        self._publish()
        self._plan.ended(due, self._now(), record.outcome)
        self._account_dropped()

    def _account_dropped(self) -> None:
        """Records for requests that will never be due."""
        for dropped in self._plan.dropped():
            self._record_dropped(dropped)

    def _record_dropped(self, dropped: Dropped) -> None:
        driver, due = self._driver, dropped.due
        who = self._identity(due, driver.item_at(self._job.offset + due.sequence))
        recorder = Recorder(who)
        ns = max(self._clock.monotonic_ns(), who.intended_ns)
        recorder.fail(Outcome.NOT_SENT, dropped.why, ns=ns, kind=dropped.kind)
        driver.spool.add(recorder.record(driver.t0_ns))
        self.num_records += 1
        self._counts.failed += dropped.kind == "session"

    def _publish(self) -> None:
        self._counts.inflight, self._counts.held = len(self._flights), len(self._held)
        self._counts.events = self._driver.client.counts.events
        self._driver.page.put(self._counts)

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self._driver.spool.flush()

    # -- the end

    async def _until_sent(self, flusher: asyncio.Task[None]) -> None:
        waiter = asyncio.get_running_loop().create_task(self._sent_all.wait())
        await asyncio.wait([waiter, flusher], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if flusher.done():
            self._until_ns = self._drain_ns = 0
            self._stop_sending()
            self._give_up_held()

    async def _drain(self, flusher: asyncio.Task[None]) -> None:
        """Let what is in flight finish, then give up on it. A shorter drain may be ordered meanwhile (`stop`)."""
        start = self._clock.monotonic_ns()
        while (self._flights or self._held) and not flusher.done():
            left = self._drain_ns - (self._clock.monotonic_ns() - start)
            if left <= 0:
                break
            if self._flights:
                await asyncio.wait(self._flights, timeout=min(left / NS_PER_S, 0.2))
            else:  # another worker has all the permits
                await asyncio.sleep(min(left / NS_PER_S, 0.02))
        self._give_up_held()
        tasks = list(self._flights)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for flight in list(self._flights.values()):  # cancelled before its first step: it could not say so itself
            words = "given up before it was sent, since the drain was over"
            flight.recorder.fail(Outcome.NOT_SENT, words, ns=self._clock.monotonic_ns(), kind="drain")
            self._landed(flight)
        self._flights.clear()
