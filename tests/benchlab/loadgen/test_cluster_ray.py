"""The whole way over Ray, on loopback: two nodes make one run; one that dies in the middle makes it INVALID by name."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchlab.records.store import Run
from tests.benchlab.campaign.process import Command, gone
from tests.benchlab.loadgen.ray_nodes import Nodes, needs_ray, ray_nodes
from tests.running import ROOT, benchlab, paced_engine

pytestmark = needs_ray
SECRET = "sk-not-for-any-file"
SHAPE = ("--isl", "16", "--osl", "8", "--warmup", "none", "--drain", "5s", "--progress", "plain")
OF_TIMING = {"dispatch_lag_p99_ms", "loop_lag_p99_ms", "client_headroom", "client_cpu_share", "rate_held"}
"""Rules that a test host on which others compute may fail; everything else must hold."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with paced_engine("ttft=40ms,itl=5ms") as url:
        yield url


def words(url: str, out: Path, *more: str) -> tuple[str | Path, ...]:
    return "run", "-u", url, "--cluster", "auto", *SHAPE, "-o", out, "-H", f"Authorization: Bearer {SECRET}", *more


def read(out: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    manifest, summary = (json.loads((out / f"{name}.json").read_text()) for name in ("manifest", "summary"))
    return manifest, summary, Run(out).requests().to_pylist()


def states(summary: dict[str, Any]) -> dict[str, str]:
    return {rule["name"]: rule["state"] for rule in summary["verdict"]["rules"]}


def test_two_nodes_make_one_run_and_one_that_dies_makes_it_invalid(nodes: Nodes, url: str, tmp_path: Path) -> None:
    whole = benchlab(*words(url, tmp_path / "whole", "-r", "20", "-n", "40"), env=nodes.env, timeout=100)

    assert whole.code in (0, 4), whole
    manifest, summary, rows = read(tmp_path / "whole")
    assert manifest["stages"][0]["planned"] == 40 == len({row["request_id"] for row in rows}) == len(rows)
    assert {row["outcome"] for row in rows} == {"ok"}
    assert len(manifest["hosts"]) == 2 and manifest["client"]["cluster"] == {"nodes": 2, "workers_per_node": 1}
    assert {host["name"] for host in manifest["hosts"]} == {row["host"] for row in rows}
    assert all(abs(c["offset_ns"]) <= c["error_ns"] for host in manifest["hosts"] for c in host["clock"])  # one clock
    assert {name for name, state in states(summary).items() if state == "fail"} <= OF_TIMING
    assert states(summary)["hosts_lost"] == "pass"

    with Command(*words(url, tmp_path / "lost", "-r", "20", "-c", "2", "-n", "100"), cwd=tmp_path, **nodes.env) as run:
        run.until("stage 1/2")
        time.sleep(3.0)
        nodes.tell("kill")
        run.until("was lost")
        assert run.end() == 4, run.err
        assert run.process.stdout is not None
        assert "raylet" not in run.process.stdout.read().decode() and run.left == []
    manifest, summary, rows = read(tmp_path / "lost")
    (dead,) = [host for host in manifest["hosts"] if host["lost"]]
    assert summary["verdict"]["state"] == "INVALID" and states(summary)["hosts_lost"] == "fail"
    assert any(dead["name"] in rule["hint"] for rule in summary["verdict"]["rules"] if rule["name"] == "hosts_lost")
    assert len(rows) == 100 == len({row["request_id"] for row in rows})
    assert {row["outcome"] for row in rows if row["host"] != dead["name"]} == {"ok"}
    theirs = Counter(row["outcome"] for row in rows if row["host"] == dead["name"])
    assert theirs["unfinished"] + theirs["not_sent"] == dead["lost"]["requests"] > 0 and theirs["ok"] > 0
    assert manifest["stages"][1]["why"] == "not run"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert not nodes.found(SECRET), "Ray's own logs hold the key"


@pytest.mark.slow
def test_ctrl_c_and_a_late_node_and_a_killed_parent(url: str, tmp_path: Path) -> None:
    with ray_nodes() as nodes:
        with Command(*words(url, tmp_path / "int", "-r", "20", "--duration", "60s"), cwd=tmp_path, **nodes.env) as run:
            run.until("stage 1/1")
            nodes.tell("add")
            run.until("sent ")  # the first line of progress: something has been sent by then
            run.signal(signal.SIGINT)
            assert run.end() == 130 and run.left == [], run.err
        manifest, _, rows = read(tmp_path / "int")
        assert len(manifest["hosts"]) == 2 and manifest["state"] == "interrupted"  # who comes late is not looked at
        assert manifest["stages"][0]["planned"] == len(rows) and {row["outcome"] for row in rows} == {"ok"}

        late = Command(*words(url, tmp_path / "kill", "-r", "20", "--duration", "60s"), cwd=tmp_path, **nodes.env)
        with late as run:
            run.until("stage 1/1")
            time.sleep(4)
            workers = nodes.workers()
            run.signal(signal.SIGKILL)
            run.end()
        assert len(workers) == 3 and gone(workers, 30)
        until = time.monotonic() + 20
        while nodes.folders() and time.monotonic() < until:
            time.sleep(0.5)
        assert nodes.folders() == []
        done = benchlab("recover", tmp_path / "kill")
        manifest, _, rows = read(tmp_path / "kill")
        assert len(manifest["hosts"]) == 3 and manifest["state"] == "recovered", done
        assert {row["host"] for row in rows} == {host["name"] for host in manifest["hosts"]}


@pytest.mark.slow
def test_a_node_without_the_same_code_is_refused(nodes: Nodes, url: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()  # Ray gives its workers the folder that a command was started in
    shutil.copytree(ROOT / "benchlab", tmp_path / "benchlab", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "benchlab" / "more.py").write_text('"""Not the same."""\n')
    done = benchlab(
        *words(url, tmp_path / "out", "-n", "5", "-c", "1"),
        env={**nodes.env, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path / "elsewhere",
    )
    assert done.code == 2, done
    assert "has benchlab" in done.err and ", this host" in done.err
