"""A run in the shape of guidellm's JSON report, in guidellm's own definitions: one benchmark a stage.

The one idea: the members that dashboards and scripts read (`metadata`, `benchmarks[].metrics`, `.requests`, times),
under guidellm's names and meanings; its configuration of itself is not made up. It must not hold a definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchlab.errors import UsageError
from benchlab.metrics.columns import Columns
from benchlab.metrics.dialects import Figure, in_dialects_of
from benchlab.metrics.dialects_read import Sight
from benchlab.metrics.dialects_tools import GUIDELLM
from benchlab.metrics.goodput import SloClause
from benchlab.metrics.window import window_of
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_S

_PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
_NAMES = ("p001", "p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999")
_LATENCIES = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "itl": ("inter_token_latency_ms", 1.0),
    "tpot": ("time_per_output_token_ms", 1.0),
    "e2e": ("request_latency", 1e-3),
}


def run_as_guidellm(
    stages: Mapping[int, Columns],
    manifest: Mapping[str, Any],
    *,
    slo: Sequence[SloClause] = (),
    verdict: str = "",
) -> dict[str, Any]:
    """The JSON object of a run; stages without a window are left out. Raises UsageError where none is left."""
    wall = float((manifest.get("t0") or {}).get("wall_ns") or 0) / NS_PER_S
    benchmarks = []
    for place, entry in enumerate(manifest.get("stages") or []):
        c = stages.get(int(entry.get("stage", place)))
        if c is not None and window_of(entry, c) is not None:
            benchmarks.append(_benchmark(c, entry, manifest, slo, wall))
    if not benchmarks:
        raise UsageError("no stage has a measured window", where="--to guidellm", hint="`benchlab report` says why")
    return {
        "metadata": {
            "version": 2,
            "guidellm_version": None,
            "exported_by": f"benchlab {manifest.get('benchlab')}",
            "benchlab_verdict": verdict,
            "benchlab_run_id": manifest.get("run_id"),
        },
        "benchmarks": benchmarks,
    }


def _benchmark(
    c: Columns, entry: Mapping[str, Any], manifest: Mapping[str, Any], slo: Sequence[SloClause], wall: float
) -> dict[str, Any]:
    window = window_of(entry, c)
    if window is None:
        raise ValueError("a stage without a window")
    among = window.holds(c.number("intended_ns"))
    source = (manifest.get("imported") or {}).get("tool")
    speech = in_dialects_of(c, entry, slo=slo, percentiles=_PERCENTILES, tools=(GUIDELLM,), source=source)[1]
    figures = {figure.key: figure for figure in speech.figures}
    sight = Sight(c, among, window, entry)
    endpoint = manifest.get("endpoint") or {}
    unfinished = among & c.is_outcome(Outcome.UNFINISHED, Outcome.CANCELLED, Outcome.NOT_SENT)
    groups = {"successful": sight.ok, "errored": among & ~sight.ok & ~unfinished, "incomplete": unfinished}
    totals = {name: int(mask.sum()) for name, mask in groups.items()}
    metrics: dict[str, Any] = {
        "request_totals": totals | {"total": int(among.sum())},
        "requests_per_second": {"successful": _rate(figures["completed_rps"])},
        "output_tokens_per_second": {"successful": _rate(figures["output_tps"])},
    }
    metrics |= {name: {"successful": _summary(figures[key], scale)} for key, (name, scale) in _LATENCIES.items()}
    if "good_rps" in figures:
        metrics["request_goodput"] = {"successful": _rate(figures["good_rps"])}
        metrics["slo_attainment"] = figures["attainment"].stats["value"]
    return {
        "type_": "generative_benchmark",
        "config": {
            "strategy": _strategy(entry),
            "backend": {"kind": "openai_http", "target": endpoint.get("url"), "model": endpoint.get("model"),
                        "request_format": endpoint.get("api")},
        },
        "start_time": wall + window.w0_ns / NS_PER_S,
        "end_time": wall + window.w1_ns / NS_PER_S,
        "duration": speech.span_s,
        "metrics": metrics,
        "requests": {
            name: [_request(sight, int(row), wall) for row in np.flatnonzero(mask)] for name, mask in groups.items()
        },
    }  # fmt: skip


def _strategy(entry: Mapping[str, Any]) -> dict[str, Any]:
    if entry.get("kind") == "closed":
        return {"type_": "concurrent", "streams": entry.get("concurrency")}
    rate = entry.get("offered_rps")
    return {"type_": entry.get("arrival") or "poisson", "rate": rate} if rate is not None else {"type_": "throughput"}


def _rate(figure: Figure) -> dict[str, Any] | None:
    value = figure.stats["value"]
    return None if value is None else {"mean": value, "count": figure.n}


def _summary(figure: Figure, scale: float) -> dict[str, Any] | None:
    if figure.gap:
        return None
    stats = {name: value * scale for name, value in figure.stats.items() if value is not None}
    told = {name: stats[f"p{p:g}"] for name, p in zip(_NAMES, _PERCENTILES, strict=True)}
    return {"mean": stats["mean"], "median": told["p50"], "count": figure.n, "percentiles": told}


def _request(s: Sight, row: int, wall: float) -> dict[str, Any]:
    """One request with the times that guidellm keeps, s since the epoch."""
    c = s.c

    def at(ns: float) -> float | None:
        return None if np.isnan(ns) else wall + ns / NS_PER_S

    def cell(name: str) -> Any:
        return c.table.column(name)[row].as_py()

    first, last = s.first_text()[row], s.last_text()[row]
    answer = s.first_answer()[row]
    timings = {
        "targeted_start": at(s.due()[row]),
        "request_start": at(s.sent()[row]),
        "first_token_iteration": at(first),
        "first_output_token_iteration": at(answer),
        "last_token_iteration": at(last),
        "token_iterations": int(c.visible_count[row]),
        "request_end": at(s.end()[row]),
        "resolve_end": at(s.end()[row]),
    }
    return {
        "type_": "generative_request_stats",
        "request_id": cell("request_id"),
        "info": {
            "timings": timings,
            "error": cell("error") if not s.ok[row] else None,
            "conversation_id": cell("session_id"),
        },
        "request_start_time": timings["request_start"],
        "request_end_time": timings["request_end"],
        "prompt_tokens": cell("prompt_tokens"),
        "output_tokens": cell("output_tokens"),
    }
