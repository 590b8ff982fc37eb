"""The OpenAI wire form, outwards: events, whole answers and errors.

The one idea: what does not change from event to event is made once, so that a token's event is two joins around its
escaped text. Everything written is ASCII. It must not know the engine, the tokenizer or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from benchlab_engine.serve.call import Call, Chance, Piece, TokenChances, Usage
from benchlab_engine.serve.fields import WireError

_LEAST = -9999.0  # JSON has no infinity: what vLLM writes for a chance of nothing


class OpenAiWire:
    """Chat and text completions."""

    def events(self, call: Call, request_id: str, model: str, created: int) -> OpenAiEvents:
        """The writer of one stream."""
        return OpenAiEvents(call, request_id, model, created)

    def whole(
        self, call: Call, request_id: str, model: str, created: int, choices: Sequence[Sequence[Piece]], usage: Usage
    ) -> Mapping[str, Any]:
        """The answer that is not streamed."""
        kind = "chat.completion" if call.is_chat else "text_completion"
        return {
            "id": answer_id(call, request_id), "object": kind, "created": created, "model": model,
            "choices": [_choice(call, index, pieces) for index, pieces in enumerate(choices)],
            "usage": usage_of(usage),
        }  # fmt: skip

    def error(self, error: WireError, request_id: str) -> tuple[int, bytes]:
        """Status and body."""
        return error.status, _error(error).encode()


def answer_id(call: Call, request_id: str) -> str:
    """The answer's own id, made of the request's."""
    return ("chatcmpl-" if call.is_chat else "cmpl-") + request_id


def usage_of(usage: Usage) -> dict[str, Any]:
    """Token counts as the wire tells them."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


class OpenAiEvents:
    """The events of one stream. Chat and completions differ in where the text stands."""

    def __init__(self, call: Call, request_id: str, model: str, created: int) -> None:
        self._call = call
        kind = "chat.completion.chunk" if call.is_chat else "text_completion"
        head = json.dumps({"id": answer_id(call, request_id), "object": kind, "created": created, "model": model})
        self._head = "data: " + head[:-1] + ', "choices": '
        place = ', "delta": {"content": ' if call.is_chat else ', "text": '
        self._close = "}" if call.is_chat else ""
        self._before = [f'{self._head}[{{"index": {index}{place}' for index in range(call.n)]
        self._after = self._close + ', "logprobs": null, "finish_reason": null}]}\n\n'

    def opening(self, usage: Usage) -> str:
        """Who speaks, for each choice of a chat."""
        if not self._call.is_chat:
            return ""
        delta = '"delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null'
        return "".join(self._event(f'[{{"index": {index}, {delta}}}]') for index in range(self._call.n))

    def token(self, index: int, text: str, chances: TokenChances | None = None, count: Usage | None = None) -> str:
        """One token's event."""
        if chances is None and count is None:
            return self._before[index] + quote(text) + self._after
        told = _logprobs(self._call, [] if chances is None else [chances])
        tail = "" if count is None else ', "usage": ' + json.dumps(usage_of(count))
        end = f'{self._close}, "logprobs": {json.dumps(told)}, "finish_reason": null}}]{tail}}}\n\n'
        return self._before[index] + quote(text) + end

    def finish(self, index: int, piece: Piece, text: str, usage: Usage) -> str:
        """The event that ends one choice."""
        if self._call.is_chat:
            place = '"delta": ' + json.dumps({"content": text} if text else {})
        else:
            place = '"text": ' + quote(text)
        told = _logprobs(self._call, [] if piece.is_token or piece.chances is None else [piece.chances])
        end = f'"finish_reason": {json.dumps(piece.finish)}, "stop_reason": {json.dumps(piece.stop)}'
        count = usage if self._call.continuous_usage else None
        return self._event(f'[{{"index": {index}, {place}, "logprobs": {json.dumps(told)}, {end}}}]', count)

    def closing(self, usage: Usage, *, is_marked: bool) -> str:
        """The token counts where they were asked for, and the end mark."""
        told = self._event("[]", usage) if self._call.include_usage else ""
        return told + ("data: [DONE]\n\n" if is_marked else "")

    def error(self, error: WireError) -> str:
        """An error after the first byte."""
        return f"data: {_error(error)}\n\n"

    def _event(self, choices: str, count: Usage | None = None) -> str:
        tail = "" if count is None else ', "usage": ' + json.dumps(usage_of(count))
        return f"{self._head}{choices}{tail}}}\n\n"


def _error(error: WireError) -> str:
    body = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    return json.dumps({"error": body})


def _choice(call: Call, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
    text, last = "".join(piece.text for piece in pieces), pieces[-1]
    end = {
        "logprobs": _logprobs(call, [piece.chances for piece in pieces if piece.chances is not None]),
        "finish_reason": last.finish,
        "stop_reason": last.stop,
    }
    if call.is_chat:
        return {"index": index, "message": {"role": "assistant", "content": text}, **end}
    return {"index": index, "text": text, **end}


def _logprobs(call: Call, chances: Sequence[TokenChances]) -> dict[str, Any] | None:
    if call.sampling.logprobs is None or not chances:
        return None
    if call.is_chat:
        return {"content": [{**_entry(e.own), "top_logprobs": [_entry(top) for top in e.top]} for e in chances]}
    return {
        "tokens": [_name(each.own.raw) for each in chances],
        "token_logprobs": [_finite(each.own.logprob) for each in chances],
        "top_logprobs": [{_name(t.raw): _finite(t.logprob) for t in (*each.top, each.own)} for each in chances],
        "text_offset": [each.offset for each in chances],
    }


def _entry(chance: Chance) -> dict[str, Any]:
    return {"token": _name(chance.raw), "logprob": _finite(chance.logprob), "bytes": list(chance.raw)}


def _name(raw: bytes) -> str:
    """A token's text; one that is only a part of a character is told by its bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _finite(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST
