"""What each client says of itself, from its own result files, in one set of words.

The one idea: ttft, gap (between chunks or tokens, whichever the client reports), mean_gap (per answer: TPOT) and e2e,
each with mean, p50 and p99 in ms, None where the client has no such figure. It must not know what is true.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.peers.cases import program
from tests.benchmarks.peers.server_log import spread

Figures = dict[str, Any]


def read(tool: str, out: Path) -> Figures:
    """The client's own figures. Raises OSError, KeyError or ValueError where it left none that can be read."""
    return _READERS[program(tool)](out)


def _of(found: dict[str, Any] | None, mean: str, p50: str, p99: str, times: float = 1.0) -> dict[str, float] | None:
    if not found or found.get(mean) is None:
        return None
    return {"mean": found[mean] * times, "p50": found[p50] * times, "p99": found[p99] * times}


def _benchlab(out: Path) -> Figures:
    summary = json.loads((out / "run/summary.json").read_text())
    stage = summary["stages"][0]
    names = {"ttft": "ttft", "gap": "itl", "mean_gap": "tpot", "e2e": "e2e"}
    found: Figures = {ours: _of(stage["metrics"].get(name), "mean", "p50", "p99") for ours, name in names.items()}
    failed = [rule["name"] for rule in summary["verdict"]["rules"] if rule["state"] == "fail"]
    worker = json.loads((out / "run/manifest.json").read_text())["stages"][0]["workers"]
    merged = sum(w["merged_chunks"] for w in worker) / max(1, sum(w["events"] for w in worker))
    return found | {
        "completed": stage["outcomes"].get("ok", 0),
        "verdict": summary["verdict"]["state"],
        "failed_rules": failed,
        "merged_share": merged,
        "worker_cpu_s": sum(w["cpu_s"] for w in worker),
    }


def _floor(out: Path) -> Figures:
    rows = [row for row in json.loads((out / "rows.json").read_text()) if row[1] and row[4]]
    gaps = [np.diff(row[4]) / 1e6 for row in rows if len(row[4]) > 1]
    return {
        "ttft": spread([(row[4][0] - row[2]) / 1e6 for row in rows]),
        "gap": spread(np.concatenate(gaps) if gaps else []),
        "mean_gap": spread([gap.mean() for gap in gaps]),
        "e2e": spread([(row[4][-1] - row[2]) / 1e6 for row in rows]),
        "completed": len(rows),
    }


def _vllm(out: Path) -> Figures:
    found = json.loads((out / "out.json").read_text())

    def of(key: str) -> dict[str, float] | None:
        return _of(found, f"mean_{key}_ms", f"median_{key}_ms", f"p99_{key}_ms")

    return {"ttft": of("ttft"), "gap": of("itl"), "mean_gap": of("tpot"), "e2e": of("e2el")} | {
        "completed": found["completed"]
    }


def _aiperf(out: Path) -> Figures:
    found = json.loads((out / "profile_export_aiperf.json").read_text())

    def of(key: str) -> dict[str, float] | None:
        return _of(found.get(key), "avg", "p50", "p99")

    return {
        "ttft": of("time_to_first_token"),
        "gap": of("inter_chunk_latency"),
        "mean_gap": of("inter_token_latency"),
        "e2e": of("request_latency"),
        "completed": found["request_count"]["avg"],
    }


def _inference_perf(out: Path) -> Figures:
    found = json.loads((out / "report/summary_lifecycle_metrics.json").read_text())["successes"]

    def of(key: str) -> dict[str, float] | None:
        return _of(found["latency"].get(key), "mean", "median", "p99", 1000)

    return {
        "ttft": of("time_to_first_token"),
        "gap": of("inter_token_latency"),
        "mean_gap": of("time_per_output_token"),
        "e2e": of("request_latency"),
        "completed": found["count"],
    }


def _genai_bench(out: Path) -> Figures:
    path = next(path for path in (out / "exp").glob("*concurrency*.json") if "metadata" not in path.name)
    found = json.loads(path.read_text())["aggregated_metrics"]

    def of(key: str) -> dict[str, float] | None:
        return _of(found["stats"].get(key), "mean", "p50", "p99")

    return {"ttft": of("ttft"), "gap": None, "mean_gap": of("tpot"), "e2e": of("e2e_latency")} | {
        "completed": found["num_completed_requests"]
    }


def _guidellm(out: Path) -> Figures:
    found = json.loads((out / "out.json").read_text())["benchmarks"][0]["metrics"]

    def of(key: str, times: float = 1.0) -> dict[str, float] | None:
        figures = (found.get(key) or {}).get("successful")
        flat = figures and {"mean": figures["mean"], "p50": figures["median"], "p99": figures["percentiles"]["p99"]}
        return _of(flat, "mean", "p50", "p99", times)

    return {
        "ttft": of("time_to_first_token_ms"),
        "gap": of("inter_token_latency_ms"),
        "mean_gap": of("time_per_output_token_ms"),
        "e2e": of("request_latency", 1000),
        "completed": found["request_totals"]["successful"],
    }


_READERS = {
    "benchlab": _benchlab,
    "floor": _floor,
    "vllm": _vllm,
    "aiperf": _aiperf,
    "inference-perf": _inference_perf,
    "genai-bench": _genai_bench,
    "guidellm": _guidellm,
}
