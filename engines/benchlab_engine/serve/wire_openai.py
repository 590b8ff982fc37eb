"""The OpenAI wire form: a body in, a call out; events and errors as bytes.

The one idea: reading and writing the wire is pure, so that each byte can be tested without a socket. It must not know
the engine, the tokenizer or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class WireError(Exception):
    """An answer that is an error. status: HTTP. retry_after: seconds, where trying again may help."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}

    def encode(self) -> bytes:
        """The JSON body."""
        return json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Call:
    """One checked request. messages or prompt or prompt_tokens is set. max_tokens None: as the server likes."""

    chat: bool
    model: str
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str = ""
    prompt_tokens: tuple[int, ...] = ()
    max_tokens: int | None = None
    min_tokens: int = 0
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    stop: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False
    user: str = ""


# What this engine does not do yet, and the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
}
_ROLES = ("system", "developer", "user", "assistant", "tool")


def parse(raw: bytes, chat: bool) -> Call:
    """A body of /v1/chat/completions (chat) or /v1/completions. WireError 400 names the field and what is expected."""
    body = parse_object(raw)
    for name, neutral in _NEUTRAL.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise WireError(400, f"{name}={json.dumps(body[name])} is not supported by this engine", param=name)
    streams = _typed(body, "stream", bool, False)
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise WireError(400, "stream_options must be an object", param="stream_options")
    messages, prompt, tokens = (), "", ()  # type: tuple[Mapping[str, Any], ...], str, tuple[int, ...]
    if chat:
        messages = _messages(body)
    else:
        prompt, tokens = _prompt(body)
    seed = body.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise WireError(400, "seed must be an integer", param="seed")
    model = body.get("model", "")
    if not isinstance(model, str):
        raise WireError(400, "model must be a string", param="model")
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    limit = None if body.get(name) is None else int(_number(body, name, 1, 1, None, whole=True))
    return Call(
        chat=chat,
        model=model,
        messages=messages,
        prompt=prompt,
        prompt_tokens=tokens,
        max_tokens=limit,
        min_tokens=int(_number(body, "min_tokens", 0, 0, None, whole=True)),
        stream=streams,
        include_usage=streams and bool(options.get("include_usage")),
        continuous_usage=streams and bool(options.get("continuous_usage_stats")),
        stop=_stop(body),
        temperature=_number(body, "temperature", 1.0, 0.0, 100.0),
        top_p=_number(body, "top_p", 1.0, 1e-9, 1.0),
        top_k=max(0, int(_number(body, "top_k", 0, -1, None, whole=True))),
        seed=seed,
        ignore_eos=_typed(body, "ignore_eos", bool, False),
        user=str(body.get("user") or ""),
    )


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object, or WireError 400."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WireError(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise WireError(400, "the body must be a JSON object")
    return body


def _typed(body: Mapping[str, Any], name: str, kind: type[bool], default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise WireError(400, f"{name} must be true or false", param=name)
    return value


def _number(
    body: Mapping[str, Any], name: str, default: float, low: float, high: float | None, whole: bool = False
) -> float:
    value = body.get(name)
    if value is None:
        return default
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not low <= value <= (high if high is not None else 2**31 - 1):
        kind = "an integer" if whole else "a number"
        limit = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
        raise WireError(400, f"{name} must be {kind} {limit}, not {json.dumps(value)}", param=name)
    return value  # type: ignore[no-any-return]


def _messages(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise WireError(400, "messages must be a list of at least one message", param="messages")
    return tuple(_message(index, each) for index, each in enumerate(messages))


def _message(index: int, message: Any) -> Mapping[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise WireError(400, f"{where} must be an object whose role is one of {', '.join(_ROLES)}", param=where)
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise WireError(400, f"{where}.content may hold text parts only", param=where)
        content = "".join(part["text"] for part in content)
    if content is None and message["role"] == "assistant":
        content = ""
    if not isinstance(content, str):
        raise WireError(400, f"{where}.content must be text", param=where)
    return {**message, "content": content}


def _prompt(body: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt, ()
    if isinstance(prompt, list) and prompt and all(type(each) is int and 0 <= each < 2**32 for each in prompt):
        return "", tuple(prompt)
    raise WireError(400, "prompt must be one text or one list of token ids, not empty", param="prompt")


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    if stop is None:
        return ()
    listed = [stop] if isinstance(stop, str) else stop
    if not isinstance(listed, list) or len(listed) > 16 or not all(isinstance(each, str) and each for each in listed):
        raise WireError(400, "stop must be a text or a list of at most 16 texts, none empty", param="stop")
    return tuple(listed)


def usage(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """Token counts of one answer."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class EventWriter:
    """The bytes of one stream's events. What does not change from event to event is encoded once."""

    DONE = b"data: [DONE]\n\n"

    def __init__(self, call: Call, answer_id: str, created: int, model: str) -> None:
        self._chat = call.chat
        kind = "chat.completion.chunk" if call.chat else "text_completion"
        head = json.dumps({"id": answer_id, "object": kind, "created": created, "model": model})
        self._head = "data: " + head[:-1] + ', "choices": '

    def role(self) -> bytes:
        """The first event of a chat: who speaks."""
        return self._event('[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]')

    def text(self, text: str, count: Mapping[str, Any] | None = None) -> bytes:
        """One token's event; its text may be empty."""
        quoted = json.dumps(text)
        piece = f'"delta": {{"content": {quoted}}}' if self._chat else f'"text": {quoted}'
        return self._event(f'[{{"index": 0, {piece}, "logprobs": null, "finish_reason": null}}]', count)

    def finish(self, reason: str, stop: str | None, text: str = "", count: Mapping[str, Any] | None = None) -> bytes:
        """The event that ends the answer, with the text that was still held back."""
        if self._chat:
            piece = '"delta": ' + json.dumps({"content": text} if text else {})
        else:
            piece = '"text": ' + json.dumps(text)
        end = f'"finish_reason": {json.dumps(reason)}, "stop_reason": {json.dumps(stop)}'
        return self._event(f'[{{"index": 0, {piece}, "logprobs": null, {end}}}]', count)

    def usage(self, count: Mapping[str, Any]) -> bytes:
        """The event with token counts and no choices."""
        return self._event("[]", count)

    @staticmethod
    def error(error: WireError) -> bytes:
        """An error after the first byte. Nothing follows it."""
        return b"data: " + error.encode() + b"\n\n"

    def _event(self, choices: str, count: Mapping[str, Any] | None = None) -> bytes:
        tail = "" if count is None else ', "usage": ' + json.dumps(count)
        return (self._head + choices + tail + "}\n\n").encode()


def whole(
    call: Call,
    answer_id: str,
    created: int,
    model: str,
    text: str,
    reason: str,
    stop: str | None,
    count: Mapping[str, Any],
) -> dict[str, Any]:
    """The answer that is not streamed."""
    end = {"logprobs": None, "finish_reason": reason, "stop_reason": stop}
    if call.chat:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, **end}
    else:
        choice = {"index": 0, "text": text, **end}
    kind = "chat.completion" if call.chat else "text_completion"
    return {
        "id": answer_id, "object": kind, "created": created, "model": model, "choices": [choice], "usage": count,
    }  # fmt: skip
