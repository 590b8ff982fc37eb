"""evalscope perf's `benchmark_data.db`: an SQLite table with a row a request.

It keeps the first text, the gaps between texts and the end of each. Its pickled messages are never opened. Checked
with 1.14.1; a database of an older layout may hold times of role events, so there what was text is not told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchlab.records.event import Kind
from benchlab.records.import_base import NEVER_TOLD, Imported, ImportedStage, Importer, first_of, has_keys
from benchlab.records.import_read import SQLITE, Node, ended, fault, parse, rising
from benchlab.records.record import Record

_UNTOLD = (*NEVER_TOLD, "intended_ns", "headers_ns", "chunk_kind.answer", "chunk_kind.silent", "finish_reason",
           "cached_tokens", "tokens_source")  # fmt: skip
_COLUMNS = ("start_time", "inter_token_latencies", "success", "latency", "first_chunk_latency", "prompt_tokens",
            "completion_tokens")  # fmt: skip


def _ours(document: Any) -> bool:
    return isinstance(document, bytes) and document == SQLITE


def _summary(document: Any) -> bool:
    return has_keys(first_of(document), "Req Throughput (req/s)") or has_keys(first_of(document), "Percentiles")


def _read(path: Path, document: Any) -> Imported:
    records = list(_records(path))
    # The arguments stand beside it; without them the load is not known.
    users = rate = model = None
    beside = path.with_name("benchmark_args.json")
    if beside.is_file():
        try:
            told = parse(beside.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            told = {}
        args = Node(beside, "", told if isinstance(told, dict) else {})
        model, users = args.text("model"), args.count("parallel")
        rate = args.value.get("rate")
        rate = float(rate) if isinstance(rate, int | float) and 0 < rate < 1e9 else None
    kind = "closed" if rate is None else "open"
    name = f"{users} users" if rate is None and users else f"{rate:g}/s" if rate is not None else "all requests"
    stage = ImportedStage(
        records, name=name, kind=kind, offered_rps=rate, concurrency=users, arrival="poisson" if rate else None
    )
    return Imported("evalscope", [stage], model=model)


def _records(path: Path) -> Iterator[Record]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
            present = [row[1] for row in base.execute("PRAGMA table_info(result)")]
            lacking = [name for name in _COLUMNS if name not in present]
            if lacking:
                what = "has no table 'result'" if not present else f"its table 'result' has no {', '.join(lacking)}"
                raise fault(path, "", what, "give evalscope's benchmark_data.db")
            newer = "is_stream" in present
            names = [*_COLUMNS, *(("is_stream",) if newer else ())]
            for number, row in enumerate(base.execute(f"SELECT {', '.join(names)} FROM result"), 1):  # noqa: S608
                yield _record(Node(path, f"row {number}", dict(zip(names, row, strict=True))), number, newer)
    except sqlite3.Error as error:
        raise fault(path, "", f"cannot be read as SQLite: {error}", "was the file cut off?") from error


def _record(row: Node, number: int, newer: bool) -> Record:
    sent = row.at("start_time").instant() if row.has("start_time") else 0
    good = row.value["success"] == 1
    steps: list[float] = []
    if row.has("inter_token_latencies"):
        try:
            told = parse(row.text("inter_token_latencies") or "[]")
        except (ValueError, RecursionError):
            raise row.at("inter_token_latencies").bad("is no list") from None
        steps = Node(row.path, f"{row.place}.inter_token_latencies", told).numbers()
    streamed = not newer or row.value["is_stream"] == 1
    first = row.at("first_chunk_latency").seconds() if row.has("first_chunk_latency") else None
    chunks = rising(sent, steps, first) if good and streamed else []
    end = sent + row.at("latency").seconds() if row.has("latency") else (chunks[-1] if chunks else sent)
    unsure = ("chunk_kind",) if not newer else ("chunk_ns", "chunk_kind") if not streamed else ()
    return Record(
        request_id=f"r{number}",
        stage=0,
        item_id=f"item-{number}",
        intended_ns=sent,
        sent_ns=sent,
        chunk_ns=chunks,
        chunk_kind=[Kind.CONTENT] * len(chunks),
        end_ns=max([end, *chunks[-1:]]),
        prompt_tokens=row.count("prompt_tokens"),
        output_tokens=row.count("completion_tokens") if good else None,
        unknown=(*_UNTOLD, *unsure),
        **ended(None if good else "an error that the database does not keep"),
    )


EVALSCOPE = Importer("evalscope", "`benchmark_data.db` of `evalscope perf`", _ours, _summary, _read)
