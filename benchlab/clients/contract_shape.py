"""Does one streamed answer have the shape of its API? Pure: events in, words out.

The one idea: the order and the content of events as a checklist, said in the words of what was seen. The reader of
the load (`Conversation`) forgives what real servers do; this one tells it. It must not know sockets, clocks or how the
answer came to be asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchlab.clients.sse import Event
from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.records.record import Record

State = Literal["PASS", "FAIL", "SKIP"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the contract. seen: what was seen, or why it was skipped. api: '' for what all APIs share."""

    api: str
    name: str
    state: State
    seen: str


def documents(events: Sequence[Event]) -> list[tuple[str, dict[str, Any] | None]]:
    """(event name, its JSON object) of each event; None for [DONE] and what is no object."""
    found: list[tuple[str, dict[str, Any] | None]] = []
    for name, data in events:
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        found.append((name.decode("latin-1"), document if isinstance(document, dict) else None))
    return found


def stream_shape(api: str, events: Sequence[Event], record: Record) -> Check:
    """The order of a whole answer: how it opens, that text comes, how it ends."""
    if record.outcome is not Outcome.OK:
        return Check(api, "stream", "FAIL", record.error or str(record.outcome))
    kinds = list(record.chunk_kind)
    text = sum(kind in VISIBLE for kind in kinds)
    if not text:
        return Check(api, "stream", "FAIL", f"{len(kinds)} events and no text in any of them")
    faults, words = _messages_shape(events) if api == "messages" else _openai_shape(api, events)
    seen = f"{words[0]}, {text} with text, finish '{record.finish_reason}', {', '.join(words[1:])}"
    if faults:
        return Check(api, "stream", "FAIL", f"{'; '.join(faults)} ({seen})")
    return Check(api, "stream", "PASS", seen)


def _openai_shape(api: str, events: Sequence[Event]) -> tuple[list[str], list[str]]:
    found = documents(events)
    faults: list[str] = []
    done = [place for place, (_, data) in enumerate(events) if data.strip() == b"[DONE]"]
    if done and done[0] != len(events) - 1:
        faults.append("events after [DONE]")
    choices = [[c for c in (document or {}).get("choices") or [] if isinstance(c, dict)] for _, document in found]
    role = bool(api == "chat" and choices and choices[0] and (choices[0][0].get("delta") or {}).get("role"))
    finishes = [place for place, group in enumerate(choices) for c in group if c.get("finish_reason")]
    late = [place for place, group in enumerate(choices) if finishes and place > finishes[0] and _has_text(group)]
    if late:
        faults.append("text after the finish reason")
    usages = sum(bool((document or {}).get("usage")) for _, document in found)
    opening = "a role event" if role else "no role event" if api == "chat" else f"{len(events)} events"
    usage = "no usage" if not usages else "usage" if usages == 1 else f"usage in {usages} events"
    return faults, [opening, usage, "[DONE]" if done else "no [DONE]"]


def _has_text(choices: list[dict[str, Any]]) -> bool:
    return any((choice.get("delta") or {}).get("content") or choice.get("text") for choice in choices)


def _messages_shape(events: Sequence[Event]) -> tuple[list[str], list[str]]:
    found = documents(events)
    types = [str((document or {}).get("type") or name) for name, document in found]
    faults = [
        f"event {name!r} says type {kind!r}" for (name, _), kind in zip(found, types, strict=True) if name != kind
    ]
    told = [kind for kind in types if kind != "ping"]
    if told[:1] != ["message_start"]:
        faults.append(f"opens with {told[0] if told else 'nothing'}, not with message_start")
    if told[-1:] != ["message_stop"]:
        faults.append(f"ends with {told[-1] if told else 'nothing'}, not with message_stop")
    opened: set[object] = set()
    for kind, (_, document) in zip(types, found, strict=True):
        index = (document or {}).get("index")
        if kind == "content_block_start":
            opened.add(index)
        elif kind in ("content_block_delta", "content_block_stop"):
            if index not in opened:
                faults.append(f"{kind} of block {index} that is not open")
                break
            if kind == "content_block_stop":
                opened.discard(index)
    if opened:
        faults.append("a content block was not closed")
    delta = next((document for kind, (_, document) in zip(types, found, strict=True) if kind == "message_delta"), None)
    if delta is None:
        faults.append("no message_delta")
    usage = "usage" if (delta or {}).get("usage") else "no usage"
    return faults, ["message_start", usage, "message_stop" if "message_stop" in types else "no message_stop"]


def usage_agrees(api: str, record: Record) -> Check:
    """The server's count of output tokens beside the events that carried text."""
    text = len(record.visible_ns())
    if record.tokens_source != "usage" or record.output_tokens is None:
        return Check(api, "usage", "FAIL", "no usage although it was asked for: token counts would be guesses")
    seen = f"{record.output_tokens} output tokens in {text} events with text, {record.prompt_tokens} prompt tokens"
    if record.output_tokens < text:
        return Check(api, "usage", "FAIL", f"{seen}: fewer tokens than events")
    if not record.prompt_tokens:
        return Check(api, "usage", "FAIL", f"{seen}: a prompt has tokens")
    return Check(api, "usage", "PASS", seen)


def limit_kept(api: str, record: Record, asked: int) -> Check:
    """max_tokens: no more than asked, and the reason says so where all were used."""
    if record.outcome is not Outcome.OK:
        return Check(api, "max_tokens", "FAIL", record.error or str(record.outcome))
    got = record.output_tokens if record.tokens_source == "usage" else sum(k is Kind.CONTENT for k in record.chunk_kind)
    seen = f"{got} of {asked} asked, finish '{record.finish_reason}'"
    if got is None or got > asked:
        return Check(api, "max_tokens", "FAIL", f"{seen}: more than asked for")
    if got == asked and record.finish_reason not in ("length", "max_tokens", "stop", "end_turn"):
        return Check(api, "max_tokens", "FAIL", f"{seen}: 'length' was due")
    return Check(api, "max_tokens", "PASS", seen)


def stop_text(text: str) -> str | None:
    """A stop string that this answer would meet in its later half, and not before; None where it is too short."""
    words = [word for word in text.split() if len(word) > 1 and _clean(word)]
    for word in words[len(words) // 2 :]:
        if text.find(word) >= len(text) // 3:
            return word
    piece = text[len(text) // 2 :][:4]
    return piece if piece.strip() and _clean(piece) and text.find(piece) >= len(text) // 3 else None


def _clean(text: str) -> bool:
    """Nothing in it that a server may spell otherwise: control characters, bytes that are no character."""
    return text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text


def stopped(api: str, record: Record, text: str, *, stop: str, whole: str) -> Check:
    """An answer that was asked for again with a stop string taken from its first form."""
    if record.outcome is not Outcome.OK:
        return Check(api, "stop", "FAIL", record.error or str(record.outcome))
    due = whole[: whole.index(stop)]
    seen = f"asked to stop at {stop!r}: finish '{record.finish_reason}' after {len(text)} characters"
    if stop in text:
        return Check(api, "stop", "FAIL", f"{seen}, and the stop text is in the answer")
    if text == due and record.finish_reason in ("stop", "stop_sequence", "end_turn", "eos"):
        return Check(api, "stop", "PASS", seen)
    if not due.startswith(text[: len(due)]) and not text.startswith(due):
        return Check(api, "stop", "SKIP", f"{seen}; the answer was another one, so nothing can be said")
    return Check(api, "stop", "FAIL", f"{seen}; 'stop' was due after {len(due)}")
