"""genai-bench's `<scenario>_..._num_concurrency_N_time_Ts.json`: totals, and one entry a request.

Two durations a request, to the first text and to the end of the stream, and no start times. Checked with 0.0.5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchlab.records.event import Kind
from benchlab.records.import_base import NEVER_TOLD, Imported, ImportedStage, Importer, has_keys
from benchlab.records.import_read import NS, Node, ended, fault
from benchlab.records.record import Record

_UNTOLD = (*(name for name in NEVER_TOLD if name != "reasoning_tokens"), "intended_ns", "headers_ns", "chunk_ns.last",
           "chunk_ns.between", "chunk_kind.answer", "chunk_kind.silent", "finish_reason", "cached_tokens",
           "tokens_source", "sent_ns.absolute")  # fmt: skip
_UNITS = {"ms": 1e6, "s": 1e9}


def _ours(document: Any) -> bool:
    return has_keys(document, "aggregated_metrics", "individual_request_metrics")


def _summary(document: Any) -> bool:
    return has_keys(document, "benchmark_version", "traffic_scenario", "experiment_folder_name")


def _read(path: Path, document: Any) -> Imported:
    root = Node(path, "", document)
    unit = root.text("_time_unit") or "s"
    if unit not in _UNITS:
        raise fault(path, "_time_unit", f"is '{unit}'; ms and s are known")
    totals = root.at("aggregated_metrics")
    users = totals.count("num_concurrency")
    records = [_record(i, node, _UNITS[unit]) for i, node in enumerate(root.at("individual_request_metrics").items())]
    scenario = totals.text("scenario")
    stage = ImportedStage(
        records,
        name=f"{users} users" + (f", {scenario}" if scenario else ""),
        kind="closed",
        concurrency=users,
        span_s=totals.at("run_duration").number(),
        timed=False,
    )
    return Imported("genai-bench", [stage])


def _record(i: int, node: Node, unit: float) -> Record:
    status = node.count("error_code", 999)
    words = node.text("error_message")
    facts = ended(words if status is not None or words else None, status)

    def took(key: str) -> int | None:
        return round(node.at(key).number() * unit) if node.has(key) else None

    first, end = took("ttft"), took("e2e_latency")
    if first is not None and end is not None and end < first:
        raise node.bad("ends before its first token")
    if end is not None and end > 10**9 * NS:
        raise node.bad("lasts longer than thirty years: is `_time_unit` right?")
    good = status is None and not words
    return Record(
        request_id=f"r{i}",
        stage=0,
        item_id=f"item-{i}",
        intended_ns=0,
        sent_ns=0,
        chunk_ns=[first] if first is not None and good else [],
        chunk_kind=[Kind.CONTENT] if first is not None and good else [],
        end_ns=end if end is not None else 0,
        error=words,
        prompt_tokens=node.count("num_input_tokens"),
        output_tokens=node.count("num_output_tokens") if good else None,
        reasoning_tokens=node.count("num_reasoning_tokens"),
        unknown=_UNTOLD,
        **facts,
    )


GENAI_BENCH = Importer(
    "genai-bench", "the `..._num_concurrency_N_time_Ts.json` of one scenario and concurrency", _ours, _summary, _read
)
