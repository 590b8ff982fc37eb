"""A run against an engine that tells its own times keeps them, and keeps only its own."""

from __future__ import annotations

from benchlab.campaign.engine_times import engine_table
from benchlab.campaign.execute import execute
from benchlab.campaign.progress import Progress
from benchlab.campaign.spec import Load, RunSpec
from benchlab.records.event import Outcome
from benchlab.records.store import Run
from benchlab.telemetry.timeline import EngineRow, EngineTimes
from benchlab.units import NS_PER_S
from tests.made_runs import failed, steady, table_of
from tests.running import paced_engine


def test_rows_of_another_run_under_the_same_id_are_left_out():
    records = [steady(float(i), ttft=0.1, gap=0.01, tokens=4, request_id=f"s0-{i}") for i in range(4)]
    records.append(failed(9.0, outcome=Outcome.NOT_SENT, request_id="s0-9"))
    clock, t0 = 5_000 * NS_PER_S, 70 * NS_PER_S  # the engine's clock 20 s after the run's beginning

    def row(name: str, at: float | None) -> EngineRow:
        accepted = None if at is None else clock + round((at - 20) * 1e9)
        return EngineRow(name, accepted=accepted, token_ready=[1, 2], finish_reason="length")

    rows = [row("s0-0", 0.001), row("s0-1", 700.0), row("s0-2", -40.0), row("s0-9", 9.0), row("warm", 1.0)]
    told = EngineTimes({r.request_id: r for r in [*rows, row("s0-3", None)]}, clock, t0 + 20 * NS_PER_S, 1000)
    table, others = engine_table(told, table_of(records), t0)

    assert table.column("request_id").to_pylist() == ["s0-0"] and others == 3
    assert table.column("token_ready_ns").to_pylist() == [[1, 2]]
    assert engine_table(EngineTimes(why="no"), table_of(records), t0)[0].num_rows == 0


def test_a_run_keeps_the_engines_times_and_judges_them(tmp_path):
    quiet = Progress("none")
    loads = (Load("open", rate=30.0),)
    with paced_engine("ttft=20ms,itl=2ms") as url:
        for name, scrape in (("first", "off"), ("run", "auto")):  # the same request ids twice at one engine
            spec = RunSpec(
                loads, data=None, isl=8, osl=6, out=tmp_path / name, url=url, requests=10, gpu="off",
                drain_ns=5 * NS_PER_S, scrape=scrape, report=False,
            )  # fmt: skip
            outcome = execute(spec, quiet)
            assert outcome.error is None

    run = Run(tmp_path / "run")
    engine, facts = run.engine(), run.manifest["engine_times"]
    num_sent = run.requests().num_rows
    assert engine.num_rows == num_sent == facts["rows"] == facts["of"] and facts["others"] == 0 and facts["why"] == ""
    assert all(len(ready) == 6 for ready in engine.column("token_ready_ns").to_pylist())
    unasked = Run(tmp_path / "first")
    assert unasked.engine().num_rows == 0 and "engine_times" not in unasked.manifest

    metrics = outcome_of(tmp_path / "run")
    ttft, parts = metrics["ttft"]["mean"], [metrics[n]["mean"] for n in ("queue", "prefill", "transport")]
    assert metrics["queue"]["n"] == metrics["ttft"]["n"] > 0
    assert metrics["prefill"]["p50"] >= 19.0 and min(parts) >= 0.0
    assert sum(parts) <= ttft + 1e-6  # what is missing lies between the first token ready and written
    assert metrics["decode"]["p50"] >= 5 * 2 * 0.9


def outcome_of(path):
    """The metrics of a stored run's only stage."""
    from benchlab.metrics.summary import summarise

    return summarise(Run(path))["stages"][0]["metrics"]
