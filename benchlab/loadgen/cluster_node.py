"""One node's side of a run on several machines: the same workers as on one, under an agent that answers at once.

The one idea: the agent holds a WorkerPool on its own host with a spool on its own disk, and every request is timed
there and nowhere else. The parent asks for what is new (counters, bytes of the spool, reports); nothing is pushed, and
every question can be asked again. It must not know what carries the calls: it is a plain class (Ray makes it an actor).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

import benchlab
from benchlab.errors import BenchlabError, Exit
from benchlab.loadgen.counters import Counts
from benchlab.loadgen.job import Failed, Ready, StageJob, StageReport, WorkerJob
from benchlab.loadgen.limits import raise_descriptor_limit
from benchlab.loadgen.pool import WorkerPool
from benchlab.telemetry.host import host_facts
from benchlab.workload.item import WorkloadItem

MAX_PIECE_BYTES = 4 * 2**20
"""Of one answer: what is more comes with the next, so that no answer holds up the counters."""


@dataclass(slots=True)
class Piece:
    """Bytes of a spool file (or of a worker's log) from `offset` on."""

    name: str
    offset: int
    data: bytes


@dataclass(slots=True)
class News:
    """What the parent does not have yet. `reports`: of the stage given last, once every worker has ended it.

    more: there are further bytes to ask for now. failed: a worker or the disk gave out; nothing further runs here.
    """

    counts: Counts
    pieces: list[Piece] = field(default_factory=list)
    more: bool = False
    reports: list[StageReport] | None = None
    failed: Failed | None = None


class NodeAgent:
    """The workers of one node. No method takes long but `start` and `quit` (seconds), and none raises."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._janitor: IO[bytes] | None = None
        self._pool: WorkerPool | None = None
        self._stage: threading.Thread | None = None
        self._reports: list[StageReport] | None = None
        self._failed: Failed | None = None
        self._counts = Counts()

    def clock(self) -> tuple[int, int]:
        """(monotonic, wall) of this host now, ns."""
        return time.monotonic_ns(), time.time_ns()

    def facts(self) -> dict[str, Any]:
        """What this host is (`telemetry.host.host_facts`)."""
        return host_facts()

    def reach(self, host: str, port: int, timeout_s: float) -> str:
        """Empty if a connection to the endpoint can be opened from here, else why not."""
        try:
            with socket.create_connection((host, port), timeout_s):
                return ""
        except OSError as error:
            return error.strerror or str(error) or type(error).__name__

    def start(
        self, jobs: Sequence[WorkerJob], headers: dict[str, str], items: list[WorkloadItem], connections: int | None
    ) -> Ready | Failed:
        """Start a worker a job. Headers and items come apart from the jobs: the first are secret, the others large."""
        home = str(Path(benchlab.__file__).parents[1])  # workers are processes of their own and must find it too
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
        try:
            raise_descriptor_limit(connections)
            self._folder = folder = Path(tempfile.mkdtemp(prefix="benchlab-"))
            self._janitor = _janitor(folder)
            mine = [
                msgspec.structs.replace(
                    job,
                    headers=headers,
                    items=items,
                    spool=str(folder),
                    counters=str(folder / f"worker-{job.worker}.counters"),
                )
                for job in jobs
            ]
            self._pool = WorkerPool(mine, logs=folder)
        except BenchlabError as error:
            self.leave()
            return _failed(error)
        except OSError as error:
            self.leave()
            return Failed(f"no folder for its spool: {error.strerror or error}", tempfile.gettempdir(), "", 1)
        return Ready(loop=self._pool.loop, stamp_source=self._pool.stamp_source)

    def begin(self, jobs: Sequence[StageJob]) -> None:
        """Run a stage, a slice a worker, in the background. Its instants are on this host's monotonic clock."""
        self._reports = None
        self._stage = threading.Thread(target=self._run, args=(list(jobs),), name="stage", daemon=True)
        self._stage.start()

    def _run(self, jobs: list[StageJob]) -> None:
        try:
            if self._pool is not None:
                self._reports = self._pool.run_stage(jobs, lambda: None)
        except BenchlabError as error:
            self._close_pool()
            self._failed = _failed(error)
        except Exception as error:  # told to the parent: nobody else would hear of it
            self._close_pool()
            self._failed = Failed(f"{type(error).__name__}: {error}", "load generator", "", int(Exit.INTERNAL))

    def stop(self, why: str, drain_ns: int) -> None:
        """End the running stage early, as `WorkerPool.stop_stage`."""
        if self._pool is not None:
            self._pool.stop_stage(why, drain_ns)

    def news(self, have: dict[str, int]) -> News:
        """What is new; `have`: how many bytes of each file the parent holds."""
        reports, failed = self._reports, self._failed  # before the bytes: whoever sees them ended has all of them
        pool = self._pool
        if pool is not None and failed is None:
            self._counts = pool.counts()
        news = News(self._counts, reports=reports, failed=failed)
        left = MAX_PIECE_BYTES
        for path in self._files():
            offset = have.get(path.name, 0)
            size = path.stat().st_size
            if size <= offset:
                continue
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(min(left, size - offset))
            if data:
                news.pieces.append(Piece(path.name, offset, data))
                left -= len(data)
            news.more |= offset + len(data) < size
        return news

    def _files(self) -> list[Path]:
        if self._folder is None:
            return []
        return sorted([*self._folder.glob("worker-*.arrow"), *self._folder.glob("worker-*.log")])

    def quit(self) -> None:
        """End the workers, their spools flushed; `news` gives what is left of them afterwards."""
        self._close_pool()

    def _close_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._counts = pool.counts()
            pool.close()

    def leave(self) -> None:
        """Remove this run's files from this host."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._janitor is not None:
            self._janitor.close()
            self._janitor = None


def _janitor(folder: Path) -> IO[bytes] | None:
    """A process that removes the folder, its workers having ended, once what is returned is closed or this one gone.

    It is nobody's child: Ray kills those of an actor with it.
    """
    words = ["sh", "-c", 'exec 3<&0; (cat <&3 >/dev/null; sleep 5; rm -rf -- "$0") &', str(folder)]
    null = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True)
        process.wait()
        return process.stdin
    return None


def _failed(error: BenchlabError) -> Failed:
    return Failed(error.what, error.where, error.hint, int(error.exit_code))
