"""Made-up runs for the report's tests: a small queue stands in for a server, a few lines of numpy for the metrics."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Record
from benchlab.records.sample import Sample
from benchlab.records.schema import requests_batch, samples_batch
from benchlab.records.store import Run, write_manifest, write_parquet

S, MS = 1_000_000_000, 1_000_000
STATS = (50, 90, 95, 99)


def _record(rng, stage, number, intended, begin, step, outcome, tokens) -> Record:
    sent = intended + int(rng.lognormal(-1.0, 0.8) * MS)
    first = max(begin, sent) + int(rng.lognormal(4.6, 0.25) * MS)
    stamps = [first + i * step + int(rng.integers(0, 3 * MS)) for i in range(tokens)]
    stamps = sorted(stamps)
    whole = outcome in (Outcome.OK,)
    if outcome in (Outcome.ERROR_HTTP, Outcome.NOT_SENT, Outcome.ERROR_CONNECT):
        stamps = []
    if outcome is Outcome.ERROR_STREAM:
        stamps = stamps[: tokens // 2]
    gone = outcome is Outcome.NOT_SENT
    end = None if gone or outcome is Outcome.UNFINISHED else (stamps[-1] if stamps else sent + 40 * MS) + MS
    status = {Outcome.ERROR_HTTP: 503, Outcome.NOT_SENT: None, Outcome.ERROR_CONNECT: None}.get(outcome, 200)
    return Record(
        request_id=f"r{stage}-{number:04d}",
        stage=stage,
        item_id=f"item-{number}",
        outcome=outcome,
        intended_ns=intended,
        dispatched_ns=None if gone else sent,
        sent_ns=None if gone else sent,
        headers_ns=None if gone else sent + 5 * MS,
        chunk_ns=stamps,
        chunk_slack_ns=[0] * len(stamps),
        chunk_tokens=[1] * len(stamps),
        chunk_kind=[Kind.CONTENT] * len(stamps),
        end_ns=end,
        http_status=status,
        error=None if whole else f'{outcome.value}: made up, with a , and a "quote"\nand a second line',
        error_kind="shed" if outcome is Outcome.ERROR_HTTP else None,
        finish_reason="stop" if whole else None,
        prompt_tokens=120,
        output_tokens=len(stamps),
        tokens_source="usage",
    )


def made_records(plan: list[tuple[str, float]], *, seconds: int = 30, fail: bool = False, seed: int = 0):
    """Records and manifest stages for (kind, load) pairs; `fail` makes every request a 503."""
    rng = np.random.default_rng(seed)
    records, stages, start = [], [], 0
    for place, (kind, load) in enumerate(plan):
        w0, w1 = start + 3 * S, start + (3 + seconds) * S
        rate = load if kind == "open" else load * 0.7
        times = start + np.cumsum(rng.exponential(S / rate, size=int((3 + seconds) * rate * 1.4) + 5))
        times = times[times < w1].astype(np.int64)
        free = np.zeros(8, dtype=np.int64)
        for number, intended in enumerate(times.tolist()):
            slot = int(np.argmin(free))
            begin = max(intended, int(free[slot]))
            tokens = int(rng.integers(16, 48))
            step = int((22 + 5 * min(rate, 8)) * MS)
            free[slot] = begin + tokens * step + 100 * MS
            outcome = Outcome.ERROR_HTTP if fail else Outcome.OK
            if not fail and rng.random() < 0.004 * max(0.0, rate - 3):
                outcome = [Outcome.ERROR_HTTP, Outcome.TIMEOUT, Outcome.ERROR_STREAM, Outcome.UNFINISHED][number % 4]
            records.append(_record(rng, place, number, intended, begin, step, outcome, tokens))
        stages.append(
            {
                "stage": place,
                "name": f"{kind} {load:g}",
                "kind": kind,
                "offered_rps": load if kind == "open" else None,
                "concurrency": int(load) if kind == "closed" else None,
                "arrival": "poisson" if kind == "open" else None,
                "planned": len(times),
                "start_ns": start,
                "w0_ns": w0,
                "w1_ns": w1,
                "drain_end_ns": w1 + 5 * S,
                "complete": True,
            }
        )
        start = w1 + 6 * S
    return records, stages


def _metric(values: list[float], *, unit: str = "ms") -> dict[str, Any]:
    n = len(values)
    out: dict[str, Any] = {"unit": unit, "n": n, "left_out": 0, "better": "lower", "gap": None, "indicative": []}
    if not n:
        nothing = dict.fromkeys(["mean", "min", "max", *(f"p{p}" for p in STATS)])
        return out | nothing | {"ci95": {}, "gap": "no request with content", "indicative": [f"p{p}" for p in STATS]}
    data = np.sort(values)
    out |= {"mean": float(data.mean()), "min": float(data[0]), "max": float(data[-1]), "ci95": {}}
    for p in STATS:
        q = p / 100
        out[f"p{p}"] = float(np.quantile(data, q))
        spread = 1.96 * np.sqrt(n * q * (1 - q))
        low, high = int(n * q - spread), int(np.ceil(n * q + spread))
        out["ci95"][f"p{p}"] = [float(data[max(0, low)]), float(data[high]) if high < n else None]
        if q**n > 0.025:
            out["indicative"].append(f"p{p}")
    return out


def made_summary(records: list[Record], stages: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
    """A Summary in the published schema from made-up records."""
    out = []
    for stage in stages:
        mine = [r for r in records if r.stage == stage["stage"] and stage["w0_ns"] <= r.intended_ns < stage["w1_ns"]]
        window = (stage["w1_ns"] - stage["w0_ns"]) / S
        content = [r for r in mine if r.chunk_ns]
        outcomes = {o.value: sum(r.outcome is o for r in mine) for o in Outcome}
        ttft = [(r.chunk_ns[0] - r.sent_ns) / MS for r in content]
        condition = "stable"
        if outcomes["ok"] < 0.97 * len(mine):
            condition = "errored"
        elif ttft and np.quantile(ttft, 0.9) > 1500:
            condition = "overloaded"
        ok = outcomes["ok"]
        gaps = [np.diff(r.chunk_ns) / MS for r in content if len(r.chunk_ns) > 1]
        out.append(
            {
                "stage": stage["stage"],
                "name": stage["name"],
                "condition": condition,
                "load": {key: stage.get(key) for key in ("kind", "offered_rps", "concurrency")},
                "window_s": window,
                "attempted": len(mine),
                "achieved_rps": len(mine) / window,
                "completed_rps": ok / window,
                "good_rps": 0.9 * ok / window if extra.get("slo") else None,
                "attainment": 0.9 * ok / max(1, len(mine)) if extra.get("slo") else None,
                "attainment_ci95": [0.8, 0.95] if extra.get("slo") else None,
                "input_tps": 120 * ok / window,
                "output_tps": sum(len(r.chunk_ns) for r in mine) / window,
                "total_tps": (120 * ok + sum(len(r.chunk_ns) for r in mine)) / window,
                "in_flight_mean": 3.2,
                "failed_share": 1 - ok / max(1, len(mine)),
                "refused": {"limited": 0, "shed": outcomes["error_http"]},
                "outcomes": outcomes,
                "metrics": {
                    "ttft": _metric(ttft),
                    "itl": _metric([float(g) for each in gaps for g in each]),
                    "stall": _metric([float(each.max()) for each in gaps]),
                    "tpot": _metric([float(each.mean()) for each in gaps]),
                    "e2e": _metric([(r.chunk_ns[-1] - r.sent_ns) / MS for r in content]),
                    "dispatch_lag": _metric([(r.dispatched_ns - r.intended_ns) / MS for r in mine if r.dispatched_ns]),
                },
                "rules": [
                    {"name": "samples", "state": "warn", "value": ok, "limit": 368, "hint": "raise --duration"},
                    {"name": "in-flight trend", "state": "pass", "value": 0.01, "limit": 0.05, "hint": ""},
                ],
                "notes": ["92% of the prefill ran on one thread"],
            }
        )
    rules = [
        {"name": "complete records", "state": "pass", "value": len(records), "limit": len(records), "hint": ""},
        {"name": "dispatch lag p99", "state": "pass", "value": 1.84, "limit": 10, "hint": ""},
        {
            "name": "client CPU",
            "state": "warn",
            "value": 0.84,
            "limit": 0.8,
            "hint": "give the client a core of its own",
        },
        {
            "name": "prefix-cache hits",
            "state": "not checked",
            "value": None,
            "limit": "1 %",
            "hint": "the server tells none",
        },
    ]
    base = {
        "schema": 1,
        "run_id": "20260101-120000-made-up-abc123",
        "verdict": {"state": "WARN", "rules": rules},
        "percentile_method": "linear",
        "stages": out,
        "gates": [],
    }
    return base | extra


def made_selection(summary: dict[str, Any], objective: str = "ttft.p90<=400ms", limit: float = 400.0) -> dict[str, Any]:
    """The summary with a selection of the highest stable open stage that meets one objective."""
    open_stages = [s for s in summary["stages"] if s["load"]["kind"] == "open"]
    held = [s for s in open_stages if s["condition"] == "stable" and s["metrics"]["ttft"]["p90"] <= limit]
    best = max(held, key=lambda s: s["completed_rps"])
    above = [s["load"]["offered_rps"] for s in open_stages if s["load"]["offered_rps"] > best["load"]["offered_rps"]]
    selection = {
        "mode": "point",
        "objectives": [objective],
        "selected_stage": best["stage"],
        "bracket_rps": [best["load"]["offered_rps"], min(above, default=None)],
        "reason": "highest completed rate among the stable stages that meet every objective",
    }
    return summary | {"selection": selection, "objectives": [objective]}


def made_manifest(stages: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A manifest with every key that the report shows."""
    return {
        "schema": 1,
        "run_id": "20260101-120000-made-up-abc123",
        "created": "2026-01-01T12:00:00Z",
        "benchlab": "0.1.0",
        "command": ["benchlab", "sweep", "-u", "http://127.0.0.1:8000", "-r", "1,2,4,6,8", "-H", "Authorization: ***"],
        "labels": {"gpu": "none"},
        "t0": {"monotonic_ns": 1, "wall_ns": 1_767_268_800_000_000_000},
        "state": "complete",
        "endpoint": {"url": "http://127.0.0.1:8000", "api": "chat", "model": "smollm2-135m-instruct"},
        "engine": None,
        "workload": {"path": "workloads/chat.jsonl", "sha256": hashlib.sha256(b"x").hexdigest(), "items": 400},
        "seeds": {"arrival": 0, "content": 0},
        "client": {"transport": "native", "stamp_source": "callback", "cpus": 2},
        "stages": stages,
        "slo": None,
        "objectives": [],
        "telemetry": {"sources": ["host"], "notes": ["no GPU on this host"], "period_ns": S, "gaps": []},
        "host": {"name": "lab", "cpu": "x86-64", "cores": 2},
    } | changes


def made_run(folder: Path, records: list[Record], manifest: dict[str, Any]) -> Run:
    """A run directory on disk, opened."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    end = max((r.intended_ns for r in records), default=S) // S
    samples = [
        Sample(t * S, "host", "host", name, value)
        for t in range(0, end, 1)
        for name, value in (("cpu_share", 0.5 + 0.2 * rng.random()), ("memory_used_bytes", 4e9 + 1e8 * t))
    ]
    write_parquet(folder / "requests.parquet", pa.Table.from_batches([requests_batch(records)]))
    write_parquet(folder / "telemetry.parquet", pa.Table.from_batches([samples_batch(samples)]))
    write_manifest(folder, manifest)
    return Run(folder)


SWEEP = [("open", 1.0), ("open", 2.0), ("open", 4.0), ("open", 6.0), ("open", 9.0)]


def sweep_summary(**extra: Any):
    records, stages = made_records(SWEEP)
    return records, stages, made_selection(made_summary(records, stages, **extra))
