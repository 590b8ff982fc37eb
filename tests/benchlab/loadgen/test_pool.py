"""Real worker processes: one or three make the same run, none outlives the pool, and one that dies is told."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchlab.campaign.spec import Load, RunSpec, Warmup
from benchlab.campaign.stages import Stage, plan_stages, slices
from benchlab.errors import StorageError, UsageError
from benchlab.loadgen.arrivals import Arrival
from benchlab.loadgen.job import StageReport, WorkerJob
from benchlab.loadgen.pool import WorkerDiedError, WorkerPool
from benchlab.records import spool
from benchlab.records.record import Record
from benchlab.records.schema import records_from
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem
from tests.benchlab.loadgen.logging_server import LoggingServer

ITEMS = [
    WorkloadItem(id=f"row{n}", messages=[{"role": "user", "content": f"row {n}"}], output_tokens=8) for n in range(8)
]


def spec_for(*loads: Load, workers: int, **more) -> RunSpec:
    return RunSpec(loads, None, workers=workers, **({"warmup": Warmup(), "drain_ns": 5 * NS_PER_S} | more))


def jobs_for(folder: Path, url: str, workers: int, **more) -> list[WorkerJob]:
    (folder / "spool").mkdir(exist_ok=True)
    return [
        WorkerJob(
            worker=n,
            host="h",
            t0_ns=0,
            spool=str(folder / "spool"),
            counters=str(folder / "spool" / f"worker-{n}.counters"),
            url=url,
            api="chat",
            model="m",
            headers={},
            extra={},
            items=ITEMS,
            **more,
        )
        for n in range(workers)
    ]


def run_stages(
    folder: Path, url: str, spec: RunSpec, tick: Callable[[WorkerPool], None] = lambda pool: None
) -> tuple[list[list[StageReport]], list[Record], list[Stage]]:
    stages = plan_stages(spec, ITEMS)
    with WorkerPool(jobs_for(folder, url, spec.workers), logs=folder / "spool") as pool:
        pids = list(pool.pids.values())
        reports = []
        for stage in stages:
            jobs = slices(stage, spec, start_ns=time.monotonic_ns() + NS_PER_S // 3, offset=0)
            reports.append(pool.run_stage(jobs, lambda: tick(pool)))
    assert not any(alive(pid) for pid in pids)
    return reports, read(folder), stages


def read(folder: Path) -> list[Record]:
    return list(records_from(spool.merge(folder / "spool", why_unfinished="killed")))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_and_three_workers_make_the_same_run(tmp_path: Path) -> None:
    load = Load("open", rate=40.0)
    seen = []
    for workers in (1, 3):
        (folder := tmp_path / str(workers)).mkdir()
        with LoggingServer() as server:
            (reports,), records, _ = run_stages(folder, server.url, spec_for(load, workers=workers, requests=40))
        start = min(record.intended_ns for record in records)
        seen.append({(r.request_id, r.intended_ns - start, r.item_id) for r in records})
        assert 40 == len(records) == sum(report.requests for report in reports) == len(server.whole)
        assert list(range(workers)) == [report.worker for report in reports]
        assert {"ok"} == {r.outcome.value for r in records} and server.repeated == 0
        assert [fault for r in records for fault in r.audit()] == []

    assert seen[0] == seen[1]


@pytest.mark.slow
def test_c68_each_row_of_the_file_is_sent_once(tmp_path: Path) -> None:
    load = Load("open", rate=100.0, arrival=Arrival("constant"))
    with LoggingServer() as server:
        run_stages(tmp_path, server.url, spec_for(load, workers=4, requests=8))

    assert sorted(f"row {n}" for n in range(8)) == sorted(server.prompts)


def test_more_workers_than_users_or_places_lose_nothing(tmp_path: Path) -> None:
    loads = (Load("closed", concurrency=1), Load("open", rate=60.0))
    with LoggingServer(gap_s=0.005) as server:
        spec = spec_for(*loads, workers=3, requests=6, max_inflight=2)
        (closed, opened), records, _ = run_stages(tmp_path, server.url, spec)

    assert 6 == sum(report.requests for report in closed) == sum(report.requests for report in opened)
    assert {"ok"} == {record.outcome.value for record in records}
    assert sum(report.peak_inflight for report in opened) <= 2


def test_a_stop_that_comes_when_one_worker_is_done_harms_nobody(tmp_path: Path) -> None:
    """One user of a counted loop is on worker 0; worker 1 has an empty slice, ends at once, and is told to stop."""
    began = time.monotonic()
    told = []

    def tick(pool: WorkerPool) -> None:
        if not told and time.monotonic() - began > 2 and pool.counts().dispatched:
            told.append(pool.stop_stage("enough", 2 * NS_PER_S))

    with LoggingServer(gap_s=0.01) as server:
        spec = spec_for(Load("closed", concurrency=1), workers=2, requests=10_000)
        (reports,), records, _ = run_stages(tmp_path, server.url, spec, tick)

    assert [report.stopped for report in reports] == ["enough", None]
    assert len(records) == reports[0].requests == len(server.begun) and told


def test_a_worker_that_is_killed_is_told_and_its_spool_keeps_all_but_the_last_second(tmp_path: Path) -> None:
    killed: list[float] = []

    def tick(pool: WorkerPool) -> None:
        if not killed and len(server.begun) > 140:
            os.kill(pool.pids["worker-1"], signal.SIGKILL)
            killed.append(time.monotonic())

    with LoggingServer(gap_s=0.1, chunks=5) as server:
        spec = spec_for(Load("open", rate=50.0), workers=2, duration_ns=60 * NS_PER_S)
        with pytest.raises(WorkerDiedError, match=r"worker 1 ended on its own \(exit code -9\)"):
            run_stages(tmp_path, server.url, spec, tick)

    records = read(tmp_path)
    ids = [record.request_id for record in records]
    assert len(ids) == len(set(ids))
    lost = set(server.begun) - set(ids)
    assert all(server.begun[name] > killed[0] - 1.5 for name in lost)
    assert all(int(name[3:]) % 2 for name in lost)  # the living worker lost nothing
    finished = {record.request_id for record in records if record.outcome.value == "ok"}
    early = {name for name, when in server.whole.items() if when < killed[0] - 1.5}
    assert early and early <= finished
    assert {"killed"} == {r.error for r in records if r.outcome.value == "unfinished" and r.error_kind == "killed"}


def test_workers_end_when_the_pool_fails_to_start(tmp_path: Path) -> None:
    jobs = jobs_for(tmp_path, "http://127.0.0.1:9", 2)
    jobs[1].headers = {"bad name": "x"}

    with pytest.raises(UsageError, match="cannot be sent"):
        WorkerPool(jobs, logs=tmp_path / "spool")


def test_a_folder_that_cannot_be_written_is_one_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be made"):
        WorkerPool(jobs_for(tmp_path, "http://127.0.0.1:9", 1), logs=tmp_path / "nowhere")
