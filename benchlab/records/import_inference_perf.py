"""inference-perf's `per_request_lifecycle_metrics.json` (`report.request_lifecycle.per_request: true`): a list.

It keeps every chunk's time and, by its tokenizer, the tokens in it. Checked with 0.7.0.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchlab.records.event import Kind
from benchlab.records.import_base import NEVER_TOLD, Imported, ImportedStage, Importer, first_of, has_keys
from benchlab.records.import_read import Node, ended
from benchlab.records.record import Record

_UNTOLD = (*NEVER_TOLD, "intended_ns", "headers_ns", "chunk_kind.answer", "chunk_kind.silent", "finish_reason")


def _ours(document: Any) -> bool:
    line = first_of(document)
    return (
        isinstance(document, list)
        and has_keys(line, "start_time", "end_time", "info")
        and has_keys(line["info"], "request_metrics")
    )


def _summary(document: Any) -> bool:
    return has_keys(document, "load_summary", "successes", "failures")


def _read(path: Path, document: Any) -> Imported:
    nodes = Node(path, "", document).items()
    records = [_record(i, node) for i, node in enumerate(nodes)]
    notes = ["load and stages are not in this file: it is taken as one stage of a closed loop of unknown size"]
    told = [node.at("info").at("response_metrics") for node in nodes if node.at("info").has("response_metrics")]
    off = sum(_usage(m, "completion_tokens") not in (None, m.count("output_tokens")) for m in told)
    if off:
        notes.append(f"its tokenizer and the server's usage count {off} answers differently; its own count is kept")
    return Imported("inference-perf", [ImportedStage(records, name="all requests", kind="closed")], notes=notes)


def _usage(metrics: Node, key: str) -> int | None:
    return metrics.at("server_usage").count(key) if metrics.has("server_usage") else None


def _record(i: int, node: Node) -> Record:
    sent, end = node.at("start_time").instant(), node.at("end_time").instant()
    if end < sent:
        raise node.bad("ends before it starts")
    info = node.at("info")
    prompt = info.count("input_tokens")
    events: dict[int, int] = {}
    output = cached = None
    streamed = False
    if info.has("response_metrics"):
        metrics = info.at("response_metrics")
        output = metrics.count("output_tokens")
        streamed = metrics.has("chunk_times") or metrics.has("output_token_times")
        if metrics.has("chunk_times"):
            events = dict.fromkeys((each.instant() for each in metrics.at("chunk_times").items()), 0)
        if metrics.has("output_token_times"):
            events |= Counter(each.instant() for each in metrics.at("output_token_times").items())
        details = metrics.at("server_usage") if metrics.has("server_usage") else None
        if details is not None and details.has("prompt_tokens_details"):
            cached = details.at("prompt_tokens_details").count("cached_tokens")
    chunks = sorted(events)
    if chunks and not sent <= chunks[0] <= chunks[-1] <= end:
        raise info.bad("has a chunk outside of its request")
    words = _words(node)
    return Record(
        request_id=f"r{i}",
        stage=0,
        item_id=f"item-{i}",
        intended_ns=sent,
        sent_ns=sent,
        chunk_ns=chunks,
        chunk_tokens=[events[ns] for ns in chunks],
        chunk_kind=[Kind.CONTENT if events[ns] else Kind.EMPTY for ns in chunks],
        end_ns=end,
        error=words,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output if words is None else None,
        tokens_source="tokenizer" if output is not None and words is None else None,
        unknown=(*_UNTOLD, *(() if streamed or words else ("chunk_ns", "chunk_kind"))),
        **ended(words),
    )


def _words(node: Node) -> str | None:
    if not node.has("error"):
        return None
    error = node.at("error")
    if isinstance(error.value, dict):
        return " ".join(filter(None, (error.text("error_type"), error.text("error_msg")))) or "an error"
    return node.text("error")


INFERENCE_PERF = Importer(
    "inference-perf",
    "`per_request_lifecycle_metrics.json` of a run with `report.request_lifecycle.per_request: true`",
    _ours,
    _summary,
    _read,
)
