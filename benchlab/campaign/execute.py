"""One run, from its specification to a judged run directory.

The order is fixed: check everything that can be checked, start the engine, ask the endpoint, send one request, then
load. Whatever ends the run after the first record (an interrupt, a full disk, an engine that dies), what was measured
is stored, judged and reported.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchlab.campaign.abort import FailingWatch
from benchlab.campaign.describe import first_manifest, item_row, worker_entry
from benchlab.campaign.engine_times import store_engine_times
from benchlab.campaign.finish import judge_and_report, stage_times, store_records, write_items
from benchlab.campaign.interrupt import Interrupt
from benchlab.campaign.leavings import keep_logs, remove_if_unused
from benchlab.campaign.load_workload import load_workload
from benchlab.campaign.place import find_place, open_pool
from benchlab.campaign.probe import Served, ask_models, choose_model, preflight
from benchlab.campaign.progress import Progress
from benchlab.campaign.spec import RunSpec
from benchlab.campaign.stages import (
    Stage,
    find_window,
    first_item,
    num_used,
    offered_rps,
    plan_stages,
    slices,
)
from benchlab.campaign.texts import run_texts
from benchlab.campaign.watch import find_sources, start_sampler, telemetry_facts
from benchlab.clients.apis import make_dialect
from benchlab.clients.endpoint import Endpoint, ignored_proxies, parse_endpoint
from benchlab.clock import SystemClock
from benchlab.errors import BenchlabError, Exit, StorageError, TargetError
from benchlab.launch.base import Engine, load_launch_file
from benchlab.loadgen.job import StageJob, StageReport, WorkerJob
from benchlab.loadgen.limits import choose_sources
from benchlab.records import spool
from benchlab.records.manifest import Manifest
from benchlab.records.schema import SAMPLES, samples_batch
from benchlab.records.store import drop_spool, new_run_directory, slug, write_manifest, write_parquet
from benchlab.telemetry.sampler import Sampler
from benchlab.units import NS_PER_MS, NS_PER_S
from benchlab.workload.item import WorkloadItem
from benchlab.workload.read import Workload

if TYPE_CHECKING:
    from benchlab.campaign.place import Pool
    from benchlab.loadgen.cluster import Cluster

_LEAD_NS = 300 * NS_PER_MS
_LEAD_NS_REQUEST = 1000
"""Between giving out a stage and its time zero, and how much longer for each of its due instants: the workers have
their slices before it."""


@dataclass(slots=True)
class Outcome:
    """What a run came to. `error` is what ended it early, if anything did."""

    path: Path
    summary: dict[str, Any]
    interrupted: Exit | None = None
    error: BenchlabError | None = None


def execute(spec: RunSpec, progress: Progress, judging: dict[str, Any] | None = None) -> Outcome:
    """Run it. `judging`: options of `judge` beside those of the spec (gates, baseline).

    Raises BenchlabError for what is found before any load was sent; later faults are in the Outcome.
    """
    workload = load_workload(spec)
    stages = plan_stages(spec, workload.items)
    connections = max((load.concurrency or spec.max_inflight or 0 for load in spec.loads), default=0)
    what = slug(spec.data.stem if spec.data else spec.recipe or "fixed", 20)
    name = f"{spec.engine.launch if spec.engine else 'run'}-{what}"
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        path, run_id = new_run_directory(spec.out, name=name, wall_ns=clock.wall_ns())
        stack.callback(remove_if_unused, path, interrupt)
        stack.enter_context(spool.held(path / "spool"))
        spec, cluster = find_place(spec, connections, progress.say, stack)
        engine = _start_engine(spec, path, progress, stack)
        url = engine.url if engine else spec.url or ""
        endpoint = parse_endpoint(url)
        if proxies := ignored_proxies(endpoint):
            progress.say(f"note: {', '.join(proxies)} not used: load goes to the endpoint itself")
        sources, words = choose_sources(connections or None, endpoint.host, spec.source_addresses)
        if words is not None:
            progress.say(f"note: {words}")
        spec = replace(spec, source_addresses=tuple(sources))
        if cluster is not None:
            cluster.check_endpoint(endpoint)
        served = ask_models(endpoint, spec.headers, spec.api)
        model = choose_model(spec.model or (spec.engine.model if spec.engine else None), served, endpoint)
        if engine and served.models:
            model = served.models[0]
        dialect = make_dialect(spec.api, model, spec.extra)
        first = preflight(
            endpoint,
            dialect,
            headers=spec.headers,
            timeouts=spec.timeouts,
            served=served,
            api=spec.api,
            transport=spec.transport,
        )
        if first.error_kind in ("limited", "shed"):
            progress.say(f"note: the first request was refused ({first.error}); going on")
        run = _Execution(spec, path, run_id, workload, stages, endpoint, model, served, engine, progress, interrupt)
        run.cluster, run.connections = cluster, connections
        run.judging = {"mode": spec.select, **(judging or {})}
        return run.go()


def _start_engine(spec: RunSpec, path: Path, progress: Progress, stack: contextlib.ExitStack) -> Engine | None:
    if spec.engine is None:
        return None
    progress.say(f"starting engine '{spec.engine.launch}' with {spec.engine.model}")
    engine = Engine.start(
        load_launch_file(spec.engine.launch),
        log=path / "engine.log",
        url=spec.url,
        model=spec.engine.model,
        threads=spec.engine.threads,
        port=spec.engine.port,
        args=spec.engine.args,
    )
    stack.enter_context(engine)
    progress.say(f"engine ready at {engine.url} after {engine.ready_s or 0:.1f} s")
    return engine


class _Execution:
    """The state of a run whose endpoint has answered."""

    def __init__(
        self,
        spec: RunSpec,
        path: Path,
        run_id: str,
        workload: Workload,
        stages: list[Stage],
        endpoint: Endpoint,
        model: str,
        served: Served,
        engine: Engine | None,
        progress: Progress,
        interrupt: Interrupt,
    ) -> None:
        self.spec, self.path, self.workload, self.stages = spec, path, workload, stages
        self.endpoint, self.model, self.served, self.engine = endpoint, model, served, engine
        self.progress, self.interrupt = progress, interrupt
        self.clock = SystemClock()
        self.t0_ns, wall_ns = self.clock.monotonic_ns(), self.clock.wall_ns()
        salt = f"{run_id}:{secrets.token_hex(4)}" if spec.cache == "cold" else None
        made = run_texts(workload, spec, endpoint, model, salt)
        self.items: list[WorkloadItem] = made.items
        self.salt = salt
        self.error: BenchlabError | None = None
        self.sources = find_sources(spec, endpoint, engine)
        self.judging: dict[str, Any] = {}
        self.cluster: Cluster | None = None
        self.connections = 0
        self._engine_checked = 0.0
        self.manifest: Manifest = first_manifest(
            spec,
            run_id=run_id,
            t0_ns=self.t0_ns,
            wall_ns=wall_ns,
            workload=workload,
            made_note=made.note() if made.asked else "",
            stages=stages,
            endpoint=endpoint,
            model=model,
            served=served,
            engine=engine,
        )

    def go(self) -> Outcome:
        """Load, then the end: the same end whether the load ran through or not."""
        for note in self.manifest["workload"]["notes"]:
            self.progress.say(f"workload: {note}")
        sampler: Sampler | None = None
        self.interrupt.loading = True
        try:
            with open_pool(
                self.cluster,
                [self._job(worker) for worker in range(self.spec.workers)],
                folder=self.path / "spool",
                manifest=self.manifest,
                connections=self.connections,
                say=self.progress.say,
            ) as pool:
                sampler = start_sampler(self.sources, pool.pids, self.t0_ns)
                try:
                    write_items(self.path, [item_row(item) for item in self.workload.items])
                    self._run_stages(pool)
                finally:
                    self.interrupt.ending = True
        except BenchlabError as error:
            self.error = error
        except KeyboardInterrupt:  # the second Ctrl-C: no drain, but what was measured is still stored
            self.interrupt.code = self.interrupt.code or Exit.INTERRUPTED
        finally:
            self.interrupt.ending = True
            if sampler is not None:
                sampler.stop()
        if not any("start_ns" in entry for entry in self.manifest["stages"]):  # nothing was sent: nothing to keep
            raise self.error or KeyboardInterrupt
        return self._end(sampler)

    def _job(self, worker: int) -> WorkerJob:
        limits = self.spec.timeouts
        return WorkerJob(
            worker=worker,
            host=self.manifest["host"]["name"],
            t0_ns=self.t0_ns,
            spool=str(self.path / "spool"),
            counters=str(self.path / "spool" / f"worker-{worker}.counters"),
            url=self.endpoint.base,
            api=self.spec.api,
            model=self.model,
            headers=self.spec.headers,
            extra=self.spec.extra,
            items=self.items,
            connect_timeout_ns=limits.connect_ns,
            first_content_timeout_ns=limits.first_content_ns,
            gap_timeout_ns=limits.gap_ns,
            total_timeout_ns=limits.total_ns,
            keep_text=self.spec.keep_text,
            kernel_stamps=self.spec.kernel_stamps,
            transport=self.spec.transport,
            salt=self.salt,
            source_addresses=list(self.spec.source_addresses),
        )

    def _run_stages(self, pool: Pool) -> None:
        offset = 0
        for stage in self.stages:
            if self.interrupt.code is not None or self.error is not None or pool.lost:
                return
            offset = first_item(stage, offset, len(self.items))
            offset += self._run_stage(pool, stage, offset)

    def _run_stage(self, pool: Pool, stage: Stage, offset: int) -> int:
        """One stage; returns how far it came in the workload."""
        entry = self.manifest["stages"][stage.index]
        total_s = None if stage.until_ns is None else stage.until_ns / NS_PER_S
        self.progress.stage(stage.index, len(self.stages), stage.load.name, stage.planned, total_s)
        start_ns = self.clock.monotonic_ns() + _LEAD_NS + pool.lead_ns + _LEAD_NS_REQUEST * len(stage.at_ns)
        entry["start_ns"] = start_ns - self.t0_ns
        for key, ns in (("w0_ns", stage.w0_ns), ("w1_ns", stage.w1_ns)):
            entry[key] = None if ns is None else start_ns - self.t0_ns + ns
        write_manifest(self.path, self.manifest)  # what `recover` would need if all ends here
        stopped: int | None = None
        failing = FailingWatch(self.spec.abort_ns)

        def tick() -> None:
            nonlocal stopped
            elapsed = (self.clock.monotonic_ns() - start_ns) / NS_PER_S
            counts = pool.counts()
            self.progress.tick(stage.load.name, max(0.0, elapsed), total_s, counts)
            if stopped is not None:
                return
            if self.interrupt.code is not None:
                stopped = self.clock.monotonic_ns()
                self.progress.say("interrupted: draining, then writing what was measured (again to skip the drain)")
                pool.stop_stage("interrupted", self.spec.drain_ns)
            elif (death := self._engine_death()) is not None:
                stopped = self.clock.monotonic_ns()
                self.error = death
                pool.stop_stage("the engine died", NS_PER_S)
            elif (found := failing.look(counts, self.clock.monotonic_ns())) is not None:
                stopped = self.clock.monotonic_ns()
                self.error = found
                entry["aborted"] = found.what
                pool.stop_stage(found.what, min(self.spec.drain_ns, NS_PER_S))

        permits = str(self.path / "spool")
        jobs = slices(stage, self.spec, start_ns=start_ns, offset=offset, permits=permits)
        try:
            reports = pool.run_stage(jobs, tick)
        except BaseException as error:  # a worker or a disk gave out, or the drain was skipped: what there is counts
            ended = self.clock.monotonic_ns() - self.t0_ns
            until = ended if stopped is None else max(stopped, start_ns) - self.t0_ns
            asked = isinstance(error, KeyboardInterrupt)
            entry |= {"drain_end_ns": ended, "w1_ns": min(entry["w1_ns"] or until, until)}
            entry["why"] = "interrupted" if asked else str(error).splitlines()[0]
            entry["planned"] = None if asked else stage.planned
            raise
        return self._stage_done(pool, stage, jobs, reports, offset)

    def _stage_done(
        self, pool: Pool, stage: Stage, jobs: list[StageJob], reports: list[StageReport], offset: int
    ) -> int:
        """What the workers' reports say of a stage, into its entry; returns how far it came in the workload."""
        entry = self.manifest["stages"][stage.index]
        early = next((report.stopped for report in reports if report.stopped), None)
        requests = sum(report.requests for report in reports)
        entry["workers"] = [worker_entry(report) for report in reports if report.worker not in pool.lost_workers]
        entry["drain_end_ns"] = self.clock.monotonic_ns() - self.t0_ns
        entry["complete"] = early is None and not pool.lost
        entry["why"] = early or pool.lost or None
        stops = [report.stopped_ns for report in reports if report.stopped_ns is not None]
        if stops:
            until = entry["start_ns"] + min(stops)
            entry["w1_ns"] = min(entry["w1_ns"] or until, until)
        if early is not None or stage.planned is None:
            entry["planned"] = requests
        begun = [report.requests if report.sessions is None else report.sessions for report in reports]
        used = num_used(jobs, begun, stage.graph)
        # with a cold cache every round of the workload has prompts of its own
        entry["repeated"] = 0 if self.salt else min(max(offset + used - len(self.items), 0), used)
        return used

    def _engine_death(self) -> BenchlabError | None:
        if self.engine is None or time.monotonic() - self._engine_checked < 1.0:
            return None
        self._engine_checked = time.monotonic()
        death = self.engine.died()
        if death is None:
            return None
        return TargetError(f"the engine ended during the run: {death.what}\n{death.log_tail}", hint=death.hint)

    def _end(self, sampler: Sampler | None) -> Outcome:
        self.progress.say("storing and judging")
        manifest = self.manifest
        self._engine_checked = 0.0
        self.error = self.error or self._engine_death()
        if self.error is None:
            with contextlib.suppress(BenchlabError):
                manifest["endpoint"]["models_at_end"] = ask_models(
                    self.endpoint, self.spec.headers, self.spec.api
                ).models
        if sampler is not None:
            manifest["telemetry"] = telemetry_facts(sampler, self.sources)
        if self.engine is not None:
            manifest["engine"] = self.engine.facts()
        try:
            return self._store(sampler)
        except StorageError as error:
            raise self.error or error from error

    def _store(self, sampler: Sampler | None) -> Outcome:
        manifest, path = self.manifest, self.path
        requests = store_records(
            path, keep_text=self.spec.keep_text, why_unfinished="the load generator ended while it was under way"
        )
        if self.error is None:
            told = store_engine_times(path, self.spec, self.endpoint, requests, self.t0_ns)
            manifest |= {} if told is None else {"engine_times": told}
        for stage, entry in zip(self.stages, manifest["stages"], strict=True):
            if "start_ns" in entry:
                intended, ends = stage_times(requests, stage.index, entry["start_ns"])
                w0, w1 = find_window(stage, intended, ends)
                w1 = min(w1, w1 if entry["w1_ns"] is None else entry["w1_ns"] - entry["start_ns"])
                entry["w0_ns"], entry["w1_ns"] = entry["start_ns"] + w0, entry["start_ns"] + max(w0, w1)
                entry["offered_rps"] = offered_rps(stage, w0, w1)
                if entry["planned"] is None:
                    entry["planned"] = len(intended)
        if sampler is not None:
            import pyarrow as pa

            table = pa.Table.from_batches([samples_batch(sampler.samples())], schema=SAMPLES)
            write_parquet(path / "telemetry.parquet", table)
        early = self.interrupt.code is not None
        manifest["state"] = "interrupted" if early else "aborted" if self.error else "complete"
        manifest["reason"] = "interrupted by the user" if early else str(self.error) if self.error else None
        write_manifest(path, manifest)
        summary = judge_and_report(path, report=self.spec.report, **self.judging)
        keep_logs(path)
        drop_spool(path)
        return Outcome(path, summary, self.interrupt.code, self.error)
