"""Several machines as one load generator: clocks within their error, spools as if local, no request forgotten."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchlab.campaign.spec import Load, RunSpec, Warmup
from benchlab.campaign.stages import plan_stages, slices
from benchlab.clock import SystemClock
from benchlab.errors import UsageError
from benchlab.loadgen import cluster_pool
from benchlab.loadgen.arrivals import Arrival
from benchlab.loadgen.cluster import Cluster
from benchlab.loadgen.cluster_channel import Node
from benchlab.loadgen.cluster_node import News, Piece
from benchlab.loadgen.cluster_pool import ClusterPool
from benchlab.loadgen.counters import Counts
from benchlab.loadgen.job import Ready, StageJob, WorkerJob
from benchlab.records import spool
from benchlab.records.event import Outcome
from benchlab.records.schema import records_from
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem
from tests.benchlab.loadgen.logging_server import LoggingServer
from tests.benchlab.loadgen.near_channel import ME, FakeAgent, NearChannel, node

ITEMS = [
    WorkloadItem(id=f"row{n}", messages=[{"role": "user", "content": f"row {n}"}], output_tokens=8, tags=["a"])
    for n in range(8)
]


# -- a run on two nodes, in this process


def spec_for(*loads: Load, workers: int, **more: Any) -> RunSpec:
    return RunSpec(loads, None, workers=workers, **({"warmup": Warmup(), "drain_ns": 5 * NS_PER_S} | more))


def jobs_for(url: str, workers: int) -> list[WorkerJob]:
    return [
        WorkerJob(n, "parent", 0, "", "", url, "chat", "m", {"X-Secret": "s3cret"}, {}, ITEMS) for n in range(workers)
    ]


def run(channel: NearChannel, folder: Path, url: str, *loads: Load, each: int = 1, tick: Any = None, **more: Any):
    said: list[str] = []
    (folder / "spool").mkdir()
    with Cluster(channel, workers=each, me=ME) as cluster:
        spec = spec_for(*loads, workers=cluster.total, **more)
        stages = plan_stages(spec, ITEMS)
        with ClusterPool(cluster, jobs_for(url, spec.workers), spool=folder / "spool", clock=SystemClock()) as pool:
            pool.tell(said.append)
            reports, starts = [], []
            for stage in stages:
                start = time.monotonic_ns() + NS_PER_S // 2
                starts.append(start)  # the jobs' t0 is 0
                jobs = slices(stage, spec, start_ns=start, offset=0, permits=str(folder))
                reports.append(pool.run_stage(jobs, lambda: tick(pool) if tick else None))
                if pool.lost:
                    break
    records = list(records_from(spool.merge(folder / "spool", why_unfinished="killed")))
    return SimpleNamespace(pool=pool, reports=reports, records=records, said=said, stages=stages, starts=starts)


def test_two_nodes_make_one_run_and_its_spool_is_here(tmp_path: Path) -> None:
    told: list[int] = []

    def tick(pool: ClusterPool) -> None:  # the last stage is told to stop
        if not told and pool.counts().stage == 2 and pool.counts().ok >= 4:
            told.append(1)
            pool.stop_stage("interrupted", NS_PER_S)

    channel = NearChannel([node(1), node(2)])
    loads = (Load("open", rate=80.0), Load("closed", concurrency=3), Load("open", rate=20.0))
    with LoggingServer() as server:
        done = run(channel, tmp_path, server.url, *loads, requests=40, tick=tick)

    first, second, last = done.reports
    whole = [r for r in done.records if r.stage < 2]
    assert Counter((r.stage, r.outcome.value) for r in whole) == {(0, "ok"): 40, (1, "ok"): 40}
    assert {r.host for r in whole} == {"host1", "host2"} == {host["name"] for host in done.pool.hosts}
    assert [sum(report.requests for report in reports) for reports in (first, second)] == [40, 40]
    assert [report.stopped for report in last] == ["interrupted"] * 2
    assert len(done.records) - 80 == sum(report.requests for report in last) < 40
    assert [fault for r in done.records for fault in r.audit()] == []
    intended = sorted(r.intended_ns for r in done.records if r.stage == 0)
    assert [ns - intended[0] for ns in intended] == [ns - done.stages[0].at_ns[0] for ns in done.stages[0].at_ns]
    assert not done.pool.lost and len(done.pool.hosts[0]["clock"]) == 2
    assert all(abs(c["offset_ns"]) <= c["error_ns"] for host in done.pool.hosts for c in host["clock"])
    assert not [name for name in (tmp_path / "spool").iterdir() if b"s3cret" in name.read_bytes()]
    assert channel.gone == {"key1", "key2"}


def test_a_lost_node_is_named_and_the_run_is_no_smaller(tmp_path: Path) -> None:
    def lose(node: Node, method: str) -> bool:  # late enough for its first records to be here
        return node.key == "key2" and method == "news" and len(server.begun) > 50

    channel = NearChannel([node(1), node(2)], lose=lose)
    with LoggingServer() as server:
        loads = (Load("open", rate=40.0, arrival=Arrival("constant")), Load("open", rate=5.0))
        done = run(channel, tmp_path, server.url, *loads, requests=90)

    assert len(done.records) == 90 == len({r.request_id for r in done.records})
    assert {r.outcome.value for r in done.records if r.host == "host1"} == {"ok"}
    theirs = Counter(r.outcome.value for r in done.records if r.host == "host2")
    assert theirs["not_sent"] > 3 and theirs["unfinished"] > 0 and theirs["ok"] > 3
    assert done.pool.lost == "node host2 was lost" and done.pool.lost_workers == {1}
    assert sum(report.requests for report in done.reports[0]) == 90 and len(done.reports) == 1
    facts = done.pool.hosts[1]["lost"]
    assert facts["sending"] and facts["requests"] == theirs["not_sent"] + theirs["unfinished"]
    assert done.pool.hosts[0]["lost"] is None
    assert done.said == [
        "node host2 was lost (the node is gone): the stage goes on without it, its requests are counted, the run is "
        "INVALID"
    ]
    assert done.pool.counts().inflight == 0


class Scripted(FakeAgent):
    """Ready at once, and with a stage whenever it is asked; no process, no request."""

    pieces: tuple[Piece, ...] = ()

    def clock(self) -> tuple[int, int]:
        return time.monotonic_ns(), time.time_ns()

    def start(self, jobs: Any, headers: Any, items: Any, connections: Any) -> Ready:
        return Ready("loop", "kernel")

    def begin(self, jobs: list[StageJob]) -> None:
        self.jobs = jobs

    def news(self, have: dict[str, int]) -> News:
        return News(Counts(ok=3, inflight=1), list(self.pieces), reports=[])


def test_instants_are_given_on_each_nodes_own_clock(tmp_path: Path) -> None:
    """A node whose clock reads 7 s more is told t0 and starts that are 7 s more, so that its times from t0 agree."""

    class Ahead(Scripted):
        def clock(self) -> tuple[int, int]:
            return time.monotonic_ns() + 7 * NS_PER_S, 1_000 + time.monotonic_ns()

        def start(self, jobs: Any, headers: Any, items: Any, connections: Any) -> Ready:
            self.t0_ns = jobs[0].t0_ns
            return super().start(jobs, headers, items, connections)

    channel = NearChannel([node(1)], agent=Ahead)
    done = run(channel, tmp_path, "http://127.0.0.1:9", Load("open", rate=100.0), requests=5)

    entry, agent = done.pool.hosts[0], channel.agents["key1"]
    assert abs(entry["t0"]["monotonic_ns"] - 7 * NS_PER_S) <= entry["clock"][0]["error_ns"]
    assert agent.t0_ns == entry["t0"]["monotonic_ns"]
    assert abs(entry["t0"]["wall_ns"] - 1_000) <= 3 * entry["clock"][0]["error_ns"]
    assert agent.jobs[0].start_ns - agent.t0_ns == done.starts[0]


def test_a_node_that_falls_silent_is_lost_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_pool, "_SILENT_S", 0.6)
    channel = NearChannel(
        [node(1), node(2)], agent=Scripted, silent=lambda node, method: method == "news" and node.key == "key2"
    )

    done = run(channel, tmp_path, "http://127.0.0.1:9", Load("open", rate=20.0), requests=10)

    assert done.pool.lost == "node host2 was lost" and "no word" in done.pool.hosts[1]["lost"]["why"]
    assert {(r.host, r.outcome.value) for r in done.records} <= {("host2", "unfinished"), ("host2", "not_sent")}
    assert len(done.records) == 5


@pytest.mark.parametrize("name", ["../worker-0.log", "manifest.json", "worker-1.requests.arrow", "worker-0.log/x"])
def test_a_node_can_write_to_its_own_workers_files_only(name: str, tmp_path: Path) -> None:
    class Wrong(Scripted):
        pieces = (Piece(name, 0, b"x"), Piece("worker-0.log", 5, b"x"), Piece("worker-0.log", 0, b"said"))

    run(NearChannel([node(1)], agent=Wrong), tmp_path, "http://127.0.0.1:9", Load("open", rate=20.0), requests=3)

    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
        "spool/worker-0.log"
    ]
    assert (tmp_path / "spool" / "worker-0.log").read_bytes() == b"said"


def test_a_shared_cap_becomes_each_workers_own(tmp_path: Path) -> None:
    channel = NearChannel([node(1), node(2)], agent=Scripted)
    run(channel, tmp_path, "http://127.0.0.1:9", Load("open", rate=20.0), each=2, requests=10, max_inflight=7)
    caps = {
        key: [(job.max_inflight, job.permits, job.workers) for job in agent.jobs]
        for key, agent in channel.agents.items()
    }
    assert caps == {"key1": [(2, None, 1), (2, None, 1)], "key2": [(2, None, 1), (1, None, 1)]}


def test_a_worker_that_dies_takes_its_node_out_and_its_neighbours_records_stay(tmp_path: Path) -> None:
    killed: list[int] = []

    def tick(pool: ClusterPool) -> None:
        if not killed and pool.counts().ok > 10:
            killed.append(channel.agents["key1"]._pool.pids["worker-1"])
            os.kill(killed[0], signal.SIGKILL)

    with LoggingServer() as server:
        channel = NearChannel([node(1)])
        done = run(channel, tmp_path, server.url, Load("open", rate=40.0), each=2, requests=60, tick=tick)

    assert len(done.records) == 60 and done.pool.lost == "node host1 was lost"
    assert "worker 1 ended on its own" in done.pool.hosts[0]["lost"]["why"]
    assert any(r.outcome is Outcome.OK for r in done.records if r.worker == 0)
    assert [report.requests for report in done.reports[0]] == [30, 30]


def test_what_a_node_refuses_at_its_start_is_an_error_of_the_same_kind(tmp_path: Path) -> None:
    channel = NearChannel([node(1)])
    (tmp_path / "spool").mkdir()
    jobs = [msgspec.structs.replace(job, headers={"bad name": "x"}) for job in jobs_for("http://127.0.0.1:9", 1)]
    with (
        Cluster(channel, workers=1, me=ME) as cluster,
        pytest.raises(UsageError, match=r"on node host1: .*cannot be sent"),
    ):
        ClusterPool(cluster, jobs, spool=tmp_path / "spool", clock=SystemClock())
