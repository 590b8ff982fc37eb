"""What an importer gives: stages of records, facts for the manifest, and what its tool could not tell.

The one idea: one value that every importer fills and one function that makes a run directory of it; the run is then
judged like any other. It must not know any tool's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchlab import __version__
from benchlab.errors import UsageError
from benchlab.records.event import Kind
from benchlab.records.manifest import Manifest, redact_text
from benchlab.records.record import Record
from benchlab.records.schema import REQUESTS, requests_batch
from benchlab.records.store import drop_spool, new_run_directory, write_manifest, write_parquet

NEVER_TOLD = ("dispatched_ns", "held_ns", "connect_start_ns", "connect_end_ns", "reasoning_tokens")
"""What no foreign file tells, if its importer does not say otherwise."""
ONLY_DURATIONS = "the file gives durations and no start times: every request is laid at the start of its stage"

_LATEST_NS = 9 * 10**15
"""104 days, as far as judging counts ns exactly."""

PARTS = {
    "chunk_ns.last": "when the last text came",
    "chunk_ns.between": "when the texts between the first and the last came",
    "chunk_kind.answer": "which texts were the answer and which reasoning",
    "chunk_kind.silent": "when events without text came: role, finish, usage",
    "sent_ns.absolute": "when a request was sent, against the others",
}
"""Parts of a field that a source may not tell while it tells the field: they stand in `unknown` like field names."""


@dataclass(frozen=True, slots=True)
class ImportedStage:
    """One stage: its records (times in ns from any common start) and keys of its manifest entry.

    span_s: what the tool divided its rates by. timed: False where only durations are told, laid at the start.
    """

    records: Sequence[Record]
    name: str
    kind: str
    offered_rps: float | None = None
    concurrency: int | None = None
    arrival: str | None = None
    span_s: float | None = None
    begin_ns: int | None = None
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Imported:
    """A foreign result. version, model, url, api, tokenizer, created: as the file tells them, else None."""

    tool: str
    stages: Sequence[ImportedStage]
    version: str | None = None
    model: str | None = None
    url: str | None = None
    api: str | None = None
    tokenizer: str | None = None
    created: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Importer:
    """A tool's importer.

    file: which of its files is meant, and the flag that makes it write single requests. recognises: whether a
    document is such a file, by its keys. summary: whether it is a file of the tool that holds no single request.
    """

    tool: str
    file: str
    recognises: Callable[[Any], bool]
    summary: Callable[[Any], bool]
    read: Callable[[Path, Any], Imported]


def has_keys(value: Any, *keys: str) -> bool:
    """True for an object that has all of these keys."""
    return isinstance(value, dict) and all(key in value for key in keys)


def first_of(document: Any) -> Any:
    """The first line of a document of JSON lines, or the document."""
    return document[0] if isinstance(document, list) and document else document


def write_run(found: Imported, source: Path, out: Path | None, *, wall_ns: int, labels: dict[str, str]) -> Path:
    """Make a run directory of a foreign result. Raises UsageError (nothing in it, or the place is taken)."""
    if not any(stage.records for stage in found.stages):
        raise UsageError("holds no request", where=str(source), hint="did the run send any?")
    rows: list[Record] = []
    entries: list[dict[str, Any]] = []
    start = 0
    for number, stage in enumerate(found.stages):
        entry, records = _lay(number, stage, start)
        for record in records:
            if (name := _out_of_reach(record, start)) is not None:
                what = f"request {record.request_id} of stage {number}: {name} lies far from the other times"
                raise UsageError(
                    what, where=str(source), hint="times of one run are meant, on one clock: are its units right?"
                )
        entries.append(entry)
        rows += records
        start = int(entry["drain_end_ns"]) + 1
    path, run_id = new_run_directory(out, name=f"{found.tool}-{source.stem}", wall_ns=wall_ns)
    write_parquet(path / "requests.parquet", pa.Table.from_batches([requests_batch(rows)], schema=REQUESTS))
    write_manifest(path, _manifest(found, source, run_id, entries, labels))
    drop_spool(path)
    return path


def _lay(number: int, stage: ImportedStage, start: int) -> tuple[dict[str, Any], list[Record]]:
    """The stage's manifest entry and its records, moved so that the stage begins at `start`."""
    instants = [ns for r in stage.records for ns in (r.intended_ns, r.sent_ns) if ns is not None]
    begin = min([*instants, *([stage.begin_ns] if stage.begin_ns is not None else [])], default=0)
    shift = start - begin
    records = [_moved(record, shift, number) for record in stage.records]
    last = max(
        [ns for r in records for ns in (r.intended_ns, r.end_ns, *r.chunk_ns[-1:]) if ns is not None], default=start
    )
    span = start + round((stage.span_s or 0.0) * 1e9)
    until = min(max(last + 1, span), _LATEST_NS)
    entry: dict[str, Any] = {
        "stage": number,
        "name": stage.name,
        "kind": stage.kind,
        "offered_rps": stage.offered_rps,
        "concurrency": stage.concurrency,
        "arrival": stage.arrival,
        "warmup": None,
        "planned": len(records),
        "start_ns": start,
        "w0_ns": start,
        "w1_ns": until,
        "drain_end_ns": until,
        "complete": stage.timed,
        "why": None if stage.timed else ONLY_DURATIONS,
        "tool_span_s": stage.span_s,
    }
    return entry, records


def _out_of_reach(record: Record, start: int) -> str | None:
    """The first of its times that lies before its stage or 104 days off."""
    times = {name: getattr(record, name) for name in ("intended_ns", "sent_ns", "headers_ns", "end_ns")}
    times |= {"chunk_ns": record.chunk_ns[0], "the last chunk_ns": record.chunk_ns[-1]} if record.chunk_ns else {}
    return next((name for name, ns in times.items() if ns is not None and not start <= ns < _LATEST_NS), None)


def _moved(record: Record, shift: int, number: int) -> Record:
    record.stage = number
    record.intended_ns += shift
    for name in ("dispatched_ns", "sent_ns", "headers_ns", "end_ns"):
        value = getattr(record, name)
        if value is not None:
            setattr(record, name, value + shift)
    record.chunk_ns = [ns + shift for ns in record.chunk_ns]
    n = len(record.chunk_ns)
    record.chunk_slack_ns = [0] * n
    record.chunk_tokens = record.chunk_tokens or [None] * n
    record.chunk_kind = record.chunk_kind or [Kind.CONTENT] * n  # where it is not told, `unknown` says so
    return record


def _manifest(
    found: Imported, source: Path, run_id: str, entries: list[dict[str, Any]], labels: dict[str, str]
) -> Manifest:
    untold = sorted({name for stage in found.stages for record in stage.records for name in record.unknown})
    return {
        "schema": 1,
        "run_id": run_id,
        "created": found.created,
        "benchlab": __version__,
        "command": [],
        "labels": labels,
        "t0": {"monotonic_ns": 0, "wall_ns": 0},
        "state": "complete",
        "reason": None,
        "endpoint": {"url": redact_text(found.url) if found.url else None, "api": found.api, "model": found.model},
        "engine": None,
        "workload": {"path": None, "sha256": None, "cache": "unknown", "tokenizer": found.tokenizer},
        "items": 0,
        "imported": {
            "tool": found.tool,
            "version": found.version,
            "file": source.name,
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "untold": {name: PARTS.get(name, "") for name in untold},
            "notes": list(found.notes),
        },
        "seeds": {},
        "sampling": found.sampling,
        "timeouts": {},
        "client": {"transport": found.tool, "stamp_source": "callback"},
        "stages": entries,
        "slo": {"clauses": [], "target": None},
        "objectives": [],
        "percentiles": [50, 90, 95, 99],
        "telemetry": {"sources": [], "notes": [], "period_ns": None, "gaps": []},
        "host": {},
        "git": None,
    }
