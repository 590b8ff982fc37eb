"""The dialect of Hugging Face's text-generation-inference, `/generate_stream`: one event a token.

The one idea: an event holds one token object; the last one repeats the whole text in `generated_text` (never counted
twice) and tells in `details` why it ended and how many tokens there were. A special token (end of sequence) is a
token without text. An error is an event with `error`, and the status was 200 by then. It must not know sockets,
clocks or metrics.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchlab.clients.dialect import UNTOLD, Conversation, count_of, flat_prompt, read_event, stream_error, whole_body
from benchlab.records.event import Kind
from benchlab.records.recorder import Recorder
from benchlab.workload.item import WorkloadItem


class Tgi:
    """`/generate_stream`. `extra` is merged into each body last, its `parameters` into ours (`--body`)."""

    path = "/generate_stream"

    def __init__(self, model: str, extra: dict[str, Any] | None = None) -> None:
        self.model, self.extra = model, extra or {}
        self.headers: dict[str, str] = {}

    def body(self, item: WorkloadItem) -> bytes:
        parameters: dict[str, Any] = {"details": True}
        if item.output_tokens is not None:
            parameters["max_new_tokens"] = item.output_tokens
        sampling = dict(item.sampling or {})
        if "max_tokens" in sampling:
            sampling["max_new_tokens"] = sampling.pop("max_tokens")
        if sampling.get("temperature") == 0:  # it refuses 0: greedy is to sample not at all
            del sampling["temperature"]
            sampling["do_sample"] = False
        if isinstance(sampling.get("stop"), str):
            sampling["stop"] = [sampling["stop"]]
        extra = dict(self.extra)
        more = extra.pop("parameters", {})
        parameters |= sampling | (more if isinstance(more, dict) else {})
        return msgspec.json.encode({"inputs": flat_prompt(item), "parameters": parameters} | extra)

    def conversation(self, recorder: Recorder, item: WorkloadItem) -> TgiConversation:
        return TgiConversation(recorder)


class TgiConversation(Conversation):
    """Reads one answer, token by token."""

    __slots__ = ("_recorder", "_tokens", "complete")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tokens = 0
        self.complete = False

    def event(self, name: bytes, data: bytes, ns: int, slack_ns: int) -> None:
        recorder = self._recorder
        document = read_event(recorder, data, ns, slack_ns)
        if document is None:
            return
        if document.get("error") or name == b"error":
            stream_error(recorder, document, ns, slack_ns)
            return
        text = self._token(document.get("token"))
        whole = document.get("generated_text")
        last = isinstance(whole, str)
        if last and not text and not recorder.visible:
            text = str(whole)  # no token came before: what the last event says is the answer
        if last:
            self._last(document.get("details"))
        kind = Kind.CONTENT if text else Kind.FINISH if last else Kind.EMPTY
        tokens = recorder.tokens_so_far(self._tokens) if text and self._tokens else None
        recorder.chunk(ns, kind, tokens=tokens, slack_ns=slack_ns, text=text)

    def whole(self, body: bytes, ns: int) -> None:
        whole_body(self._recorder, body, ns)

    def ended(self, ns: int, *, framed: bool = True) -> None:
        self._recorder.end(ns)

    def _token(self, token: object) -> str:
        """The text of an event's token, counted; '' for a special one."""
        if not isinstance(token, dict):
            return ""
        self._tokens += 1
        text = token.get("text")
        return text if isinstance(text, str) and not token.get("special") else ""

    def _last(self, details: object) -> None:
        self.complete = True
        reason = details.get("finish_reason") if isinstance(details, dict) else None
        self._recorder.finish_reason = str(reason)[:64] if reason else UNTOLD
        if not reason:
            self._recorder.unknown.add("finish_reason")
        output = count_of(details, "generated_tokens")
        self._recorder.usage(prompt=count_of(details, "input_length"), output=output, reasoning=None, cached=None)
