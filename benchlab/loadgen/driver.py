"""The live driver of one worker: stage after stage against one client, and a report of how the client fared in each.

It must not know the wire (the client does), the load shape (the plan does), nor how a stage goes (`stage_run`).
"""

from __future__ import annotations

from benchlab.clients.base import Client
from benchlab.clock import Clock
from benchlab.loadgen.counters import CounterPage
from benchlab.loadgen.job import StageJob, StageReport
from benchlab.loadgen.lag import LoopLag
from benchlab.loadgen.plan import LoadPlan
from benchlab.loadgen.stage_run import ItemAt, StageRun
from benchlab.records.spool import Spool


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
        self.client, self.item_at, self.spool, self.page = client, item_at, spool, counters
        self.clock, self.t0_ns, self.worker, self.host = clock, t0_ns, worker, host
        self.keep_text = keep_text
        self._stage: StageRun | None = None

    def stop(self, why: str, drain_ns: int) -> None:
        """End the running stage early: nothing more is sent, what is in flight may finish within `drain_ns`."""
        if self._stage is not None:
            self._stage.stop(why, drain_ns)

    async def run(self, job: StageJob, plan: LoadPlan) -> StageReport:
        """Run a stage to the end of its drain; every request that was due has a record in the spool then."""
        counts = self.client.counts
        before = (counts.events, counts.merged_events, counts.connections, counts.retries)
        lag = LoopLag(self.clock)
        stage = self._stage = StageRun(self, job, plan)
        lag.start()
        try:
            await stage.run()
        finally:
            self._stage = None
            lags = lag.stop()
            self.spool.flush()
        after = (counts.events, counts.merged_events, counts.connections, counts.retries)
        events, merged, connections, retries = (b - a for a, b in zip(before, after, strict=True))
        facts = plan.facts()
        return StageReport(
            stage=job.stage,
            worker=self.worker,
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
            sessions=facts.sessions,
            backoff_times=facts.backoff_times,
            backoff_ns=facts.backoff_ns,
        )
