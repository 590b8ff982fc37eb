"""The Anthropic dialect, `/v1/messages`: named events, content in blocks, usage that is cumulative.

The one idea: a message is a small state machine of typed events, of which only deltas (and the name of a tool) are
seen by a reader. Counts replace each other and are never summed; the output count of `message_start` is a seed and
no count. Events of types that are not known are kept as empty, as the API's versioning asks of clients. It must not
know sockets, clocks or metrics.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchlab.clients.dialect import Conversation, count_of, read_event, stream_error, whole_body
from benchlab.records.event import Kind
from benchlab.records.recorder import Recorder
from benchlab.workload.item import WorkloadItem

VERSION = "2023-06-01"
"""The API's version header, which it demands."""
DEFAULT_MAX_TOKENS = 4096
"""The API demands `max_tokens`: this, where an item asks for no length."""

_DELTAS = {
    "text_delta": ("text", Kind.CONTENT),
    "thinking_delta": ("thinking", Kind.REASONING),
    "input_json_delta": ("partial_json", Kind.TOOL_CALL),
}
_BLOCKS = {
    "text": ("text", Kind.CONTENT),
    "thinking": ("thinking", Kind.REASONING),
    "tool_use": ("name", Kind.TOOL_CALL),
    "server_tool_use": ("name", Kind.TOOL_CALL),
}
_INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class Anthropic:
    """`/v1/messages`. `extra` is merged into each body last (`--body`)."""

    path = "/v1/messages"

    def __init__(self, model: str, extra: dict[str, Any] | None = None) -> None:
        self.model, self.extra = model, extra or {}
        self.headers = {"anthropic-version": VERSION}

    def body(self, item: WorkloadItem) -> bytes:
        system, messages = to_messages(item.messages or [{"role": "user", "content": item.prompt or ""}])
        document: dict[str, Any] = {"model": self.model, "max_tokens": item.output_tokens or DEFAULT_MAX_TOKENS}
        if system:
            document["system"] = system
        document |= {"messages": messages, "stream": True}
        if item.tools:
            document["tools"] = [to_tool(tool) for tool in item.tools]
        sampling = dict(item.sampling or {})
        if "stop" in sampling:
            stop = sampling.pop("stop")
            document["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        return msgspec.json.encode(document | sampling | self.extra)

    def conversation(self, recorder: Recorder, item: WorkloadItem) -> AnthropicConversation:
        return AnthropicConversation(recorder)


class AnthropicConversation(Conversation):
    """Reads one message, event by event."""

    __slots__ = ("_input", "_recorder", "complete")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._input = dict.fromkeys(_INPUT_COUNTS, 0)
        self.complete = False

    def event(self, name: bytes, data: bytes, ns: int, slack_ns: int) -> None:
        recorder = self._recorder
        document = read_event(recorder, data, ns, slack_ns)
        if document is None:
            return
        kind_of_event = document.get("type") or name.decode("latin-1")
        if kind_of_event == "error" or document.get("error"):
            stream_error(recorder, document, ns, slack_ns)
            return
        text, kind = "", Kind.EMPTY
        if kind_of_event == "content_block_delta":
            text, kind = _pick(document.get("delta"), _DELTAS)
        elif kind_of_event == "content_block_start":
            text, kind = _pick(document.get("content_block"), _BLOCKS)
        elif kind_of_event == "message_start":
            kind = Kind.ROLE
            message = document.get("message")
            self._usage(message.get("usage") if isinstance(message, dict) else None, output=False)
        elif kind_of_event == "message_delta":
            kind = self._message_delta(document)
        elif kind_of_event == "message_stop":
            kind = Kind.DONE
            recorder.done_seen = self.complete = True
        recorder.chunk(ns, kind, slack_ns=slack_ns, text=text)

    def whole(self, body: bytes, ns: int) -> None:
        whole_body(self._recorder, body, ns)

    def ended(self, ns: int, *, framed: bool = True) -> None:
        self._recorder.end(ns)

    def _message_delta(self, document: dict[str, Any]) -> Kind:
        usage, delta = document.get("usage"), document.get("delta")
        self._usage(usage, output=True)
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        if reason:
            self._recorder.finish_reason = str(reason)[:64]
            return Kind.FINISH
        return Kind.USAGE if usage else Kind.EMPTY

    def _usage(self, usage: object, *, output: bool) -> None:
        """Take counts: each is of the whole message so far. `input_tokens` leaves out what the cache gave, ours do
        not; a 0 after a number is a server that tells its input only once."""
        seen = False
        for key in _INPUT_COUNTS:
            if (count := count_of(usage, key)) is not None:
                seen = True
                self._input[key] = count or self._input[key]
        self._recorder.usage(
            prompt=sum(self._input.values()) if seen else None,
            output=count_of(usage, "output_tokens") if output else None,
            reasoning=None,
            cached=self._input["cache_read_input_tokens"]
            if count_of(usage, "cache_read_input_tokens") is not None
            else None,
        )


def _pick(part: object, kinds: dict[str, tuple[str, Kind]]) -> tuple[str, Kind]:
    """Text and kind of a delta or of the start of a block; signatures, citations and what is redacted are no text."""
    if isinstance(part, dict) and isinstance(part.get("type"), str) and (known := kinds.get(part["type"])):
        text = part.get(known[0])
        if isinstance(text, str) and text:
            return text, known[1]
    return "", Kind.EMPTY


def to_messages(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """OpenAI's messages as the system text and Anthropic's: tool calls and their results become blocks."""
    system: list[str] = []
    out: list[dict[str, Any]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            system.append(_text_of(content))
        elif role == "tool":
            block = {"type": "tool_result", "tool_use_id": message.get("tool_call_id", ""), "content": content or ""}
            if out and out[-1]["role"] == "user" and isinstance(out[-1]["content"], list):
                out[-1]["content"].append(block)
            else:
                out.append({"role": "user", "content": [block]})
        elif role == "assistant" and isinstance(message.get("tool_calls"), list):
            blocks = [{"type": "text", "text": _text_of(content)}] if content else []
            out.append({"role": "assistant", "content": blocks + [_to_use(call) for call in message["tool_calls"]]})
        else:
            out.append({"role": role, "content": content if content is not None else ""})
    return "\n\n".join(system), out


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content or "")


def _to_use(call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    function = function if isinstance(function, dict) else {}
    try:
        arguments = msgspec.json.decode(function.get("arguments") or "{}")
    except (msgspec.DecodeError, TypeError):
        arguments = {}
    identity = call.get("id", "") if isinstance(call, dict) else ""
    return {"type": "tool_use", "id": identity, "name": function.get("name", ""), "input": arguments}


def to_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's description of a tool as Anthropic's; one that is Anthropic's already stays as it is."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    named = {key: function[key] for key in ("name", "description") if key in function}
    return named | {"input_schema": function.get("parameters") or {"type": "object", "properties": {}}}
