"""aiperf's `profile_export.jsonl` (metrics of each request) and `profile_export_raw.jsonl` (its messages, with times).

The first has the times of texts and its own token counts; the second (`--export-level raw`) every message with its
time, so that nothing is lost of a chat or completions run. Checked with 0.13.0.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from benchlab.records.event import Kind, Outcome
from benchlab.records.import_aiperf_raw import end_as, identity, raw_record
from benchlab.records.import_base import NEVER_TOLD, Imported, ImportedStage, Importer, first_of, has_keys
from benchlab.records.import_read import Node, objects, parse
from benchlab.records.record import Record

_UNTOLD = (*NEVER_TOLD, "intended_ns", "chunk_kind.silent", "finish_reason")
_MS = 1e6


def _raw(document: Any) -> bool:
    return has_keys(first_of(document), "metadata", "start_perf_ns", "responses")


def _ours(document: Any) -> bool:
    line = first_of(document)
    return _raw(document) or (has_keys(line, "metadata", "metrics") and has_keys(line["metadata"], "request_start_ns"))


def _summary(document: Any) -> bool:
    return has_keys(document, "aiperf_version")


def _read(path: Path, document: Any) -> Imported:
    lines = objects(path, document)
    measured = [line for line in lines if line.at("metadata").text("benchmark_phase") in (None, "profiling")]
    raw = _raw(document)
    records = [raw_record(line) if raw else _record(line) for line in measured]
    beside = _beside(path)
    notes = []
    if len(measured) < len(lines):
        notes.append(f"{len(lines) - len(measured)} requests of its warm-up are left out")
    users, rate = beside.get("users"), beside.get("rate")
    if not beside:
        notes.append(f"{_BESIDE} does not lie beside it: the load and the span of its rates are not known")
    stage = ImportedStage(
        records,
        name=f"{rate:g}/s" if rate else f"{users} users" if users else "all requests",
        kind="open" if rate else "closed",
        offered_rps=rate,
        concurrency=users,
        arrival=beside.get("arrival"),
        span_s=beside.get("span_s"),
    )
    model = None
    if raw and lines and lines[0].has("payload"):
        model = lines[0].at("payload").text("model")
    return Imported(
        "aiperf", [stage], version=beside.get("version"), created=beside.get("start"), model=model, notes=notes
    )


_BESIDE = "profile_export_aiperf.json"


def _beside(path: Path) -> dict[str, Any]:
    """What the summary that lies beside the file tells: version, load, and the window that rates are divided by."""
    try:
        told = parse(path.with_name(_BESIDE).read_text(encoding="utf-8"))
        begin, until = (datetime.fromisoformat(told[key]) for key in ("start_time", "end_time"))
        span = (until - begin).total_seconds()
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    found: dict[str, Any] = {"version": str(told.get("aiperf_version")), "start": str(told["start_time"])}
    found["span_s"] = span if 0 < span < 10**9 else None
    phases = told.get("input_config", {}).get("phases") if isinstance(told.get("input_config"), dict) else None
    for phase in phases if isinstance(phases, list) else []:
        if isinstance(phase, dict) and phase.get("kind", "profiling") == "profiling":
            found |= _load(phase)
    return found


def _load(phase: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    users, rate = phase.get("concurrency"), phase.get("rate")
    if type(users) is int and 0 < users < 10**9:
        found["users"] = users
    if isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate < 1e9:
        found |= {"rate": float(rate), "arrival": str(phase.get("type"))}
    return found


def _record(line: Node) -> Record:
    about, metrics = line.at("metadata"), line.at("metrics")
    sent = about.at("request_start_ns").ns()

    def value(name: str) -> float | None:
        return metrics.at(name).at("value").number() if metrics.has(name) else None

    def count(name: str) -> int | None:
        return metrics.at(name).at("value").whole() if metrics.has(name) else None

    first, second = value("time_to_first_token"), value("time_to_first_output_token")
    chunks: list[int] = []
    if first is not None:
        steps = metrics.at("inter_chunk_latency").at("value").items() if metrics.has("inter_chunk_latency") else []
        at = sent + first * _MS
        chunks = [round(at)]
        for step in steps:
            at += step.number() * _MS
            chunks.append(round(at))
    answer = sent + second * _MS if second is not None else None
    kinds = [Kind.CONTENT if answer is not None and ns >= answer - 1000 else Kind.REASONING for ns in chunks]
    facts = end_as(line)
    output, usage = count("output_sequence_length"), count("usage_completion_tokens")
    prompt = count("usage_prompt_tokens")
    reasoning = count("reasoning_token_count")
    untold = [name for name in _UNTOLD if name != "reasoning_tokens" or reasoning is None]
    if second is None:
        untold.append("chunk_kind.answer")
    if not chunks and facts["outcome"] is Outcome.OK:
        untold += ["chunk_ns", "chunk_kind"]
    end = about.at("request_end_ns").ns()
    return Record(
        **identity(line),
        intended_ns=sent,
        sent_ns=sent,
        headers_ns=about.instant_ns("request_ack_ns"),
        chunk_ns=chunks,
        chunk_kind=kinds,
        end_ns=max([end, *chunks[-1:]]),
        prompt_tokens=prompt if prompt is not None else count("input_sequence_length"),
        output_tokens=output,
        reasoning_tokens=reasoning,
        cached_tokens=count("usage_prompt_cache_read_tokens"),
        tokens_source=None if output is None else "usage" if output == usage else "tokenizer",
        unknown=tuple(untold),
        **facts,
    )


AIPERF = Importer(
    "aiperf",
    "`profile_export.jsonl`, or `profile_export_raw.jsonl` of `--export-level raw`",
    _ours,
    _summary,
    _read,
)
