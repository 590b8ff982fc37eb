"""Whole runs: everything is there, nothing secret is, and every healthy run passes the rules on its records."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchlab.campaign import execute as execute_module
from benchlab.campaign.execute import Outcome, execute
from benchlab.campaign.progress import Progress
from benchlab.campaign.spec import EngineSpec, Load, RunSpec, Warmup
from benchlab.errors import StorageError, TargetError, UsageError
from benchlab.loadgen.arrivals import Arrival
from benchlab.loadgen.pool import WorkerDiedError
from benchlab.records.manifest import read_json
from benchlab.records.record import Record
from benchlab.records.schema import records_from
from benchlab.records.store import Run
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import to_bytes
from tests.benchlab.campaign.process import Command, launch_file
from tests.benchlab.loadgen.logging_server import LoggingServer

QUIET = Progress("none")
FILES = {"manifest.json", "requests.parquet", "items.parquet", "telemetry.parquet", "summary.json", "report.html"}
OPEN, CLOSED = Load("open", rate=40.0), Load("closed", concurrency=3)


def spec_for(path: Path, *loads: Load, **more) -> RunSpec:
    plain = {"data": None, "isl": 8, "osl": 6, "out": path, "drain_ns": 5 * NS_PER_S, "gpu": "off", "scrape": "off"}
    if not {"requests", "duration_ns"} & set(more):
        plain |= {"requests": 12}
    return RunSpec(loads, **(plain | more))


def run(server: LoggingServer, path: Path, *loads: Load, **more) -> Outcome:
    return execute(spec_for(path, *loads, url=server.url, **({"report": False} | more)), QUIET)


def records_of(path: Path) -> list[Record]:
    return list(records_from(Run(path).requests()))


def rules(outcome: Outcome, name: str) -> set[str]:
    stages = [stage["verdict"]["rules"] for stage in outcome.summary["stages"]]
    return {rule["state"] for found in stages for rule in found if rule["name"] == name}


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [n for inner in value.values() for n in numbers(inner)]
    if isinstance(value, list):
        return [n for inner in value for n in numbers(inner)]
    return [value] if isinstance(value, float) else []


@pytest.mark.parametrize(
    ("workers", "length"),
    [
        (3, {"requests": 12, "warmup": Warmup(requests=2)}),
        (1, {"duration_ns": NS_PER_S // 2}),
        pytest.param(1, {"requests": 12, "warmup": Warmup(requests=2)}, marks=pytest.mark.slow),
        pytest.param(3, {"duration_ns": NS_PER_S // 2}, marks=pytest.mark.slow),
    ],
    ids=["count-3", "time-1", "count-1", "time-3"],
)
def test_a_run_is_whole(tmp_path: Path, workers: int, length: dict) -> None:
    path = tmp_path / "run"
    with LoggingServer(gap_s=0.005) as server:
        loads = (OPEN, CLOSED, replace(CLOSED, concurrency=1))
        outcome = run(server, path, *loads, workers=workers, report=True, **length)

    assert outcome.path == path and outcome.error is None and outcome.interrupted is None
    assert {file.name for file in path.iterdir()} == FILES
    manifest, records = read_json(path / "manifest.json"), records_of(path)
    assert manifest["state"] == "complete"
    assert {"ok"} == {record.outcome.value for record in records}
    assert len(server.begun) == len(records) == len({r.request_id for r in records}) and server.repeated == 0
    assert [fault for record in records for fault in record.audit()] == []
    for number, stage in enumerate(manifest["stages"]):
        mine = [record for record in records if record.stage == number]
        assert stage["complete"] is True and stage["why"] is None and len(stage["workers"]) == workers
        assert len(mine) == stage["planned"] == sum(worker["requests"] for worker in stage["workers"])
        assert stage["start_ns"] <= stage["w0_ns"] < stage["w1_ns"] <= stage["drain_end_ns"]
        assert all(stage["start_ns"] <= r.intended_ns and (r.end_ns or 0) <= stage["drain_end_ns"] for r in mine)
        if "requests" in length:
            assert sum(stage["w0_ns"] <= r.intended_ns < stage["w1_ns"] for r in mine) == 12
        seconds = (stage["w1_ns"] - stage["w0_ns"]) / NS_PER_S
        assert 0.005 < seconds < 60  # C109: rate x duration = count, and no rate is a matter of units
        figures = outcome.summary["stages"][number]
        inside = sum(stage["w0_ns"] <= r.intended_ns < stage["w1_ns"] for r in mine)
        assert figures["achieved_rps"] * seconds == pytest.approx(inside, abs=4)
    assert {"pass"} == rules(outcome, "complete_records") == rules(outcome, "impossible_numbers")
    assert all(math.isfinite(number) for number in numbers(outcome.summary))
    starts = [stage["start_ns"] for stage in manifest["stages"]]
    ends = [stage["drain_end_ns"] for stage in manifest["stages"]]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert pq.read_table(path / "items.parquet").num_rows == manifest["workload"]["items"]
    assert pq.read_table(path / "telemetry.parquet").num_rows > 0


def rows(folder: Path, count: int, **more) -> Path:
    path = folder / "rows.jsonl"
    items = [WorkloadItem(id=f"r{n}", prompt=f"row {n}", output_tokens=2, **more) for n in range(count)]
    path.write_bytes(to_bytes(items))
    return path


def test_later_stages_go_on_in_the_workload_and_a_cold_cache_meets_no_prompt_twice(tmp_path: Path) -> None:
    data = rows(tmp_path, 20)
    with LoggingServer(gap_s=0.003) as server:
        run(server, tmp_path / "a", OPEN, CLOSED, OPEN, data=data, workers=2, warmup=Warmup())
        warm = list(server.prompts)
        server.prompts.clear()
        run(server, tmp_path / "b", OPEN, CLOSED, OPEN, data=data, workers=2, cache="cold", warmup=Warmup())
        cold = server.prompts

    items = [record.item_id for record in records_of(tmp_path / "a")]
    assert [f"r{n}" for n in range(12)] == sorted(items[:12], key=lambda name: int(name[1:]))
    assert len(set(items[12:24])) == 12 and {f"r{n}" for n in range(12, 20)} <= set(items[12:24])
    assert len(set(warm)) == 20 and len(warm) == 36
    assert 36 == len(set(cold)) == len(cold)
    assert not set(warm) & set(cold)


def test_a_trace_keeps_each_time_with_its_row_in_every_stage(tmp_path: Path) -> None:
    items = [WorkloadItem(id=f"r{n}", prompt=f"row {n}", output_tokens=2, arrival_s=n * 0.04) for n in range(20)]
    (data := tmp_path / "rows.jsonl").write_bytes(to_bytes(items))
    trace = Load("open", arrival=Arrival("trace"))
    with LoggingServer(gap_s=0.003) as server:
        run(server, tmp_path / "run", trace, trace, data=data, duration_ns=NS_PER_S // 2)

    records = records_of(tmp_path / "run")
    for stage in (0, 1):
        mine = [record for record in records if record.stage == stage]
        assert [f"r{n}" for n in range(13)] == [record.item_id for record in mine]
        assert [n * 40_000_000 for n in range(13)] == [r.intended_ns - mine[0].intended_ns for r in mine]


def test_c28_dropped_arrivals_stand_in_the_summary(tmp_path: Path) -> None:
    load = Load("open", rate=50.0, arrival=Arrival("constant"))
    with LoggingServer(gap_s=0.2, chunks=1) as server:
        outcome = run(server, tmp_path / "run", load, duration_ns=NS_PER_S, max_inflight=2, workers=2)

    (stage,) = outcome.summary["stages"]
    assert sum(stage["outcomes"].values()) == 50 and stage["outcomes"]["not_sent"] >= 38
    assert {"pass"} == rules(outcome, "complete_records") and {"fail"} == rules(outcome, "rate_held")
    assert pytest.approx(stage["load"]["offered_rps"], abs=0.1) == 50 and stage["achieved_rps"] < 15


def test_c14_and_c20_a_counted_stage_sends_what_the_cap_held(tmp_path: Path) -> None:
    load = Load("open", rate=20.0, arrival=Arrival("constant"))
    with LoggingServer(gap_s=0.1, chunks=1) as server:
        outcome = run(server, tmp_path / "run", load, requests=8, max_inflight=1)

    records = records_of(tmp_path / "run")
    assert Counter(r.outcome.value for r in records) == {"ok": 8} and len(server.whole) == 8
    assert {"fail"} == rules(outcome, "inflight_cap")  # the cap governed, not the rate: not valid as an open loop
    (stage,) = outcome.summary["stages"]
    assert stage["metrics"]["response_ttft"]["mean"] > 2 * stage["metrics"]["ttft"]["mean"]


def test_nothing_secret_reaches_any_file(tmp_path: Path) -> None:
    path, secrets = tmp_path / "run", ["sesame-open-1", "sesame-open-2", "sesame-open-3"]
    words = ("run", "-r", "40", "-n", "10", "--isl", "8", "--osl", "4", "-o", path, "-q", "--keep-text")
    with LoggingServer(gap_s=0.005) as server:
        headers = ("-H", f"X-Tenant: {secrets[1]}", "--header", f"X-Api-Key: {secrets[2]}")
        with Command(*words, "-u", server.url, *headers, cwd=tmp_path, OPENAI_API_KEY=secrets[0]) as command:
            assert command.end() in (0, 4), command.err

    everything = b""
    for file in path.rglob("*"):
        if file.is_file():
            everything += file.read_bytes()
            if file.suffix == ".parquet":
                everything += str(pq.read_table(file).to_pydict()).encode()
    assert len(everything) > 100_000
    found = [secret for secret in secrets if secret.encode() in everything + command.err.encode()]
    assert found == []


def test_an_engine_that_dies_in_mid_run_costs_its_last_stage(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = ("run", "--engine", launch_file(tmp_path), "-m", "any", "--engine-arg=--die", "--engine-arg", "4")
    load = ("-r", "20,21", "--duration", "20s", "--warmup", "none", "--isl", "8", "--osl", "4", "--progress", "plain")
    with Command(*words, *load, "-o", path, cwd=tmp_path) as command:
        command.until("stage 1/2")
        command.children()
        code = command.end()
        assert command.left == []

    assert code == 3, command.err
    assert "out of cheese" in command.err and "the engine ended during the run" in command.err
    manifest = read_json(path / "manifest.json")
    first, second = manifest["stages"]
    assert manifest["state"] == "aborted" and first["why"] == "the engine died" and second["why"] == "not run"
    assert first["complete"] is False and (first["w1_ns"] - first["w0_ns"]) / NS_PER_S < 10
    counted = Counter(record.outcome.value for record in records_of(path))
    assert counted["ok"] >= 10 and first["planned"] == counted.total()
    assert {"report.html", "summary.json", "engine.log"} <= {file.name for file in path.iterdir()}
    assert not (path / "spool").exists()


@pytest.mark.slow
def test_an_engine_that_dies_at_the_very_end_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, asked = execute_module._Execution._engine_death, []

    def late(self: object) -> object:
        asked.append(1)
        os.kill(self.engine.pid, 9)  # type: ignore[attr-defined]
        while self.engine.died() is None:  # type: ignore[attr-defined]
            pass
        return ask(self)  # type: ignore[arg-type]

    def end(self: object, sampler: object) -> Outcome:
        monkeypatch.setattr(execute_module._Execution, "_engine_death", late)
        return real(self, sampler)  # type: ignore[arg-type]

    real = execute_module._Execution._end
    monkeypatch.setattr(execute_module._Execution, "_end", end)
    engine = EngineSpec(str(launch_file(tmp_path)), "any")

    outcome = execute(spec_for(tmp_path / "run", OPEN, engine=engine, requests=3), QUIET)

    assert isinstance(outcome.error, TargetError) and asked


def test_a_worker_that_dies_leaves_a_judged_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"

    class Murder(Progress):
        def tick(self, name, elapsed_s, total_s, counts) -> None:
            if counts.ok > 20:
                for pid in pool_pids:
                    os.kill(pid, 9)

    pool_pids: list[int] = []
    real = execute_module.start_sampler

    def note(sources, pids, t0_ns):
        pool_pids.extend(pids.values())
        return real(sources, pids, t0_ns)

    monkeypatch.setattr(execute_module, "start_sampler", note)
    with LoggingServer(gap_s=0.01) as server:
        spec = spec_for(path, OPEN, CLOSED, url=server.url, duration_ns=30 * NS_PER_S, workers=2)
        outcome = execute(spec, Murder("none"))

    assert isinstance(outcome.error, WorkerDiedError)
    first, second = read_json(path / "manifest.json")["stages"]
    assert "ended on its own" in first["why"] and second["why"] == "not run"
    assert 0 < (first["w1_ns"] - first["w0_ns"]) / NS_PER_S < 10
    assert outcome.summary["stages"][0]["condition"] == "incomplete"
    assert not (path / "spool").exists() and len(records_of(path)) > 0


def test_what_fails_before_the_load_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be reached"):
        execute(spec_for(tmp_path / "a", OPEN, url="http://127.0.0.1:9"), QUIET)
    with LoggingServer() as server, pytest.raises(UsageError):
        run(server, tmp_path / "b", OPEN, headers={"Bad Name": "x"})
    with LoggingServer() as server, pytest.raises(UsageError) as caught:
        run(server, tmp_path / "b", OPEN, headers={"Authorization": "sésame"})
    assert "same" not in str(caught.value)
    with LoggingServer() as server, pytest.raises(UsageError):
        run(server, tmp_path / "c", Load("open", rate=0.001), duration_ns=NS_PER_S)

    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_before_the_load_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, items: object) -> None:
        raise StorageError("cannot be written: No space left on device", where=str(path))

    monkeypatch.setattr(execute_module, "write_items", full)
    with LoggingServer() as server, pytest.raises(StorageError):
        run(server, tmp_path / "run", OPEN)

    assert list(tmp_path.iterdir()) == []


def test_a_stage_shorter_than_its_warm_up_says_so(tmp_path: Path) -> None:
    with LoggingServer(gap_s=0.02) as server:
        outcome = run(server, tmp_path / "run", CLOSED, duration_ns=NS_PER_S // 2, warmup=Warmup(requests=5000))

    (stage,) = outcome.summary["stages"]
    assert stage["condition"] == "incomplete" and not stage["completed_rps"]


def test_c52_a_port_that_closes_gives_no_splendid_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LoggingServer() as server:
        spec = spec_for(tmp_path / "run", CLOSED, url=server.url, requests=24, warmup=Warmup())
        real = execute_module.preflight

        def then_close(*args, **more):
            record = real(*args, **more)
            server.close()
            return record

        monkeypatch.setattr(execute_module, "preflight", then_close)
        outcome = execute(spec, QUIET)

    (stage,) = outcome.summary["stages"]
    assert {word: n for word, n in stage["outcomes"].items() if n} == {"error_connect": 24}
    assert stage["completed_rps"] == 0 and stage["condition"] == "errored"
