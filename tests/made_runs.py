"""Records and whole run directories from compact descriptions, for every test that judges or reports.

Times are in seconds here and turned into ns; nothing draws chance unless a seeded generator is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchlab.metrics.columns import Columns, columns_of
from benchlab.metrics.window import Window
from benchlab.records.event import Kind, Outcome
from benchlab.records.manifest import Manifest
from benchlab.records.record import Record
from benchlab.records.sample import Sample
from benchlab.records.schema import REQUESTS, requests_batch, samples_batch
from benchlab.records.store import Run, write_manifest, write_parquet


def ns(seconds: float) -> int:
    """Seconds as ns."""
    return round(seconds * 1e9)


def stream(
    sent: float = 0.0,
    chunks: Sequence[float] = (),
    *,
    tokens: int | None = -1,
    chunk_tokens: Sequence[int | None] | None = None,
    kinds: Sequence[Kind] | None = None,
    slack: Sequence[float] | None = None,
    intended: float | None = None,
    dispatched: float | None = None,
    end: float | None = None,
    outcome: Outcome = Outcome.OK,
    request_id: str = "r0",
    stage: int = 0,
    tokens_source: str | None = None,
    prompt_tokens: int | None = 10,
    **more: Any,
) -> Record:
    """One request whose text arrives at `chunks` (seconds on the same clock as `sent`, one chunk each).

    tokens: the server's output count (-1: as many as there are chunks; None: it told none). intended and dispatched
    default to `sent`, end to the last chunk. Anything else of Record goes in by name.
    """
    n = len(chunks)
    intended = sent if intended is None else intended
    dispatched = intended if dispatched is None else dispatched
    end = end if end is not None else (max(chunks) if n else sent)
    told = n if tokens == -1 else tokens
    source = tokens_source if tokens_source is not None else ("usage" if told is not None else None)
    fields: dict[str, Any] = {
        "request_id": request_id,
        "stage": stage,
        "item_id": f"item-{request_id}",
        "outcome": outcome,
        "intended_ns": ns(intended),
        "dispatched_ns": ns(dispatched),
        "sent_ns": ns(sent),
        "headers_ns": ns(min([*chunks, end])),
        "chunk_ns": [ns(at) for at in chunks],
        "chunk_slack_ns": [ns(at) for at in slack] if slack is not None else [0] * n,
        "chunk_tokens": list(chunk_tokens) if chunk_tokens is not None else [None] * n,
        "chunk_kind": list(kinds) if kinds is not None else [Kind.CONTENT] * n,
        "end_ns": None if outcome in (Outcome.UNFINISHED, Outcome.NOT_SENT) else ns(end),
        "http_status": 200,
        "finish_reason": "stop" if outcome is Outcome.OK else None,
        "prompt_tokens": prompt_tokens,
        "output_tokens": told,
        "tokens_source": source,
    }
    return Record(**(fields | more))


def steady(sent: float = 0.0, *, ttft: float, gap: float, tokens: int, **more: Any) -> Record:
    """One request that streams `tokens` chunks of one token, the first `ttft` s after `sent`, one each `gap` s."""
    return stream(sent, [sent + ttft + i * gap for i in range(tokens)], **more)


def failed(sent: float = 0.0, *, outcome: Outcome, after: float = 0.01, **more: Any) -> Record:
    """One request that ended badly `after` s later, without any text."""
    fields: dict[str, Any] = {"outcome": outcome, "end": sent + after, "tokens": None, "prompt_tokens": None}
    if outcome is Outcome.NOT_SENT:
        fields |= {"sent_ns": None, "headers_ns": None, "dispatched_ns": None, "http_status": None}
    elif outcome is Outcome.ERROR_CONNECT:
        fields |= {"sent_ns": None, "headers_ns": None, "http_status": None, "error_kind": "refused"}
    elif outcome is Outcome.ERROR_HTTP:
        fields |= {"http_status": 500}
    elif outcome is Outcome.UNFINISHED:
        fields |= {"headers_ns": None, "http_status": None}
    return stream(sent, [], **(fields | more))


def table_of(records: Sequence[Record]) -> pa.Table:
    """The requests table of these records."""
    return pa.Table.from_batches([requests_batch(records)], schema=REQUESTS)


def columns_from(records: Sequence[Record]) -> Columns:
    """The arrays of these records, as metrics want them."""
    return columns_of(table_of(records))


def window(w0: float, w1: float, cut: float | None = None) -> Window:
    """A measured window, in seconds."""
    return Window(ns(w0), ns(w1), ns(cut if cut is not None else w1))


# -- a server made of arithmetic


def served(
    arrivals: Sequence[float],
    *,
    work: Callable[[int], float],
    servers: int = 1,
    ttft: float = 0.05,
    gap: float = 0.01,
    tokens: int = 8,
    stage: int = 0,
    cut: float | None = None,
    prefix: str = "r",
) -> list[Record]:
    """Requests at `arrivals` (s) through a first-come queue of `servers`, each busy `work(i)` s with request i.

    Text comes once served: first `ttft` s after service began, then every `gap` s but never past the service's end.
    Who is not done at `cut` (s) is unfinished, with the text that had come.
    """
    free = [0.0] * servers
    records = []
    for i, at in enumerate(arrivals):
        slot = min(range(servers), key=free.__getitem__)
        begin, busy = max(at, free[slot]), work(i)
        free[slot] = begin + busy
        first = min(ttft, busy)
        step = min(gap, (busy - first) / max(1, tokens - 1))
        chunks = [begin + first + k * step for k in range(tokens)]
        name = f"{prefix}{stage}-{i}"
        if cut is not None and chunks[-1] > cut:
            seen = [t for t in chunks if t <= cut]
            lost: dict[str, Any] = {"outcome": Outcome.UNFINISHED, "tokens": None, "headers_ns": None}
            records.append(stream(at, seen, request_id=name, stage=stage, **lost))
        else:
            records.append(stream(at, chunks, request_id=name, stage=stage))
    return records


# -- whole runs


@dataclass(frozen=True, slots=True)
class MadeStage:
    """A stage for `made_run`: its records and what the manifest tells of it. Times in seconds from t0.

    Anything else of the manifest's stage entry goes into `entry` (workers, planned, complete, why, ...).
    """

    records: Sequence[Record]
    w0: float
    w1: float
    kind: str = "open"
    offered_rps: float | None = None
    concurrency: int | None = None
    name: str = ""
    cut: float | None = None
    entry: dict[str, Any] = field(default_factory=dict)


WORKER: dict[str, Any] = {
    "worker": 0,
    "cpu_s": 3.0,
    "wall_s": 30.0,
    "loop_lag_ms": {"p50": 0.1, "p99": 0.9, "max": 2.5},
    "events": 1000,
    "merged_chunks": 0,
    "connections": 4,
    "retries": 0,
    "cap": {"max_inflight": None, "held": 0},
    "peak_inflight": 8,
}
"""A healthy worker's own account of a stage."""


def made_stage_entry(number: int, stage: MadeStage) -> dict[str, Any]:
    """The manifest's entry of a made stage."""
    plain = {
        "stage": number,
        "name": stage.name or f"stage {number}",
        "kind": stage.kind,
        "offered_rps": stage.offered_rps,
        "concurrency": stage.concurrency,
        "arrival": "poisson" if stage.kind == "open" else None,
        "warmup": "none",
        "planned": len(stage.records) if stage.kind == "open" else None,
        "start_ns": ns(stage.w0),
        "w0_ns": ns(stage.w0),
        "w1_ns": ns(stage.w1),
        "drain_end_ns": ns(stage.cut if stage.cut is not None else stage.w1),
        "complete": True,
        "why": None,
        "workers": [WORKER],
    }
    return plain | stage.entry


def made_manifest(stages: Sequence[MadeStage], run_id: str = "made-run", **more: Any) -> Manifest:
    """A manifest with every key that judging reads; `more` replaces whole top-level keys."""
    manifest: Manifest = {
        "schema": 1,
        "run_id": run_id,
        "created": "2026-01-02T03:04:05+00:00",
        "benchlab": "0.1.0",
        "command": ["benchlab", "sweep", "-u", "http://127.0.0.1:8000"],
        "labels": {},
        "t0": {"monotonic_ns": 0, "wall_ns": 1_767_323_045_000_000_000},
        "state": "complete",
        "reason": None,
        "endpoint": {
            "url": "http://127.0.0.1:8000",
            "api": "chat",
            "model": "made-model",
            "models_at_start": ["made-model"],
            "models_at_end": ["made-model"],
            "server": "made",
        },
        "engine": None,
        "workload": {
            "path": "workloads/made.jsonl",
            "sha256": "0" * 64,
            "items": 100,
            "read": 100,
            "dropped": {},
            "cache": "unknown",
            "tokenizer": None,
        },
        "items": 100,
        "seeds": {"arrival": 0, "content": 0},
        "sampling": {"temperature": 0},
        "timeouts": {"connect_ns": ns(10), "first_content_ns": None, "gap_ns": None, "total_ns": ns(120)},
        "client": {"transport": "native", "stamp_source": "kernel", "cpus": 2},
        "stages": [made_stage_entry(number, stage) for number, stage in enumerate(stages)],
        "slo": {"clauses": [], "target": None},
        "objectives": [],
        "percentiles": [50, 90, 95, 99],
        "telemetry": {"sources": ["host"], "notes": [], "period_ns": ns(0.5), "gaps": []},
        "host": {"name": "made", "cpu": "made", "cores": 2, "memory_bytes": 2**33, "kernel": "made"},
        "git": None,
    }
    return manifest | more


def made_samples(seconds: float, *, period: float = 0.5) -> list[Sample]:
    """Host CPU and one GPU's power and utilisation every `period` s, and an energy counter."""
    samples: list[Sample] = []
    for i in range(int(seconds / period) + 1):
        t = ns(i * period)
        samples += [
            Sample(t, "host", "host", "cpu_share", 0.3),
            Sample(t, "nvml", "GPU-made", "power_w", 200.0 + i % 7),
            Sample(t, "nvml", "GPU-made", "utilization_share", 0.8),
            Sample(t, "nvml", "GPU-made", "energy_j", 200.0 * i * period, counter=True),
            Sample(t, "nvml", "GPU-made", "throttle_reasons", None, reason="not supported"),
        ]
    return samples


def made_run(
    path: Path,
    stages: Sequence[MadeStage] | None = None,
    *,
    samples: Sequence[Sample] | None = None,
    **manifest: Any,
) -> Path:
    """Write a run directory at `path` and return it. Without stages: `made_sweep()`. `manifest`: keys to replace."""
    stages = made_sweep() if stages is None else stages
    path.mkdir(parents=True, exist_ok=True)
    records = [replace(record, stage=number) for number, stage in enumerate(stages) for record in stage.records]
    write_parquet(path / "requests.parquet", table_of(records))
    length = max((stage.cut or stage.w1 for stage in stages), default=0.0)
    taken = made_samples(length) if samples is None else samples
    if taken:
        write_parquet(path / "telemetry.parquet", pa.Table.from_batches([samples_batch(taken)]))
    write_manifest(path, made_manifest(stages, **({"run_id": path.name} | manifest)))
    return path


def open_run(path: Path, stages: Sequence[MadeStage] | None = None, **more: Any) -> Run:
    """`made_run`, opened."""
    return Run(made_run(path, stages, **more))


def poisson(rate: float, start: float, length: float, *, seed: int) -> list[float]:
    """Seeded arrivals (s) over [start, start + length): as many as the rate wants, at independent times."""
    generator = np.random.default_rng(seed)
    return sorted(float(t) for t in start + generator.uniform(0, length, round(rate * length)))


def open_stage(rate: float, start: float, *, length: float = 30.0, seed: int = 0, prefix: str = "r") -> MadeStage:
    """An open-loop stage on a server of four slots at 0.4 s a request: 10/s is all it can do."""
    cut = start + length + 20
    records = served(
        poisson(rate, start, length, seed=seed),
        work=lambda _: 0.4,
        servers=4,
        tokens=16,
        gap=0.02,
        cut=cut,
        prefix=f"{prefix}{rate:g}-",
    )
    return MadeStage(records, start, start + length, offered_rps=rate, cut=cut, name=f"{rate:g}/s")


def closed_stage(users: int, start: float, *, length: float = 20.0) -> MadeStage:
    """A closed-loop stage: each user sends again as soon as the answer is whole; some are cut off at the end."""
    records: list[Record] = []
    for user in range(users):
        at, i = start + 0.01 * user, 0
        while at < start + length:
            records.append(steady(at, ttft=0.1, gap=0.02, tokens=16, request_id=f"u{user}-{i}"))
            at, i = at + 0.1 + 15 * 0.02 + 0.001, i + 1
    return MadeStage(records, start, start + length, "closed", concurrency=users, cut=start + length + 5)


def broken_stage(start: float, *, length: float = 20.0) -> MadeStage:
    """A stage in which every outcome occurs: an open loop at 5/s against a server that fails in every way."""
    bad = [outcome for outcome in Outcome if outcome is not Outcome.OK]
    records: list[Record] = []
    for i in range(round(5 * length)):
        at = start + i / 5
        name = f"b{i}"
        if i % 10 == 9:
            outcome = bad[(i // 10) % len(bad)]
            records.append(failed(at, outcome=outcome, request_id=name, error=f"made to end as {outcome.value}"))
        else:
            records.append(steady(at, ttft=0.1, gap=0.02, tokens=16, request_id=name))
    return MadeStage(records, start, start + length, offered_rps=5.0, cut=start + length + 5, name="broken")


def made_sweep() -> list[MadeStage]:
    """Three open-loop stages (2/s and 5/s stable, 20/s overloaded), one that fails in every way, one closed loop."""
    return [
        open_stage(2, 0.0, seed=1),
        open_stage(5, 60.0, seed=2),
        open_stage(20, 120.0, seed=3),
        broken_stage(240.0),
        closed_stage(4, 300.0),
    ]
