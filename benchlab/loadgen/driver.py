"""The live driver: takes what is due from a plan, sends it, and gives every request exactly one record.

Wakes on "due, or one ended", nothing else. Knows neither the wire (the client does) nor the load shape (the plan).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from benchlab.clients.base import Client
from benchlab.clock import Clock
from benchlab.loadgen.counters import CounterPage, Counts
from benchlab.loadgen.job import StageJob, StageReport
from benchlab.loadgen.lag import LoopLag
from benchlab.loadgen.plan import Due, LoadPlan
from benchlab.loadgen.timer import WakeTimer
from benchlab.records.event import Outcome
from benchlab.records.record import Identity
from benchlab.records.recorder import Recorder
from benchlab.records.spool import Spool
from benchlab.units import NS_PER_S, format_duration
from benchlab.workload.item import WorkloadItem

ItemAt = Callable[[int], WorkloadItem]
"""From a position in the workload (which may lie beyond its end: it goes round) to the item to send."""


class Driver:
    """Runs one stage after another against one client."""

    def __init__(
        self,
        client: Client,
        *,
        item_at: ItemAt,
        spool: Spool,
        counters: CounterPage,
        clock: Clock,
        t0_ns: int,
        worker: int,
        host: str,
        keep_text: bool,
    ) -> None:
        self._client, self._item_at, self._spool, self._page = client, item_at, spool, counters
        self._clock, self._t0_ns, self._worker, self._host = clock, t0_ns, worker, host
        self._keep_text = keep_text
        self._stage: StageRun | None = None

    def stop(self, why: str, drain_ns: int) -> None:
        """End the running stage early: nothing more is sent, what is in flight may finish within `drain_ns`."""
        if self._stage is not None:
            self._stage.stop(why, drain_ns)

    async def run(self, job: StageJob, plan: LoadPlan) -> StageReport:
        """Run a stage to the end of its drain; every request that was due has a record in the spool then."""
        counts = self._client.counts
        before = (counts.events, counts.merged_events, counts.connections, counts.retries)
        lag = LoopLag(self._clock)
        stage = self._stage = StageRun(self, job, plan)
        lag.start()
        try:
            await stage.run()
        finally:
            self._stage = None
            lags = lag.stop()
            self._spool.flush()
        after = (counts.events, counts.merged_events, counts.connections, counts.retries)
        events, merged, connections, retries = (b - a for a, b in zip(before, after, strict=True))
        return StageReport(
            stage=job.stage,
            worker=self._worker,
            cpu_s=stage.cpu_s,
            wall_s=stage.wall_s,
            loop_lag_ms=lags,
            events=events,
            events_sending=stage.events_sending,
            merged_chunks=merged,
            connections=connections,
            retries=retries,
            peak_inflight=stage.peak_inflight,
            held=stage.num_held,
            requests=stage.num_records,
            max_inflight=job.max_inflight,
            clock_steps_ns=[],
            offset_error_ns=0,
            stopped=stage.stopped,
            stopped_ns=stage.stopped_ns,
        )


class StageRun:
    """The state of one stage under way."""

    def __init__(self, driver: Driver, job: StageJob, plan: LoadPlan) -> None:
        self._driver, self._job, self._plan = driver, job, plan
        self._clock = driver._clock
        self._until_ns = job.until_ns
        self._drain_ns = job.drain_ns
        self._held: deque[tuple[Due, WorkloadItem, Recorder]] = deque()
        self._tasks: dict[Recorder, tuple[Due, asyncio.Task[None]]] = {}
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
        self._timer = WakeTimer(loop, self._clock, self._pump)
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
            self._publish()

    def stop(self, why: str, drain_ns: int) -> None:
        now = self._now()
        if self._sending:
            self.stopped, self.stopped_ns = why, max(now, 0)
            self._until_ns = now if self._until_ns is None else min(self._until_ns, now)
            self._plan.stop(now)
        self._drain_ns = min(self._drain_ns, drain_ns)
        self._pump()
        self._give_up_held()

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
            events = self._driver._client.counts.events
            self._began = time.process_time(), self._clock.monotonic_ns(), events
        until = self._until_ns
        for due in self._plan.take(now if until is None else min(now, until - 1)):
            self._dispatch(due)
        if (until is not None and now >= until) or self._exhausted():
            self._stop_sending()
            return
        wakes = [ns for ns in (self._plan.next_due_ns(), until) if ns is not None]
        if wakes:
            self._timer.set_ns(self._job.start_ns + min(wakes))

    def _exhausted(self) -> bool:
        """Nothing is due, nothing can become due, and no clock has to run out first."""
        idle = not self._tasks and not self._held
        return self._until_ns is None and self._plan.next_due_ns() is None and idle

    def _stop_sending(self) -> None:
        self._sending = False
        if self._began is not None:
            cpu, ns, events = self._began
            self.events_sending = self._driver._client.counts.events - events
            self.cpu_s, self.wall_s = time.process_time() - cpu, (self._clock.monotonic_ns() - ns) / NS_PER_S
        if not self._job.held_in_drain:
            self._give_up_held()
        self._sent_all.set()

    def _give_up_held(self) -> None:
        self._launching = False
        while self._held:
            due, _, recorder = self._held.popleft()
            ns = self._clock.monotonic_ns()
            recorder.held_ns = ns - (recorder.dispatched_ns or ns)
            words = f"held back by --max-inflight {self._job.max_inflight} until the stage was over"
            recorder.fail(Outcome.NOT_SENT, words, ns=ns, kind="held")
            self._record(due, recorder)

    def _dispatch(self, due: Due) -> None:
        driver, job = self._driver, self._job
        item = driver._item_at(job.offset + due.sequence)
        who = Identity(
            request_id=f"s{job.stage}-{due.sequence}",
            stage=job.stage,
            item_id=item.id,
            intended_ns=job.start_ns + due.at_ns,
            session_id=item.session,
            turn=item.turn,
            tenant=item.tenant,
            tags=tuple(item.tags),
            requested_tokens=item.output_tokens,
            host=driver._host,
            worker=driver._worker,
        )
        recorder = Recorder(who, keep_text=driver._keep_text)
        ns = self._clock.monotonic_ns()
        recorder.dispatched_ns = ns
        self._counts.dispatched += 1
        driver._spool.begin(who, intended_ns=who.intended_ns - driver._t0_ns, dispatched_ns=ns - driver._t0_ns)
        if job.max_inflight is not None and len(self._tasks) >= job.max_inflight:
            self.num_held += 1
            self._held.append((due, item, recorder))
        else:
            self._launch(due, item, recorder)

    def _launch(self, due: Due, item: WorkloadItem, recorder: Recorder) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(due, item, recorder))
        self._tasks[recorder] = due, task
        self.peak_inflight = max(self.peak_inflight, len(self._tasks))
        self._publish()

    async def _serve(self, due: Due, item: WorkloadItem, recorder: Recorder) -> None:
        try:
            await self._driver._client.stream(item, recorder)
        except asyncio.CancelledError:
            words = f"still in flight when the drain of {format_duration(self._drain_ns)} was over"
            recorder.fail(Outcome.UNFINISHED, words, ns=self._clock.monotonic_ns(), kind="drain")
        except Exception as error:
            words = f"the client failed: {type(error).__name__}: {error}"
            recorder.fail(Outcome.ERROR_PROTOCOL, words[:500], ns=self._clock.monotonic_ns(), kind="client")
        finally:
            self._tasks.pop(recorder, None)
            self._record(due, recorder)
            self._plan.ended(due, self._now())
            self._next_held()
            self._pump()

    def _next_held(self) -> None:
        cap = self._job.max_inflight
        while self._held and self._launching and (cap is None or len(self._tasks) < cap):
            due, item, recorder = self._held.popleft()
            recorder.held_ns = self._clock.monotonic_ns() - (recorder.dispatched_ns or 0)
            self._launch(due, item, recorder)

    # -- recording

    def _record(self, due: Due, recorder: Recorder) -> None:
        record = recorder.record(self._driver._t0_ns)
        self._driver._spool.add(record, recorder.all_text() if self._driver._keep_text else None)
        self.num_records += 1
        counts = self._counts
        counts.ok += record.outcome is Outcome.OK
        counts.failed += record.outcome is not Outcome.OK
        counts.tokens += record.output_tokens or 0
        first_ns = recorder.first_visible_ns if record.outcome is Outcome.OK else None
        if first_ns is not None and recorder.sent_ns is not None:
            counts.ttft_us = (first_ns - recorder.sent_ns) // 1000
        self._publish()

    def _publish(self) -> None:
        self._counts.inflight, self._counts.held = len(self._tasks), len(self._held)
        self._driver._page.put(self._counts)

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self._driver._spool.flush()

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
        while self._tasks and not flusher.done():
            left = self._drain_ns - (self._clock.monotonic_ns() - start)
            if left <= 0:
                break
            await asyncio.wait(self._running(), timeout=min(left / NS_PER_S, 0.2))
        self._give_up_held()
        tasks = self._running()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for recorder, (due, _) in self._tasks.items():  # cancelled before its first step: it could not say so itself
            words = "given up before it was sent, since the drain was over"
            recorder.fail(Outcome.NOT_SENT, words, ns=self._clock.monotonic_ns(), kind="drain")
            self._record(due, recorder)
        self._tasks.clear()

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for _, task in self._tasks.values()]
