"""What the manifest says of a run when it begins, and the rows that go with it. Secrets never get here whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import benchlab
from benchlab.campaign.facts import client_facts, git_facts
from benchlab.campaign.probe import Served
from benchlab.campaign.spec import RunSpec
from benchlab.campaign.stages import Stage, manifest_entry
from benchlab.clients.endpoint import Endpoint, ignored_proxies
from benchlab.clients.transports import resolve_transport
from benchlab.launch.base import Engine
from benchlab.loadgen.job import StageReport
from benchlab.records.manifest import Manifest, redact_argv, redact_headers
from benchlab.telemetry.host import host_facts
from benchlab.workload.item import WorkloadItem
from benchlab.workload.lock import stored
from benchlab.workload.read import Workload


def first_manifest(
    spec: RunSpec,
    *,
    run_id: str,
    t0_ns: int,
    wall_ns: int,
    workload: Workload,
    made_note: str,
    stages: Sequence[Stage],
    endpoint: Endpoint,
    model: str,
    served: Served,
    engine: Engine | None,
) -> Manifest:
    """The manifest of a run that has not sent anything yet (keys: records/manifest.py)."""
    return {
        "schema": 1,
        "run_id": run_id,
        "created": datetime.fromtimestamp(wall_ns / 1e9, tz=UTC).isoformat(timespec="seconds"),
        "benchlab": benchlab.__version__,
        "command": redact_argv(list(spec.command)),
        "labels": spec.labels,
        "t0": {"monotonic_ns": t0_ns, "wall_ns": wall_ns},
        "state": "running",
        "reason": None,
        "endpoint": {
            "url": endpoint.base,
            "api": spec.api,
            "model": model,
            "models_at_start": served.models,
            "models_at_end": None,
            "server": served.server,
            "headers": dict.fromkeys(spec.headers, "***"),  # any of them may be a secret, whatever its name
        },
        "engine": engine.facts() if engine else None,
        "workload": workload_entry(spec, workload, [made_note] if made_note else []),
        "seeds": {"arrival": spec.arrival_seed, "content": spec.seed},
        "sampling": _without_secrets(spec.extra),
        "timeouts": msgspec.to_builtins(spec.timeouts),
        "client": {
            **client_facts(),
            "transport": resolve_transport(spec.transport),
            "workers": spec.workers,
            "proxies_ignored": ignored_proxies(),
            "max_inflight": spec.max_inflight,
            "pacing": spec.pacing,
            "source_addresses": list(spec.source_addresses),
        },
        "stages": [manifest_entry(stage, spec) for stage in stages],
        "slo": {"clauses": list(spec.slo), "target": spec.slo_target},
        "objectives": list(spec.objectives),
        "select": spec.select,
        "percentiles": list(spec.percentiles),
        "preset": spec.preset,
        "price_per_hour": spec.price_per_hour,
        "telemetry": {"sources": [], "notes": [], "gaps": []},
        "host": host_facts(),
        "git": git_facts(Path(benchlab.__file__).parent),
    }


def workload_entry(spec: RunSpec, workload: Workload, notes: Sequence[str]) -> dict[str, Any]:
    """The workload as the manifest holds it: how it was read, and what binds it. notes: beside its reading's own."""
    return {
        "path": workload.path,
        "sha256": workload.sha256,
        "format": workload.format,
        "items": len(workload.items),
        "read": workload.read,
        "dropped": workload.dropped,
        "complaints": list(workload.complaints[:20]),
        "notes": [*workload.notes, *notes],
        "cache": spec.cache,
        "tokenizer": spec.tokenizer,
        **stored(
            workload,
            seeds={"arrival": spec.arrival_seed, "content": spec.seed},
            tokenizer=spec.tokenizer,
            sampling=_without_secrets(spec.extra),
        ),
    }


def _without_secrets(extra: dict[str, Any]) -> dict[str, Any]:
    """The fields of `--body`, those that are named like a key hidden."""
    return {
        name: redact_headers({name: value})[name] if isinstance(value, str) else value for name, value in extra.items()
    }


def worker_entry(report: StageReport) -> dict[str, Any]:
    """A worker's account of a stage as the manifest holds it."""
    entry: dict[str, Any] = msgspec.to_builtins(report)
    entry.pop("stage")
    entry.pop("type", None)
    entry["backoff"] = {"times": entry.pop("backoff_times"), "ns": entry.pop("backoff_ns")}
    entry["cap"] = {"max_inflight": entry.pop("max_inflight"), "held": entry.pop("held")}
    return entry


def item_row(item: WorkloadItem) -> dict[str, Any]:
    """A row of `items.parquet`."""
    expect = None if item.expect is None else msgspec.json.encode(item.expect).decode()
    return {
        "item_id": item.id,
        "expect": expect,
        "tags": list(item.tags),
        "tenant": item.tenant,
        "requested_tokens": item.output_tokens,
    }
