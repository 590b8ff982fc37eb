"""`python -m sglang.benchmark.serving --output-file F --output-details`: JSON lines, one run a line.

It keeps the first text and the gaps between texts of each request, no start and no end. Checked with 0.5.23.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchlab.records.event import Kind
from benchlab.records.import_base import NEVER_TOLD, Imported, ImportedStage, Importer, first_of, has_keys
from benchlab.records.import_read import Node, ended, objects, rising
from benchlab.records.record import Record

_UNTOLD = (*NEVER_TOLD, "intended_ns", "headers_ns", "end_ns", "chunk_kind.answer", "chunk_kind.silent",
           "finish_reason", "cached_tokens", "tokens_source", "sent_ns.absolute")  # fmt: skip
_OWN_BACKENDS = ("sglang", "sglang-native")
"""Here a gap is spread over the tokens of its chunk, so that the gaps are no times of chunks."""


def _ours(document: Any) -> bool:
    return has_keys(first_of(document), "total_output_tokens_retokenized", "completed", "duration", "ttfts", "itls")


def _summary(document: Any) -> bool:
    line = first_of(document)
    return has_keys(line, "total_output_tokens_retokenized", "completed", "duration") and not _ours(document)


def _read(path: Path, document: Any) -> Imported:
    lines = objects(path, document)
    return Imported("sglang", [_stage(line) for line in lines], api=lines[0].text("backend"))


def _stage(line: Node) -> ImportedStage:
    ttfts, itls = line.at("ttfts").items(), line.at("itls").items()
    errors, outputs = line.at("errors").items(), line.at("output_lens").items()
    inputs = line.at("input_lens").items()
    # Some of its lists hold an entry a request, some only those that succeeded: they must agree to be laid together.
    for name, column in (("itls", itls), ("errors", errors), ("output_lens", outputs), ("input_lens", inputs)):
        if len(column) != len(ttfts):
            raise line.at(name).bad(f"has {len(column)} entries, and ttfts has {len(ttfts)}")
    spread = line.text("backend") in _OWN_BACKENDS
    records = [
        _record(
            f"{line.place.split()[-1]}-{i}", ttfts[i], itls[i], errors[i], inputs[i].whole(), outputs[i].whole(), spread
        )
        for i in range(len(ttfts))
    ]
    rate = line.at("request_rate").rate() if line.has("request_rate") else None
    cap = line.count("max_concurrency")
    kind = "closed" if cap is not None and rate is None else "open"
    name = f"{cap} users" if kind == "closed" else "unlimited rate" if rate is None else f"{rate:g}/s"
    return ImportedStage(
        records,
        name=name,
        kind=kind,
        offered_rps=rate,
        concurrency=cap,
        arrival=None if rate is None else "poisson",
        span_s=line.at("duration").number(),
        timed=False,
    )


def _record(name: str, ttft: Node, itl: Node, error: Node, prompt: int, output: int, spread: bool) -> Record:
    words = error.value if isinstance(error.value, str) else None
    first = ttft.seconds()
    chunks = rising(0, itl.numbers(), first) if first > 0 else []
    return Record(
        request_id=f"r{name}",
        stage=0,
        item_id=f"item-{name}",
        intended_ns=0,
        sent_ns=0,
        chunk_ns=chunks,
        chunk_kind=[Kind.CONTENT] * len(chunks),
        end_ns=chunks[-1] if chunks else 0,
        error=words or None,
        prompt_tokens=prompt,
        output_tokens=output if not words else None,
        unknown=(*_UNTOLD, *(("chunk_ns.between",) if spread else ())),
        **ended(words),
    )


SGLANG = Importer("sglang", "the JSONL of sglang's serving benchmark with `--output-details`", _ours, _summary, _read)
