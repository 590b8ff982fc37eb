"""Other tools' result files: recomputed in the tool's own words, each gives the very figure that the tool printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchlab.metrics.dialects import Speech, in_dialects
from benchlab.metrics.goodput import SloClause
from benchlab.records.event import Outcome
from benchlab.records.import_base import write_run
from benchlab.records.import_read import ended
from benchlab.records.import_tools import read_result
from benchlab.records.schema import records_from
from benchlab.records.store import Run
from benchlab.selection.judge import judge
from tests.running import ROOT

FILES = ROOT / "tests" / "fixtures" / "foreign_results"
ROLE = {
    "vllm": "vllm-role.json",
    "sglang": "sglang-role.jsonl",
    "guidellm": "guidellm-role.json",
    "aiperf": "aiperf-role/profile_export.jsonl",
    "inference-perf": "inference-perf-role.json",
    "genai-bench": "genai-bench-role.json",
    "evalscope": "evalscope-role/benchmark_data.db",
}
SLO = (SloClause("ttft", 65, "ttft"), SloClause("tpot", 9, "tpot"))


def imported(path: Path, out: Path) -> Run:
    return Run(write_run(read_result(path), path, out, wall_ns=0, labels={}))


def own(run: Run, tool: str, slo: tuple[SloClause, ...] = ()) -> Speech:
    (stage,) = in_dialects(run.manifest, run.requests(), slo=slo, percentiles=(50, 90, 95, 99))
    return next(speech for speech in stage.speeches if speech.tool == tool)


def stats(speech: Speech, key: str) -> dict[str, float | None]:
    found = next(f for f in speech.figures if f.key == key)
    assert found.gap is None, found
    return found.stats


def load(name: str) -> Any:
    return json.loads((FILES / name).read_text(encoding="utf-8"))


# -- the tool's own figures


@pytest.mark.parametrize("case", ["role", "refuse"])
def test_vllm_says_the_same(tmp_path: Path, case: str) -> None:
    told = load(f"vllm-{case}.json")
    speech = own(imported(FILES / f"vllm-{case}.json", tmp_path / "run"), "vllm", SLO)
    for key, word in (("ttft", "ttft"), ("itl", "itl"), ("tpot", "tpot"), ("e2e", "e2el")):
        found = stats(speech, key)
        assert found["mean"] == pytest.approx(told[f"mean_{word}_ms"], rel=1e-6)
        for p in (50, 90, 99):
            assert found[f"p{p}"] == pytest.approx(told[f"p{p}_{word}_ms"], rel=1e-5, abs=1e-6)
    assert stats(speech, "completed_rps")["value"] == pytest.approx(told["request_throughput"])
    assert stats(speech, "output_tps")["value"] == pytest.approx(told["output_throughput"])
    assert stats(speech, "good_rps")["value"] == pytest.approx(told["request_goodput"])


def test_sglang_says_the_same(tmp_path: Path) -> None:
    told = json.loads((FILES / ROLE["sglang"]).read_text())
    speech = own(imported(FILES / ROLE["sglang"], tmp_path / "run"), "sglang")
    for key in ("ttft", "itl"):
        found = stats(speech, key)
        for ours, theirs in (("mean", f"mean_{key}_ms"), ("p50", f"median_{key}_ms"), ("p99", f"p99_{key}_ms")):
            assert found[ours] == pytest.approx(told[theirs], rel=1e-6)
    assert stats(speech, "completed_rps")["value"] == pytest.approx(told["request_throughput"])
    assert stats(speech, "output_tps")["value"] == pytest.approx(told["output_throughput"])
    gap = {f.key: f.gap for f in speech.figures}
    assert gap["e2e"] == gap["tpot"] == "the source does not tell end_ns"  # it stores no latency of a request


@pytest.mark.parametrize("case", ["role", "refuse"])
def test_guidellm_says_the_same(tmp_path: Path, case: str) -> None:
    told = load(f"guidellm-{case}.json")["benchmarks"][0]["metrics"]
    speech = own(imported(FILES / f"guidellm-{case}.json", tmp_path / "run"), "guidellm")
    for key, name, scale in (
        ("ttft", "time_to_first_token_ms", 1),
        ("itl", "inter_token_latency_ms", 1),
        ("tpot", "time_per_output_token_ms", 1),
        ("e2e", "request_latency", 1e3),
    ):
        found, theirs = stats(speech, key), told[name]["successful"]
        assert found["mean"] == pytest.approx(theirs["mean"] * scale, rel=1e-5)
        for p in (50, 90, 95, 99):
            assert found[f"p{p}"] == pytest.approx(theirs["percentiles"][f"p{p}"] * scale, rel=1e-4)
    for key, name in (("completed_rps", "requests_per_second"), ("output_tps", "output_tokens_per_second")):
        assert stats(speech, key)["value"] == pytest.approx(told[name]["successful"]["mean"], rel=1e-6)


@pytest.mark.parametrize("name", ["profile_export.jsonl", "profile_export_raw.jsonl"])
def test_aiperf_says_the_same(tmp_path: Path, name: str) -> None:
    told = load("aiperf-role/profile_export_aiperf.json")
    speech = own(imported(FILES / "aiperf-role" / name, tmp_path / "run"), "aiperf")
    same = [("ttft", "time_to_first_token"), ("icl", "inter_chunk_latency"), ("e2e", "request_latency")]
    if "raw" not in name:  # its tokenizer's counts stand in the other file only
        same.append(("itl", "inter_token_latency"))
        assert stats(speech, "output_tps")["value"] == pytest.approx(told["output_token_throughput"]["avg"], rel=1e-6)
    for key, word in same:
        found = stats(speech, key)
        for ours, theirs in (("mean", "avg"), ("p50", "p50"), ("p90", "p90"), ("p99", "p99")):
            assert found[ours] == pytest.approx(told[word][theirs], rel=1e-5)
    assert stats(speech, "completed_rps")["value"] == pytest.approx(told["request_throughput"]["avg"], rel=1e-6)


def test_aiperf_without_its_summary_beside_it_says_so(tmp_path: Path) -> None:
    alone = tmp_path / "profile_export.jsonl"
    alone.write_bytes((FILES / ROLE["aiperf"]).read_bytes())
    run = imported(alone, tmp_path / "run")
    assert "does not lie beside it" in run.manifest["imported"]["notes"][0]
    # then the span is what aiperf calls its benchmark duration
    told = load("aiperf-role/profile_export_aiperf.json")["benchmark_duration"]["avg"]
    assert own(run, "aiperf").span_s == pytest.approx(told, abs=1e-6)


def test_inference_perf_says_the_same(tmp_path: Path) -> None:
    told = load("inference-perf-role.summary.json")["successes"]
    speech = own(imported(FILES / ROLE["inference-perf"], tmp_path / "run"), "inference-perf")
    for key, word in (
        ("ttft", "time_to_first_token"),
        ("itl", "inter_token_latency"),
        ("tpot", "time_per_output_token"),
        ("ntpot", "normalized_time_per_output_token"),
        ("e2e", "request_latency"),
    ):
        found, theirs = stats(speech, key), told["latency"][word]
        for ours, name in (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p99", "p99")):
            assert found[ours] == pytest.approx(theirs[name] * 1e3, rel=1e-5)
    rates = told["throughput"]
    assert stats(speech, "completed_rps")["value"] == pytest.approx(rates["requests_per_sec"], rel=1e-6)
    assert stats(speech, "output_tps")["value"] == pytest.approx(rates["output_tokens_per_sec"], rel=1e-6)


def test_genai_bench_says_the_same(tmp_path: Path) -> None:
    told = load(ROLE["genai-bench"])["aggregated_metrics"]
    speech = own(imported(FILES / ROLE["genai-bench"], tmp_path / "run"), "genai-bench")
    for key, word in (("ttft", "ttft"), ("tpot", "tpot"), ("e2e", "e2e_latency")):
        found = stats(speech, key)
        for name in ("mean", "p50", "p90", "p95", "p99"):
            assert found[name] == pytest.approx(told["stats"][word][name], rel=1e-5)
    assert stats(speech, "completed_rps")["value"] == pytest.approx(told["requests_per_second"])
    assert stats(speech, "output_tps")["value"] == pytest.approx(told["mean_output_throughput_tokens_per_s"])


def test_evalscope_gives_its_own_averages(tmp_path: Path) -> None:
    """It is none of the seven, and its averages are those of sglang's definitions (end at the last message)."""
    told = load("evalscope-role/benchmark_summary.json")
    speech = own(imported(FILES / ROLE["evalscope"], tmp_path / "run"), "sglang")
    assert stats(speech, "ttft")["mean"] == pytest.approx(told["Avg TTFT (ms)"], abs=0.01)
    assert stats(speech, "itl")["mean"] == pytest.approx(told["Avg ITL (ms)"], abs=0.01)
    assert stats(speech, "e2e")["mean"] == pytest.approx(told["Avg Latency (s)"] * 1e3, abs=0.1)
    assert stats(speech, "completed_rps")["value"] == pytest.approx(told["Req Throughput (req/s)"], abs=1e-3)


def limits(ttft: float, tpot: float) -> tuple[SloClause, ...]:
    return SloClause("ttft", ttft, "ttft"), SloClause("tpot", tpot, "tpot")


def test_goodput_is_each_tools_own(tmp_path: Path) -> None:
    def good(name: str, tool: str, tpot: float = 11.45) -> dict[str, float | None]:
        speech = own(imported(FILES / name, tmp_path / tool), tool, limits(184, tpot))
        return {f.key: f.stats.get("value") for f in speech.figures}

    vllm = good("vllm-good.json", "vllm")
    told = load("vllm-good.json")["request_goodput"]
    assert 0 < told < load("vllm-good.json")["request_throughput"]
    assert vllm["good_rps"] == pytest.approx(told)
    aiperf = good("aiperf-good/profile_export.jsonl", "aiperf")
    told = load("aiperf-good/profile_export_aiperf.json")
    assert aiperf["good_rps"] == pytest.approx(told["goodput"]["avg"], rel=1e-5)
    assert aiperf["attainment"] == told["good_request_fraction"]["avg"] == 0.25
    guidellm = good("guidellm-good.json", "guidellm")
    told = load("guidellm-good.json")["benchmarks"][0]["metrics"]
    assert guidellm["good_rps"] == pytest.approx(told["request_goodput"]["successful"]["mean"], rel=1e-6)
    assert guidellm["attainment"] == pytest.approx(told["slo_attainment"])
    inference_perf = good("inference-perf-good.json", "inference-perf", 14.5)
    told = load("inference-perf-good.summary.json")["successes"]["goodput_metrics"]
    assert inference_perf["good_rps"] == pytest.approx(told["request_goodput"], rel=1e-6)
    assert inference_perf["attainment"] == pytest.approx(told["goodput_percentage"] / 100)


# -- what becomes of it


@pytest.mark.parametrize("tool", ROLE)
def test_a_run_directory_like_any_other(tool: str, tmp_path: Path) -> None:
    run = imported(FILES / ROLE[tool], tmp_path / "run")
    facts = run.manifest["imported"]
    assert facts["tool"] == tool
    assert len(facts["sha256"]) == 64
    records = list(records_from(run.requests()))
    assert len(records) == (16 if tool == "genai-bench" else 12)
    assert not any(record.audit() for record in records)
    assert {record.outcome for record in records} == {Outcome.OK}
    assert min(record.intended_ns for record in records) >= 0
    summary = judge(run)
    assert summary["verdict"]["state"] == "WARN"
    assert any(rule["name"] == "imported" for rule in summary["verdict"]["rules"])
    assert sum(summary["stages"][0]["outcomes"].values()) == len(records)
    told = {rule["name"] for rule in summary["verdict"]["rules"] if rule["state"] == "pass"}
    client = {"client_headroom", "client_cpu_share", "loop_lag_p99_ms", "stamp_error_p99_ms", "client_faults"}
    assert not told & client


GAPS = {
    "vllm": {"ttft", "itl", "tpot", "e2e", "ttfa", "stall", "stream_end", "response_ttft", "dispatch_lag"},
    "sglang": {"ttfa", "stream_end", "response_ttft", "dispatch_lag", "headers"},
    "guidellm": {"itl", "stall", "stalls_1s", "tokens_per_chunk", "held", "connect", "headers"},
    "aiperf": {"response_ttft", "response_e2e", "dispatch_lag", "held", "connect"},
    "inference-perf": {"ttfa", "response_ttft", "dispatch_lag", "headers"},
    "genai-bench": {"itl", "tpot", "e2e", "stall", "stalls_100ms", "ttfa", "response_ttft", "tokens_per_chunk"},
    "evalscope": {"ttfa", "response_ttft", "dispatch_lag", "cached_tokens"},
}
TELLS = {
    "sglang": {"ttft", "itl", "tpot", "e2e", "stall"},
    "guidellm": {"ttft", "tpot", "e2e", "ttfa", "response_ttft", "dispatch_lag", "stream_end", "cached_tokens"},
    "aiperf": {"ttft", "itl", "tpot", "e2e", "stall", "headers", "cached_tokens", "ttfa"},
    "inference-perf": {"ttft", "itl", "tpot", "e2e", "stream_end", "cached_tokens"},
    "genai-bench": {"ttft", "stream_end", "output_tokens"},
    "evalscope": {"ttft", "itl", "tpot", "e2e", "stream_end"},
}


@pytest.mark.parametrize("tool", ROLE)
def test_a_metric_is_a_gap_where_its_source_is_silent_and_nowhere_else(tool: str, tmp_path: Path) -> None:
    (stage,) = judge(imported(FILES / ROLE[tool], tmp_path / "run"))["stages"]
    metrics = stage["metrics"]
    assert {name for name in GAPS[tool] if metrics[name]["gap"]} == GAPS[tool]
    assert all("not tell" in metrics[n]["gap"] or "no request" in metrics[n]["gap"] for n in GAPS[tool])
    assert not [name for name in TELLS.get(tool, ()) if metrics[name]["gap"]]
    if tool in ("sglang", "genai-bench"):  # durations alone: no level over time, and no steady stage
        assert stage["condition"] == "incomplete"
        assert stage["peak_tps"] is None
        assert stage["in_flight_peak"] is stage["in_flight"] is None
    assert (stage["in_flight_mean"] is None) == (tool == "genai-bench")


def test_refusals_keep_their_status(tmp_path: Path) -> None:
    for name in ("vllm-refuse.json", "guidellm-refuse.json", "aiperf-refuse/profile_export.jsonl"):
        run = imported(FILES / name, tmp_path / name.replace("/", "-"))
        (stage,) = judge(run)["stages"]
        assert (stage["outcomes"]["ok"], stage["outcomes"]["error_http"], stage["refused"]["shed"]) == (1, 11, 11)
        assert stage["condition"] == "errored"


def test_a_failure_without_a_kind_is_still_a_failure() -> None:
    assert ended(None) == {"outcome": Outcome.OK}
    assert ended("Connection refused by host")["outcome"] is Outcome.ERROR_CONNECT
    assert ended("TimeoutError: timed out")["outcome"] is Outcome.TIMEOUT
    assert ended("Too Many Requests")["error_kind"] == "limited"
    assert ended("something odd") == {"outcome": Outcome.ERROR_PROTOCOL, "error_kind": "not told"}


def test_an_older_vllm_without_start_times_gives_durations_alone(tmp_path: Path) -> None:
    document = {key: value for key, value in load("vllm-role.json").items() if key not in ("start_times", "latencies")}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document))
    run = imported(path, tmp_path / "run")
    assert own(run, "vllm").span_s == document["duration"]
    assert stats(own(run, "vllm"), "e2e")["p99"] == pytest.approx(document["p99_e2el_ms"], rel=1e-6)
    (stage,) = judge(run)["stages"]
    assert stage["condition"] == "incomplete"
    assert stage["completed_rps"] == pytest.approx(document["request_throughput"])


def test_stages_are_laid_one_after_another(tmp_path: Path) -> None:
    report = load("guidellm-role.json")
    report["benchmarks"] *= 2
    path = tmp_path / "two.json"
    path.write_text(json.dumps(report))
    run = imported(path, tmp_path / "run")
    first, second = run.manifest["stages"]
    assert second["start_ns"] > first["w1_ns"]
    assert [s["attempted"] for s in judge(run)["stages"]] == [12, 12]


def test_loads_are_told(tmp_path: Path) -> None:
    stages = {tool: imported(FILES / name, tmp_path / tool).manifest["stages"][0] for tool, name in ROLE.items()}
    users = {tool: entry["concurrency"] for tool, entry in stages.items()}
    assert users == dict.fromkeys(ROLE, 2) | {"inference-perf": None}
    assert {entry["kind"] for entry in stages.values()} == {"closed"}
