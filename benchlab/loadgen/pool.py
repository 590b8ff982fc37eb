"""The parent's side: starts workers, gives each its slice of a stage, hears their reports. Never on the hot path."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from benchlab.errors import BenchlabError, Exit, StorageError, UsageError
from benchlab.loadgen.counters import CounterPage, Counts
from benchlab.loadgen.job import (
    Failed,
    FromWorker,
    Quit,
    Ready,
    StageJob,
    StageReport,
    StopStage,
    WorkerJob,
    receive_in_parent,
    send,
)

_READY_S = 60.0
_END_S = 5.0
_TICK_S = 0.1
_LOG_BYTES = 2000


class WorkerDiedError(BenchlabError):
    """A worker process ended on its own: what it had measured up to a second before is in its spool."""

    exit_code = Exit.INTERNAL


class _Worker:
    def __init__(self, job: WorkerJob, log: Path) -> None:
        self.job, self.log = job, log
        try:
            self.page = CounterPage(Path(job.counters), create=True)
            errors = log.open("wb")
        except OSError as error:
            raise StorageError(f"cannot be made: {error.strerror or error}", where=str(log.parent)) from error
        with errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchlab.loadgen.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for the parent; a worker ends when its commands do
            )
        self.listener: threading.Thread | None = None
        self.commands: IO[bytes] = self.process.stdin  # type: ignore[assignment]
        self.replies: IO[bytes] = self.process.stdout  # type: ignore[assignment]


class WorkerPool:
    """Worker processes for the length of a run. Use as a context manager: they are ended whatever happens."""

    lead_ns = 0
    """How much longer before its start a stage must be given out than to processes of this host."""
    lost = ""
    lost_workers: frozenset[int] = frozenset()
    """As `cluster_pool.ClusterPool`: here a worker that is lost ends the run."""

    def __init__(self, jobs: Sequence[WorkerJob], *, logs: Path) -> None:
        self._inbox: queue.Queue[tuple[int, FromWorker | None]] = queue.Queue()
        self._workers: list[_Worker] = []
        self.loop = self.stamp_source = ""
        try:
            for job in jobs:
                worker = _Worker(job, logs / f"worker-{job.worker}.log")
                self._workers.append(worker)
                worker.listener = threading.Thread(target=self._listen, args=(worker,), daemon=True)
                worker.listener.start()
                self._send(worker, job)
            for _ in jobs:
                ready = self._next(_READY_S)
                if not isinstance(ready, Ready):
                    raise WorkerDiedError("a worker did not become ready", where="load generator")
                self.loop, self.stamp_source = ready.loop, ready.stamp_source
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by entity name, for telemetry."""
        return {f"worker-{worker.job.worker}": worker.process.pid for worker in self._workers}

    def counts(self) -> Counts:
        """The workers' live counters, added up."""
        pages = [worker.page.get() for worker in self._workers]
        total = Counts(stage=pages[0].stage, ttft_us=max(page.ttft_us for page in pages))
        for page in pages:
            total.dispatched += page.dispatched
            total.inflight += page.inflight
            total.held += page.held
            total.ok += page.ok
            total.failed += page.failed
            total.tokens += page.tokens
            total.events += page.events
        return total

    def run_stage(self, jobs: Sequence[StageJob], tick: Callable[[], None]) -> list[StageReport]:
        """Run one stage, a slice a worker; `tick` is called ten times a second meanwhile and may raise."""
        for worker, job in zip(self._workers, jobs, strict=True):
            self._send(worker, job)
        reports: list[StageReport] = []
        while len(reports) < len(jobs):
            message = self._next(_TICK_S)
            if isinstance(message, StageReport):
                reports.append(message)
            tick()
        return sorted(reports, key=lambda report: report.worker)

    def stop_stage(self, why: str, drain_ns: int) -> None:
        """Tell every worker to send nothing more and to drain for at most `drain_ns`."""
        for worker in self._workers:
            with contextlib.suppress(WorkerDiedError):
                self._send(worker, StopStage(why, drain_ns))

    def close(self) -> None:
        """Tell the workers to quit, wait for their spools, end what is left."""
        for worker in self._workers:
            with contextlib.suppress(OSError, ValueError):
                send(worker.commands, Quit())
            with contextlib.suppress(OSError, ValueError):
                worker.commands.close()  # also when that failed: its end says the same
        deadline = time.monotonic() + _END_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.send_signal(signal.SIGKILL)
                worker.process.wait()
            if worker.listener is not None:
                worker.listener.join(_END_S)
            worker.page.close()
        self._workers = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, worker: _Worker, message: WorkerJob | StageJob | StopStage) -> None:
        try:
            send(worker.commands, message)
        except (OSError, ValueError):
            raise self._died(worker) from None

    def _listen(self, worker: _Worker) -> None:
        index = worker.job.worker
        with worker.replies:
            while (message := receive_in_parent(worker.replies)) is not None:
                self._inbox.put((index, message))
        self._inbox.put((index, None))

    def _next(self, timeout_s: float) -> FromWorker | None:
        try:
            index, message = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(message, Failed):
            kind = {int(Exit.USAGE): UsageError, int(Exit.INTERNAL): StorageError}.get(message.exit_code, BenchlabError)
            raise kind(message.what, where=message.where, hint=message.hint)
        if message is None:
            raise self._died(next(worker for worker in self._workers if worker.job.worker == index))
        return message

    def _died(self, worker: _Worker) -> WorkerDiedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(1.0)
        tail = worker.log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace").strip() if worker.log.exists() else ""
        last = tail.splitlines()[-1] if tail else "it said nothing"
        return WorkerDiedError(
            f"worker {worker.job.worker} ended on its own (exit code {worker.process.poll()}): {last}",
            where=str(worker.log),
            hint="what it had measured is kept; `benchlab recover` turns the spool into a run",
        )
