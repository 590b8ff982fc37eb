"""A worker process: one event loop, one client, one spool; told what to do over its standard input.

It ignores Ctrl-C (the parent decides) and ends, its spool flushed, when the parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from benchlab.clients.apis import make_dialect
from benchlab.clients.base import Timeouts
from benchlab.clients.endpoint import parse_endpoint
from benchlab.clients.stamps import Stamps
from benchlab.clients.transports import make_client, resolve_transport
from benchlab.clock import SystemClock
from benchlab.errors import BenchlabError
from benchlab.loadgen.closed_loop import ClosedLoop
from benchlab.loadgen.counters import CounterPage
from benchlab.loadgen.driver import Driver
from benchlab.loadgen.job import Failed, Quit, Ready, StageJob, StopStage, ToWorker, WorkerJob, receive_in_worker, send
from benchlab.loadgen.open_loop import OpenLoop
from benchlab.loadgen.plan import LoadPlan
from benchlab.loadgen.session_graph import SessionGraph, find_needs
from benchlab.loadgen.sessions import Sessions
from benchlab.records.lean import keep_pandas_out
from benchlab.records.record import Identity
from benchlab.records.recorder import Recorder
from benchlab.records.schema import requests_batch
from benchlab.records.spool import Spool
from benchlab.workload.item import WorkloadItem
from benchlab.workload.text import salted

_TRACK_S = 0.5


def main() -> int:
    """Serve the parent until it says quit or is gone. Returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a signal to the whole group is the parent's to answer
        signal.signal(number, signal.SIG_IGN)
    keep_pandas_out()
    commands, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the messages
    job = receive_in_worker(commands)
    if not isinstance(job, WorkerJob):
        return 0
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(job, commands, replies, "uvloop"))
    except ImportError:
        asyncio.run(_serve(job, commands, replies, "asyncio"))
    except BenchlabError as error:
        with contextlib.suppress(OSError):
            send(replies, Failed(error.what, error.where, error.hint, int(error.exit_code)))
        return int(error.exit_code)
    return 0


async def _serve(job: WorkerJob, commands: IO[bytes], replies: IO[bytes], loop_name: str) -> None:
    clock = SystemClock()
    transport = resolve_transport(job.transport)
    stamps = Stamps(clock, kernel=job.kernel_stamps and transport == "native")
    dialect = make_dialect(job.api, job.model, job.extra)
    timeouts = Timeouts(job.connect_timeout_ns, job.first_content_timeout_ns, job.gap_timeout_ns, job.total_timeout_ns)
    endpoint = parse_endpoint(job.url)
    client = make_client(
        transport,
        endpoint,
        dialect,
        clock=clock,
        headers=job.headers,
        timeouts=timeouts,
        stamps=stamps,
        sources=job.source_addresses,
    )
    for item in job.items:
        client.prepare(item)
    spool = Spool(Path(job.spool), job.worker, keep_text=job.keep_text)
    driver = Driver(
        client,
        item_at=ItemSource(job),
        spool=spool,
        counters=CounterPage(Path(job.counters), create=False),
        clock=clock,
        t0_ns=job.t0_ns,
        worker=job.worker,
        host=job.host,
        keep_text=job.keep_text,
    )
    needs = find_needs(job.items)
    graph = SessionGraph(job.items, needs) if any(needs) else None
    tracker = asyncio.get_running_loop().create_task(_track(stamps))
    queue = _commands(commands)
    _rehearse()
    gc.collect()
    gc.freeze()  # what lives for the whole run is not worth looking at again
    gc.set_threshold(50_000, 50, 100)
    send(replies, Ready(loop=loop_name, stamp_source="kernel" if stamps.kernel else "callback"))
    try:
        while not isinstance(message := await queue.get(), Quit):
            if isinstance(message, StageJob):  # a stop may come when this worker's slice is done already
                await _stage(message, graph, driver, stamps, queue, replies)
    finally:
        tracker.cancel()
        try:
            spool.close()
        finally:
            await client.close()


def _rehearse() -> None:
    """Make a batch for nothing: what pyarrow imports at its first one is a wait that no stage may bear."""
    requests_batch([Recorder(Identity("rehearsal", -1, "", 0)).record(0)])


async def _stage(
    stage: StageJob,
    graph: SessionGraph | None,
    driver: Driver,
    stamps: Stamps,
    queue: asyncio.Queue[ToWorker],
    replies: IO[bytes],
) -> None:
    """Run one stage while listening for a stop; a parent that is gone stops it without a drain."""
    num_steps = len(stamps.steps)
    running = asyncio.create_task(driver.run(stage, make_plan(stage, graph=graph)))
    while not running.done():
        listening = asyncio.create_task(queue.get())
        await asyncio.wait([running, listening], return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            break
        message = listening.result()
        if isinstance(message, StopStage):
            driver.stop(message.why, message.drain_ns)
        elif isinstance(message, Quit):
            driver.stop("the parent process is gone", 0)
            queue.put_nowait(message)
            break
    report = await running
    report.clock_steps_ns = stamps.steps[num_steps:]
    report.offset_error_ns = stamps.error_ns
    with contextlib.suppress(OSError):
        send(replies, report)


def make_plan(stage: StageJob, items: Sequence[WorkloadItem] = (), graph: SessionGraph | None = None) -> LoadPlan:
    """The plan that a stage's slice describes. Sessions need the workload's items, or their graph where it is known."""
    think = partial(stage.think.draw, stage.seed, stage.stage)
    if stage.sessions:
        return Sessions(
            graph or SessionGraph(items),
            offset=stage.offset,
            at_ns=stage.at_ns,
            numbers=stage.sequences,
            users=stage.users,
            count=stage.count,
            first=stage.first,
            step=stage.step,
            until_ns=stage.until_ns,
            think=think,
            keep_times=stage.keep_times,
        )
    if stage.kind == "open":
        return OpenLoop(stage.at_ns, stage.sequences, stage.sequences)
    return ClosedLoop(
        stage.users,
        lambda sequence: sequence,
        until_ns=stage.until_ns,
        count=stage.count,
        think_ns=stage.think.first if stage.think.law == "constant" else think,
        first=stage.first,
        step=stage.step,
    )


class ItemSource:
    """Position in the workload -> item. It goes round beyond its end; with a salt, each round has its own prompts.

    A salted prompt is made when it is asked for and kept by nobody: it is sent once, and a long run has very many.
    """

    def __init__(self, job: WorkerJob) -> None:
        self._items, self._salt = job.items, job.salt

    def __call__(self, position: int) -> WorkloadItem:
        turn, index = divmod(position, len(self._items))
        if turn == 0 or self._salt is None:
            return self._items[index]
        return salted(self._items[index], f"{self._salt}-{turn}")


def _commands(pipe: IO[bytes]) -> asyncio.Queue[ToWorker]:
    """Messages of the parent as a queue; its end comes as Quit."""
    queue: asyncio.Queue[ToWorker] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        while True:
            message = receive_in_worker(pipe)
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                loop.call_soon_threadsafe(queue.put_nowait, Quit() if message is None else message)
            if message is None or isinstance(message, Quit):
                return

    threading.Thread(target=read, name="commands", daemon=True).start()
    return queue


async def _track(stamps: Stamps) -> None:
    while True:
        await asyncio.sleep(_TRACK_S)
        stamps.track()


if __name__ == "__main__":
    sys.exit(main())
