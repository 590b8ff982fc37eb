"""The dialect of Triton's generate extension, `/v2/models/MODEL/generate_stream`: events with `text_output`.

The one idea: this API has no terminal event, and most backends give no finish reason. What says that an answer is
whole is then the end of the HTTP message itself, which must have been framed (chunked): such an answer is ok with
the finish reason `not told`, and its record marks `finish_reason` as unknown. Where a backend does tell
(`finish_reason`, asked for with `--body '{"return_finish_reason": true}'`), its word is taken, and its silence. A
body that merely ended with its connection, or that held no text, is incomplete. Texts are taken as increments, which
is what backends stream unless told to accumulate. It must not know sockets, clocks or metrics.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from benchlab.clients.dialect import UNTOLD, Conversation, count_of, flat_prompt, read_event, stream_error, whole_body
from benchlab.records.event import Kind, Outcome
from benchlab.records.recorder import Recorder
from benchlab.workload.item import WorkloadItem

_NO_REASON = ("", "None", "null")
"""What a backend that tells reasons puts into the events before the last."""


class Triton:
    """`/v2/models/MODEL/generate_stream`. `extra` is merged into each body last (`--body`).

    What is asked stands at the top level, where a backend's input tensors are looked for first and all that is none
    of them becomes a parameter of the request: TensorRT-LLM's and vLLM's backends both read it there.
    """

    def __init__(self, model: str, extra: dict[str, Any] | None = None) -> None:
        self.model, self.extra = model, extra or {}
        self.path = f"/v2/models/{quote(model, safe='')}/generate_stream"
        self.headers: dict[str, str] = {}

    def body(self, item: WorkloadItem) -> bytes:
        document: dict[str, Any] = {"text_input": flat_prompt(item), "stream": True}
        if item.output_tokens is not None:
            document["max_tokens"] = item.output_tokens
        return msgspec.json.encode(document | (item.sampling or {}) | self.extra)

    def conversation(self, recorder: Recorder, item: WorkloadItem) -> TritonConversation:
        return TritonConversation(recorder)


class TritonConversation(Conversation):
    """Reads one answer, event by event."""

    __slots__ = ("_recorder", "_tells", "_tokens", "complete")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tells = False
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
        text = document.get("text_output")
        if isinstance(text, list):
            text = text[0] if text else ""
        text = text if isinstance(text, str) else ""
        reason = document.get("finish_reason")
        self._tells = self._tells or "finish_reason" in document
        finished = isinstance(reason, str) and reason not in _NO_REASON
        if finished:
            recorder.finish_reason = str(reason)[:64]
        told = count_of(document, "num_output_tokens")  # of this event alone
        self._tokens += told or 0
        output = None if told is None else self._tokens
        recorder.usage(prompt=count_of(document, "num_input_tokens"), output=output, reasoning=None, cached=None)
        kind = Kind.CONTENT if text else Kind.FINISH if finished else Kind.EMPTY
        tokens = recorder.tokens_so_far(output) if text and output is not None else None
        recorder.chunk(ns, kind, tokens=tokens, slack_ns=slack_ns, text=text)

    def whole(self, body: bytes, ns: int) -> None:
        whole_body(self._recorder, body, ns)

    def ended(self, ns: int, *, framed: bool = True) -> None:
        recorder = self._recorder
        if recorder.finish_reason is None and recorder.outcome is None and not self._tells:
            if not recorder.visible:
                recorder.fail(Outcome.INCOMPLETE, "the stream ended without any text", ns=ns, kind="empty")
            elif not framed:
                words = "the connection ended the answer: this API has no other sign of its end, and a cut looks alike"
                recorder.fail(Outcome.INCOMPLETE, words, ns=ns, kind="closed")
            else:
                recorder.finish_reason = UNTOLD
                recorder.unknown.add("finish_reason")
        recorder.end(ns)
