"""guidellm's JSON report (`--output kind=json`): one benchmark a stage, one entry a request.

It keeps the first and the last text of each request and how many came, not when those between did. Checked with 0.8.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchlab.records.event import Kind, Outcome
from benchlab.records.import_base import NEVER_TOLD, Imported, ImportedStage, Importer, has_keys
from benchlab.records.import_read import Node, ended
from benchlab.records.record import Record

_UNTOLD = (
    *(name for name in NEVER_TOLD if name != "dispatched_ns"),
    "headers_ns",
    "chunk_ns.between",
    "chunk_kind.silent",
    "finish_reason",
    "tokens_source",
)
_CLOSED = ("concurrent", "synchronous", "throughput")


def _ours(document: Any) -> bool:
    found = document.get("benchmarks") if isinstance(document, dict) else None
    return isinstance(found, list) and has_keys(document, "metadata") and all(has_keys(b, "requests") for b in found)


def _summary(document: Any) -> bool:
    return has_keys(document, "benchmarks", "metadata") and not _ours(document)


def _read(path: Path, document: Any) -> Imported:
    root = Node(path, "", document)
    benchmarks = root.at("benchmarks").items()
    if not benchmarks:
        raise root.at("benchmarks").bad("is empty: no benchmark was run")
    backend = benchmarks[0].at("config").at("backend") if benchmarks[0].at("config").has("backend") else None
    return Imported(
        "guidellm",
        [_stage(b) for b in benchmarks],
        version=root.at("metadata").text("guidellm_version"),
        model=backend.text("model") if backend else None,
        url=backend.text("target") if backend else None,
        api=backend.text("request_format") if backend else None,
        notes=[
            "it counts output tokens by the server's usage, else by its own iterations: which, the file does not tell"
        ],
    )


def _stage(b: Node) -> ImportedStage:
    strategy = b.at("config").at("strategy")
    word = strategy.text("type_") or "?"
    streams = strategy.count("streams") if word == "concurrent" else 1 if word == "synchronous" else None
    rate = strategy.at("rate").number(1e-9) if strategy.has("rate") else None
    requests = b.at("requests")
    records: list[Record] = []
    for group, fallback in (("successful", Outcome.OK), ("errored", None), ("incomplete", Outcome.UNFINISHED)):
        if requests.has(group):
            records += [_record(node, fallback) for node in requests.at(group).items()]
    return ImportedStage(
        records,
        name=f"{word} {rate:g}/s" if rate is not None else f"{word} {streams}" if streams else word,
        kind="closed" if word in _CLOSED else "open",
        offered_rps=rate,
        concurrency=streams,
        arrival=word if word in ("poisson", "constant") else None,
        span_s=b.at("duration").number(),
        begin_ns=b.at("start_time").instant(),
    )


def _record(node: Node, outcome: Outcome | None) -> Record:
    info = node.at("info")
    times = info.at("timings")

    def at(key: str) -> int | None:
        return times.at(key).instant() if times.has(key) else None

    sent = at("request_start")
    due = at("targeted_start") or sent
    first, answer, last = at("first_token_iteration"), at("first_output_token_iteration"), at("last_token_iteration")
    end = at("request_end") or at("resolve_end")
    events: dict[int, Kind] = {}
    if first is not None:
        reasons = answer is None or answer > first
        events[first] = Kind.REASONING if reasons else Kind.CONTENT
        if last is not None:
            events[last] = Kind.REASONING if answer is None else Kind.CONTENT
        if answer is not None:
            events[answer] = Kind.CONTENT
    words = info.text("error")
    facts: dict[str, Any] = {"outcome": outcome} if outcome is not None else ended(words or "an error", _status(words))
    failed = facts["outcome"] is not Outcome.OK
    if due is None:
        raise times.bad("has neither targeted_start nor request_start")
    if end is not None and events and end < max(events):
        raise times.bad("ends before its last token")
    return Record(
        request_id=node.text("request_id") or node.place,
        stage=0,
        item_id=info.text("conversation_id") or "",
        intended_ns=due,
        dispatched_ns=sent,
        sent_ns=sent,
        chunk_ns=sorted(events),
        chunk_kind=[events[ns] for ns in sorted(events)],
        end_ns=None if facts["outcome"] is Outcome.UNFINISHED else end,
        error=words,
        turn=info.count("turn_index", 2**31 - 1),
        prompt_tokens=node.count("prompt_tokens"),
        cached_tokens=node.count("cached_tokens"),
        output_tokens=None if failed else node.count("output_tokens"),
        server_request_id=node.text("response_id"),
        unknown=_UNTOLD,
        **facts,
    )


def _status(words: str | None) -> int | None:
    """The status in httpx's \"Server error '503 Service Unavailable' for url ...\"."""
    for part in (words or "").split("'"):
        if part[:3].isdigit() and part[3:4] == " ":
            return int(part[:3])
    return None


GUIDELLM = Importer(
    "guidellm", "the JSON report of `guidellm run --output kind=json,path=FILE`", _ours, _summary, _read
)
