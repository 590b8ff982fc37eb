"""A line of aiperf's raw export: the request's messages as they came, each with its time, read into one record.

The one idea: every message becomes an event of the stream by what it carried, as the client itself would have it. It
must not know the file around the line.
"""

from __future__ import annotations

from typing import Any

from benchlab.records.event import Kind, Outcome
from benchlab.records.import_read import Node, ended, parse
from benchlab.records.record import Record

_UNTOLD = ("dispatched_ns", "held_ns", "connect_start_ns", "connect_end_ns", "intended_ns")


def identity(line: Node) -> dict[str, Any]:
    """Which request a line is of."""
    about = line.at("metadata")
    return {
        "request_id": about.text("x_request_id") or line.place,
        "stage": 0,
        "item_id": about.text("conversation_id") or "",
        "session_id": about.text("x_correlation_id"),
        "turn": about.count("turn_index", 2**31 - 1),
    }


def _failure(line: Node) -> tuple[str | None, int | None]:
    if not line.has("error"):
        return None, None
    error = line.at("error")
    code = error.value.get("code") if isinstance(error.value, dict) else None
    words = " ".join(filter(None, (error.text("type"), error.text("message")))) if isinstance(error.value, dict) else ""
    return words or "an error", code if type(code) is int and 100 <= code <= 999 else None


def end_as(line: Node) -> dict[str, Any]:
    """How a line's request ended."""
    words, status = _failure(line)
    facts = ended(words, status)
    if line.at("metadata").value.get("was_cancelled") is True:
        facts = {"outcome": Outcome.CANCELLED}
    return {"error": words, **facts}


def raw_record(line: Node) -> Record:
    """The record of a line. Raises UsageError where the messages are of another API."""
    about = line.at("metadata")
    sent, begun = about.at("request_start_ns").ns(), line.at("start_perf_ns").ns()
    events: list[tuple[int, Kind]] = []
    facts: dict[str, Any] = {"finish_reason": None, "usage": None}
    known = 0
    for response in line.at("responses").items():
        at = sent + response.at("perf_ns").ns() - begun
        if not response.has("packets"):
            raise response.bad(
                "has no packets: only streamed chat and completions are read; import profile_export.jsonl"
            )
        for packet in response.at("packets").items():
            if packet.text("name") == "data":
                kind = kind_of(packet.text("value") or "", facts)
                known += kind is not Kind.ERROR
                events.append((at, kind))
    if events and not known:
        raise line.bad("holds no message of chat or completions: import profile_export.jsonl instead")
    outcome = end_as(line)
    if outcome["outcome"] is Outcome.OK and facts["finish_reason"] is None:
        outcome["outcome"] = Outcome.INCOMPLETE
    usage = facts["usage"]
    tokens = {key: member(usage, *place) for key, place in USAGE.items()}
    untold = list(_UNTOLD)
    if isinstance(usage, dict) and "completion_tokens_details" not in usage:
        untold.append("reasoning_tokens")
    end = max([about.at("request_end_ns").ns(), *(at for at, _ in events[-1:])])
    return Record(
        **identity(line),
        intended_ns=sent,
        sent_ns=sent,
        headers_ns=about.instant_ns("request_ack_ns"),
        chunk_ns=[at for at, _ in events],
        chunk_kind=[kind for _, kind in events],
        end_ns=end,
        finish_reason=facts["finish_reason"],
        tokens_source="usage" if tokens["output_tokens"] is not None else None,
        prompt_tokens=tokens["prompt_tokens"],
        output_tokens=tokens["output_tokens"],
        cached_tokens=tokens["cached_tokens"],
        reasoning_tokens=tokens["reasoning_tokens"],
        unknown=tuple(untold),
        **{"http_status": line.count("status", 999), **outcome},
    )


USAGE = {
    "prompt_tokens": ("prompt_tokens",),
    "output_tokens": ("completion_tokens",),
    "cached_tokens": ("prompt_tokens_details", "cached_tokens"),
    "reasoning_tokens": ("completion_tokens_details", "reasoning_tokens"),
}


def member(value: Any, *keys: str) -> int | None:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**53 else None


def kind_of(text: str, facts: dict[str, Any]) -> Kind:
    """What one message carried; finish reason and usage are noted in `facts` on the way."""
    if text.strip() == "[DONE]":
        return Kind.DONE
    try:
        message = parse(text)
    except (ValueError, RecursionError):
        return Kind.ERROR
    if not isinstance(message, dict) or message.get("error") or not isinstance(message.get("choices"), list):
        return Kind.ERROR
    if isinstance(message.get("usage"), dict):
        facts["usage"] = message["usage"]
    choices = message["choices"]
    return _of_choice(choices[0] if isinstance(choices[0], dict) else {}, facts) if choices else Kind.USAGE


def _of_choice(choice: dict[str, Any], facts: dict[str, Any]) -> Kind:
    finish = choice.get("finish_reason")
    if finish:
        facts["finish_reason"] = str(finish)
    told = choice.get("delta")
    delta: dict[str, Any] = told if isinstance(told, dict) else {}
    carried = (
        (delta.get("content") or choice.get("text"), Kind.CONTENT),
        (delta.get("reasoning_content") or delta.get("reasoning"), Kind.REASONING),
        (delta.get("tool_calls"), Kind.TOOL_CALL),
        (finish, Kind.FINISH),
        (delta.get("role"), Kind.ROLE),
    )
    return next((kind for something, kind in carried if something), Kind.EMPTY)
