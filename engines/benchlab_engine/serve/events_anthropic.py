"""The Anthropic wire form, outwards: named events, whole messages and errors.

The one idea: a message is one block of text between a start and a stop; counts are cumulative, and its input count
leaves out what the prefix cache gave. A token inside a character gives a delta with empty text, so that deltas and
tokens stay one to one. It must not know the engine, the tokenizer or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from benchlab_engine.serve.call import Call, Piece, TokenChances, Usage
from benchlab_engine.serve.fields import WireError

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_DELTA = (
    "event: content_block_delta\n"
    'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": '
)
_AFTER = "}}\n\n"
_BLOCK_START = (
    'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, '
    '"content_block": {"type": "text", "text": ""}}\n\n'
)
_PING = 'event: ping\ndata: {"type": "ping"}\n\n'
_BLOCK_STOP = 'event: content_block_stop\ndata: {"type": "content_block_stop", "index": 0}\n\n'
_MESSAGE_STOP = 'event: message_stop\ndata: {"type": "message_stop"}\n\n'


class AnthropicWire:
    """/v1/messages."""

    def events(self, call: Call, request_id: str, model: str, created: int) -> AnthropicEvents:
        """The writer of one stream."""
        return AnthropicEvents(request_id, model)

    def whole(
        self, call: Call, request_id: str, model: str, created: int, choices: Sequence[Sequence[Piece]], usage: Usage
    ) -> Mapping[str, Any]:
        """The answer that is not streamed."""
        (pieces,) = choices
        text = "".join(piece.text for piece in pieces)
        message = _message(request_id, model, usage, usage.completion)
        return {**message, "content": [{"type": "text", "text": text}], **_end(pieces[-1])}

    def error(self, error: WireError, request_id: str) -> tuple[int, bytes]:
        """Status and body. This form's word for a server that sheds load is 529."""
        status = 529 if error.status == 503 else error.status
        body = _error(error)
        return status, json.dumps({**body, "request_id": request_id} if request_id else body).encode()


class AnthropicEvents:
    """The events of one stream."""

    def __init__(self, request_id: str, model: str) -> None:
        self._request_id = request_id
        self._model = model

    def opening(self, usage: Usage) -> str:
        """message_start with the input's count, the block's start, and a ping."""
        message = _message(self._request_id, self._model, usage, 0)
        start = {"type": "message_start", "message": message}
        return f"event: message_start\ndata: {json.dumps(start)}\n\n{_BLOCK_START}{_PING}"

    def token(self, index: int, text: str, chances: TokenChances | None = None, count: Usage | None = None) -> str:
        """One token's delta."""
        return _DELTA + quote(text) + _AFTER

    def finish(self, index: int, piece: Piece, text: str, usage: Usage) -> str:
        """The block's stop and the message's end with its cumulative counts."""
        rest = self.token(index, text) if text else ""
        event = {"type": "message_delta", "delta": _end(piece), "usage": _usage(usage, usage.completion)}
        return f"{rest}{_BLOCK_STOP}event: message_delta\ndata: {json.dumps(event)}\n\n"

    def closing(self, usage: Usage, *, is_marked: bool) -> str:
        """message_stop."""
        return _MESSAGE_STOP if is_marked else ""

    def error(self, error: WireError) -> str:
        """An error after the first byte."""
        return f"event: error\ndata: {json.dumps(_error(error))}\n\n"


def _message(request_id: str, model: str, usage: Usage, output: int) -> dict[str, Any]:
    return {
        "id": "msg_" + request_id, "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": _usage(usage, output),
    }  # fmt: skip


def _usage(usage: Usage, output: int) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": output,
    }


def _end(piece: Piece) -> dict[str, str | None]:
    if piece.stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": piece.stop}
    return {"stop_reason": "max_tokens" if piece.finish == "length" else "end_turn", "stop_sequence": None}


def _error(error: WireError) -> dict[str, Any]:
    status = 529 if error.status == 503 else error.status
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
