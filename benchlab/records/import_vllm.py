"""`vllm bench serve --save-result --save-detailed`: one JSON object with a list entry a request.

Its times are of events with `choices`, whatever these held (a role, text, the finish reason), so no entry says when
text came: our own latencies are Gaps, its own dialect is whole. Checked with 0.32.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchlab.records.import_base import NEVER_TOLD, Imported, ImportedStage, Importer, has_keys
from benchlab.records.import_read import Node, ended, rising
from benchlab.records.record import Record

_UNTOLD = (*NEVER_TOLD, "intended_ns", "headers_ns", "end_ns", "chunk_kind", "chunk_kind.answer", "chunk_kind.silent",
           "finish_reason", "cached_tokens", "tokens_source")  # fmt: skip


def _ours(document: Any) -> bool:
    return has_keys(document, "endpoint_type", "num_prompts", "completed", "duration", "ttfts", "itls")


def _summary(document: Any) -> bool:
    return has_keys(document, "endpoint_type", "num_prompts", "completed", "duration") and not _ours(document)


def _read(path: Path, document: Any) -> Imported:
    root = Node(path, "", document)
    ttfts, itls = root.at("ttfts").items(), root.at("itls").items()
    errors = root.at("errors").items()
    starts = root.at("start_times").items() if root.has("start_times") else None
    columns = {name: root.at(name).items() for name in ("input_lens", "output_lens")}
    for name, column in (("itls", itls), ("errors", errors), ("start_times", starts), *columns.items()):
        if column is not None and len(column) != len(ttfts):
            raise root.at(name).bad(f"has {len(column)} entries, and ttfts has {len(ttfts)}")
    records = [
        _record(i, ttfts[i], itls[i], errors[i], starts[i] if starts else None,
                columns["input_lens"][i].whole(), columns["output_lens"][i].whole())
        for i in range(len(ttfts))
    ]  # fmt: skip
    rate = root.at("request_rate").rate()
    cap = root.count("max_concurrency")
    kind = "closed" if cap is not None and rate is None else "open"
    stage = ImportedStage(
        records,
        name=f"{cap} users" if kind == "closed" else "unlimited rate" if rate is None else f"{rate:g}/s",
        kind=kind,
        offered_rps=rate,
        concurrency=cap,
        arrival=None if rate is None else "poisson" if root.value.get("burstiness") == 1.0 else "gamma",
        span_s=root.at("duration").number(),
        timed=starts is not None,
    )
    return Imported(
        "vllm",
        [stage],
        model=root.text("model_id"),
        api=root.text("endpoint_type"),
        tokenizer=root.text("tokenizer_id"),
        created=_created(root.text("date")),
        notes=["its times are of every event with `choices`: which of them carried text is not told"],
    )


def _created(date: str | None) -> str | None:
    """Its '20261129-213255' is the host's local time: told as such, without a zone."""
    if date is None or len(date) != 15 or not date.replace("-", "").isdigit():
        return None
    return f"{date[:4]}-{date[4:6]}-{date[6:8]}T{date[9:11]}:{date[11:13]}:{date[13:15]}"


def _record(i: int, ttft: Node, itl: Node, error: Node, start: Node | None, prompt: int, output: int) -> Record:
    sent = start.instant() if start is not None else 0
    words = error.value if isinstance(error.value, str) else None
    first = ttft.seconds()
    chunks = rising(sent, itl.numbers(), first) if first > 0 else []
    facts = ended(words)
    return Record(
        request_id=f"r{i}",
        stage=0,
        item_id=f"item-{i}",
        intended_ns=sent,
        sent_ns=sent,
        chunk_ns=chunks,
        end_ns=chunks[-1] if chunks else sent,
        error=words or None,
        prompt_tokens=prompt,
        output_tokens=output if not words else None,
        unknown=(*_UNTOLD, *(() if start is not None else ("sent_ns.absolute",))),
        **facts,
    )


VLLM = Importer("vllm", "the JSON of `vllm bench serve --save-result --save-detailed`", _ours, _summary, _read)
