"""The rig of every measurement here: the truth server and the real worker processes, stage by stage.

The one idea: the client is measured as it is shipped: the same worker process, recorder, spool and counters that a
run has, against a server that knows when it wrote. It must not know what is made of the reports and records.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchlab.clock import SystemClock
from benchlab.doctor import truth
from benchlab.doctor.server import MODEL
from benchlab.errors import BenchlabError
from benchlab.loadgen.job import StageJob, StageReport, WorkerJob
from benchlab.loadgen.pool import WorkerPool
from benchlab.records import spool
from benchlab.records.record import Record
from benchlab.records.schema import records_from
from benchlab.units import NS_PER_MS, NS_PER_S
from benchlab.workload.item import WorkloadItem

_LEAD_NS = 120 * NS_PER_MS
_DRAIN_NS = 5 * NS_PER_S
_END_S = 5.0
_PROMPT = "Say something at length. " * 8


class TruthProcess:
    """The truth server in a process of its own. Use as a context manager; `order` takes effect before it returns."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "truth.bin"
        argv = [sys.executable, "-m", "benchlab.doctor.server", "--log", str(self.log)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._orders: IO[bytes] = self._process.stdin  # type: ignore[assignment]
        self._replies: IO[bytes] = self._process.stdout  # type: ignore[assignment]
        self._url: str | None = None

    @property
    def url(self) -> str:
        """Where it listens; waits until it does. Raises BenchlabError when it does not start."""
        if self._url is None:
            words = self._replies.readline().decode().split()
            if len(words) != 2 or words[0] != "ready":
                raise BenchlabError("the doctor's server did not start", where="benchlab.doctor.server")
            self._url = words[1]
        return self._url

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def order(self, words: str) -> None:
        """Give an order and wait until it is obeyed (`TruthServer.obey` has the words)."""
        assert self.url
        try:
            self._orders.write(words.encode() + b"\n")
            self._orders.flush()
        except OSError:
            pass
        if self._replies.readline().decode().strip() != f"done {words}":
            raise BenchlabError("the doctor's server ended on its own", where="benchlab.doctor.server")

    def truth(self) -> dict[str, truth.Written]:
        """Every answer that has ended so far, by request id."""
        self.order("dump")
        return truth.read(self.log)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._orders.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._replies.close()

    def __enter__(self) -> TruthProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class Stage:
    """One stage as it was run: the workers' reports, in order of their numbers."""

    number: int
    reports: list[StageReport]


class Rig:
    """A server and `workers` workers. `kernel_stamps`: for each worker, whether it asks the kernel for its times.

    tokens: output tokens of every request. Use as a context manager.
    """

    def __init__(self, *, workers: int, tokens: int, kernel_stamps: Callable[[int], bool] = lambda _: True) -> None:
        self._stack = contextlib.ExitStack()
        self._tokens = tokens
        try:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="benchlab-doctor-")))
            self._spool = folder / "spool"
            self._spool.mkdir()
            self.server = self._stack.enter_context(TruthProcess(folder))
            self._clock = SystemClock()
            self.t0_ns = self._clock.monotonic_ns()
            url = self.server.url
            jobs = [self._job(worker, url, kernel_stamps(worker)) for worker in range(workers)]
            self.pool = self._stack.enter_context(WorkerPool(jobs, logs=self._spool))
        except BaseException:
            self._stack.close()
            raise
        self.stages: list[Stage] = []
        self.workers = workers

    def _job(self, worker: int, url: str, kernel: bool) -> WorkerJob:
        items = [WorkloadItem(id=f"d{n}", prompt=_PROMPT, output_tokens=self._tokens) for n in range(4)]
        return WorkerJob(
            worker=worker,
            host="doctor",
            t0_ns=self.t0_ns,
            spool=str(self._spool),
            counters=str(self._spool / f"worker-{worker}.counters"),
            url=url,
            api="chat",
            model=MODEL,
            headers={},
            extra={},
            items=items,
            kernel_stamps=kernel,
        )

    def closed(self, users: int, seconds: float, *, workers: list[int] | None = None) -> Stage:
        """A closed loop of so many users (in all) for so long, shared by these workers (all of them if not said)."""
        busy = list(range(self.workers)) if workers is None else workers

        def job(worker: int, plain: dict[str, Any]) -> StageJob:
            if worker not in busy:
                return StageJob(**plain, kind="closed", count=0, step=1)
            place = busy.index(worker)
            mine = list(range(place, users, len(busy)))
            return StageJob(**plain, kind="closed", users=mine, first=place, step=len(busy))

        return self._run(job, seconds)

    def open(self, rate: float, seconds: float, *, workers: list[int] | None = None) -> Stage:
        """`rate` requests a second on each of these workers, evenly, for so long."""
        busy = list(range(self.workers)) if workers is None else workers
        number = max(1, round(rate * seconds))

        def job(worker: int, plain: dict[str, Any]) -> StageJob:
            if worker not in busy:
                return StageJob(**plain, kind="open")
            place = busy.index(worker)
            at = (np.arange(number) + place / len(busy)) * (NS_PER_S / rate)
            sequences = range(place, number * len(busy), len(busy))
            return StageJob(**plain, kind="open", at_ns=[int(ns) for ns in at], sequences=list(sequences))

        return self._run(job, seconds)

    def _run(self, job: Callable[[int, dict[str, Any]], StageJob], seconds: float) -> Stage:
        number = len(self.stages)
        plain = {
            "stage": number,
            "start_ns": self._clock.monotonic_ns() + _LEAD_NS,
            "until_ns": round(seconds * NS_PER_S),
            "drain_ns": _DRAIN_NS,
            "offset": 0,
        }
        reports = self.pool.run_stage([job(worker, plain) for worker in range(self.workers)], lambda: None)
        stage = Stage(number, reports)
        self.stages.append(stage)
        return stage

    def records(self, stages: Sequence[Stage]) -> dict[str, Record]:
        """The records of these stages by request id (their times are ns from `t0_ns`)."""
        table = spool.merge(self._spool, why_unfinished="the doctor's worker ended")
        wanted = pc.is_in(
            table.column("stage"), pa.array([stage.number for stage in stages], table.schema.field("stage").type)
        )
        return {record.request_id: record for record in records_from(table.filter(wanted))}

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
