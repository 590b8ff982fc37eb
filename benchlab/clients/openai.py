"""The OpenAI dialects, chat and completions, as real servers speak them (their habits: tests/fixtures/wire).

Rules that the habits teach: the last text can come in the event that carries the finish reason; usage can come in
any event, on every event, or once a choice; an empty delta is no token; choices may be empty, null or missing; some
servers never send [DONE], so a finish reason and a clean end make an answer complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from benchlab.clients.dialect import Conversation, count_of, flat_prompt, read_object, stream_error, whole_body
from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.records.recorder import Recorder
from benchlab.workload.item import WorkloadItem

_decode = msgspec.json.Decoder().decode
_TRIES = 8
"""So many times a stream may change what stands around its texts before each event is parsed for good."""
_plain = re.compile(rb"[ !#-\[\]-~]+").fullmatch
"""Bytes that stand for themselves in a JSON string: printable ASCII without the quote and the backslash."""
_TEXT = re.compile(rb'("(?:content|text)": ?")([ !#-\[\]-~]+)(?=")')


class OpenAI:
    """`/v1/chat/completions` or `/v1/completions`. `extra` is merged into each body last (`--body`)."""

    def __init__(self, api: Literal["chat", "completions"], model: str, extra: dict[str, Any] | None = None) -> None:
        self.api, self.model, self.extra = api, model, extra or {}
        self.path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
        self.headers: dict[str, str] = {}

    def body(self, item: WorkloadItem) -> bytes:
        document: dict[str, Any] = {"model": self.model}
        if self.api == "chat":
            document["messages"] = item.messages or [{"role": "user", "content": item.prompt or ""}]
        else:
            document["prompt"] = flat_prompt(item)
        document |= {"stream": True, "stream_options": {"include_usage": True}}
        if item.output_tokens is not None:
            document["max_tokens"] = item.output_tokens
        if item.tools and self.api == "chat":
            document["tools"] = item.tools
        document |= item.sampling or {}
        document |= self.extra
        return msgspec.json.encode(document)

    def conversation(self, recorder: Recorder, item: WorkloadItem) -> OpenAIConversation:
        asked = (item.sampling or {}).get("n", self.extra.get("n", 1))
        return OpenAIConversation(recorder, choices=asked if isinstance(asked, int) else 1)


class OpenAIConversation(Conversation):
    """Reads one answer, event by event."""

    __slots__ = (
        "_after",
        "_before",
        "_choices",
        "_finished",
        "_open",
        "_recorder",
        "_tries",
        "_usage_always",
        "_usage_only",
        "complete",
    )

    def __init__(self, recorder: Recorder, choices: int = 1) -> None:
        self._recorder = recorder
        self._choices = choices
        self._open: set[int] = set()
        self._finished: set[int] = set()
        self._usage_always = True
        self._usage_only = 0
        self._before: bytes | None = None
        self._after = b""
        self._tries = _TRIES
        self.complete = False

    def event(self, name: bytes, data: bytes, ns: int, slack_ns: int) -> None:
        recorder = self._recorder
        before = self._before
        alike = before is not None and not name and data.startswith(before) and data.endswith(self._after)
        if alike and _plain(data, len(before or b""), len(data) - len(self._after)):
            recorder.content(ns, slack_ns, data[len(before or b"") : -len(self._after)])
            return
        stripped = data.strip()
        if stripped == b"[DONE]":
            recorder.chunk(ns, Kind.DONE, slack_ns=slack_ns)
            recorder.done_seen = self.complete = True
            return
        if not stripped:
            recorder.chunk(ns, Kind.EMPTY, slack_ns=slack_ns)  # a keep-alive in the clothes of an event
            return
        document = read_object(recorder, data, ns)
        if document is None:
            return
        if document.get("error") or name == b"error" or document.get("object") == "error":
            stream_error(recorder, document, ns, slack_ns)
            return
        choices = document.get("choices")
        text, kind = self._read_choices(choices if isinstance(choices, list) else [])
        usage = document.get("usage")
        tokens = self._read_usage(usage, has_choices=bool(choices), kind=kind) if isinstance(usage, dict) else None
        if kind in VISIBLE and not isinstance(usage, dict):
            self._usage_always = False
        if kind is None:
            kind = Kind.USAGE if usage else Kind.EMPTY
        recorder.chunk(ns, kind, tokens=tokens if kind in VISIBLE else None, slack_ns=slack_ns, text=text)
        if kind is Kind.CONTENT and usage is None and self._tries > 0 and not (name or alike or self._finished):
            self._learn(data, document)

    def plain_run(self, events: Sequence[tuple[bytes, bytes]], first: int, last: int, ns: int, slack_ns: int) -> int:
        """Takes as many events from `first` on, and before `last`, as are plain text after a known pattern, as
        `event` would one by one; returns how many."""
        before, after = self._before, self._after
        if before is None:
            return 0
        start, stop, keep = len(before), -len(after), self._recorder.keeps_text
        at = first
        texts: list[bytes] = []
        while at < last:
            name, data = events[at]
            if name or not data.startswith(before) or not data.endswith(after) or not _plain(text := data[start:stop]):
                break
            if keep:
                texts.append(text)
            at += 1
        if at > first:
            self._recorder.contents(at - first, ns, slack_ns, texts)
        return at - first

    def _learn(self, data: bytes, document: dict[str, Any]) -> None:
        """Most events of a stream differ in their text alone: remember what stands around it, so that the next need
        not be parsed. Proved with another text: what is read from the bytes around it must be this very document."""
        self._tries -= 1
        parts = _TEXT.split(data, maxsplit=1)
        if len(parts) != 4:
            return
        before, after = parts[0] + parts[1], parts[3]
        try:
            other = _decode(before + b"?" + after)
            (choice,) = other["choices"]
            if read_delta(choice) != ("?", Kind.CONTENT) or choice.get("finish_reason"):
                return
            part = choice["delta"] if isinstance(choice.get("delta"), dict) else choice
            part["content" if part is not choice else "text"] = parts[2].decode("ascii")
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, ValueError, TypeError, AttributeError):
            return
        if other == document:
            self._before, self._after = before, after

    def whole(self, body: bytes, ns: int) -> None:
        whole_body(self._recorder, body, ns)

    def ended(self, ns: int, *, framed: bool = True) -> None:
        if self._finished and (self._open or len(self._finished) < self._choices):
            self._recorder.finish_reason = None
            of = max(self._choices, len(self._finished) + len(self._open))
            words = f"the stream ended with {len(self._finished)} of {of} choices finished"
            self._recorder.fail(Outcome.INCOMPLETE, words, ns=ns, kind="choices")
        self._recorder.end(ns)

    def _read_choices(self, choices: list[Any]) -> tuple[str, Kind | None]:
        """Text and kind of an event; notes which choices are open and which have finished."""
        pieces: list[str] = []
        best: Kind | None = None
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            index = choice.get("index")
            index = index if isinstance(index, int) else 0
            text, kind = read_delta(choice)
            if index not in self._finished:
                self._open.add(index)
            if reason := choice.get("finish_reason"):
                self._open.discard(index)
                self._finished.add(index)
                self._recorder.finish_reason = str(reason)[:64]
                kind = kind if kind in VISIBLE else Kind.FINISH
            if text:
                pieces.append(text)
            if best is None or _RANK[kind] < _RANK[best]:
                best = kind
        return "".join(pieces), best

    def _read_usage(self, usage: dict[str, Any], *, has_choices: bool, kind: Kind | None) -> int | None:
        """Take the server's counts; returns the tokens of this very event where usage came on every event so far."""
        output = count_of(usage, "completion_tokens")
        if not has_choices:
            self._usage_only += 1
            if self._choices > 1 and self._usage_only > 1 and output is not None:
                output += self._recorder.output_tokens or 0  # one usage event a choice: their sum is the answer's
        self._recorder.usage(
            prompt=count_of(usage, "prompt_tokens"),
            output=output,
            reasoning=count_of(usage.get("completion_tokens_details"), "reasoning_tokens"),
            cached=count_of(usage.get("prompt_tokens_details"), "cached_tokens"),
        )
        if kind in VISIBLE and self._usage_always and output is not None:
            return self._recorder.tokens_so_far(output)
        return None


_KINDS = (Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL, Kind.FINISH, Kind.ROLE, Kind.EMPTY)
_RANK = {kind: rank for rank, kind in enumerate(_KINDS)}


def read_delta(choice: dict[str, Any]) -> tuple[str, Kind]:
    """Text and kind of one choice of a chat or completions event."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        text = choice.get("text")
        return (text, Kind.CONTENT) if isinstance(text, str) and text else ("", Kind.EMPTY)
    text = delta.get("content")
    if isinstance(text, str) and text:
        return text, Kind.CONTENT
    for key, kind in (
        ("refusal", Kind.CONTENT),
        ("reasoning_content", Kind.REASONING),
        ("reasoning", Kind.REASONING),
    ):
        text = delta.get(key)
        if isinstance(text, str) and text:
            return text, kind
    if text := _tool_text(delta):
        return text, Kind.TOOL_CALL
    return "", Kind.ROLE if delta.get("role") else Kind.EMPTY


def _tool_text(delta: dict[str, Any]) -> str:
    calls = delta.get("tool_calls")
    calls = list(calls) if isinstance(calls, list) else []
    if delta.get("function_call"):
        calls.append({"function": delta["function_call"]})
    pieces: list[str] = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            pieces += [str(function.get(key) or "") for key in ("name", "arguments")]
    return "".join(pieces)
