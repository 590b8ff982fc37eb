"""The OpenAI wire form, inwards: a body becomes a Call.

The one idea: every known field is checked here, once, and named when it is wrong; unknown fields are ignored. It must
not know the engine, the tokenizer or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchlab_engine.core.plan import Sampling
from benchlab_engine.serve.call import MAX_CHOICES, MAX_STOPS, MAX_TOP_LOGPROBS, PRIORITIES, SEEDS, Call
from benchlab_engine.serve.fields import (
    Body,
    WireError,
    flag,
    integer,
    logit_bias,
    number,
    parse_object,
    refuse_unsupported,
    shown,
    table,
    text,
    texts,
)

# What this engine does not do, and the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prompt_logprobs": (),
    "use_beam_search": (False,),
}
_ROLES = ("system", "developer", "user", "assistant", "tool")


def parse(raw: bytes, chat: bool) -> Call:
    """A body of /v1/chat/completions (chat) or /v1/completions. WireError 400 names the field and what is expected."""
    body = parse_object(raw)
    refuse_unsupported(body, _NEUTRAL)
    n = integer(body, "n", 1, 1, MAX_CHOICES)
    if body.get("best_of") not in (None, n):
        raise WireError(
            400, f"best_of={shown(body['best_of'])} is not supported by this engine beyond n", param="best_of"
        )
    messages, prompt, tokens = (), "", ()  # type: tuple[Mapping[str, Any], ...], str, tuple[int, ...]
    if chat:
        messages = _messages(body)
    else:
        prompt, tokens = _prompt(body)
    streams = flag(body, "stream")
    options = table(body, "stream_options")
    include_usage, continuous = flag(options, "include_usage"), flag(options, "continuous_usage_stats")
    limit = _max_tokens(body)
    logprobs = _logprobs(body, chat)
    echo = not chat and flag(body, "echo")
    if echo and logprobs is not None:
        raise WireError(400, "echo together with logprobs is not supported by this engine", param="echo")
    return Call(
        is_chat=chat,
        model=text(body, "model"),
        messages=messages,
        prompt=prompt,
        prompt_tokens=tokens,
        max_tokens=limit,
        min_tokens=min_tokens(body, limit),
        stream=streams,
        include_usage=streams and include_usage,
        continuous_usage=streams and continuous,
        stop=texts(body, "stop", MAX_STOPS),
        sampling=sampling(body, logprobs),
        seed=None if body.get("seed") is None else integer(body, "seed", 0, *SEEDS),
        n=n,
        echo=echo,
        ignore_eos=flag(body, "ignore_eos"),
        priority=None if body.get("priority") is None else integer(body, "priority", 0, *PRIORITIES),
    )


def parse_prompt(body: Body) -> Call:
    """Only what is to become tokens: messages, or a prompt."""
    model = text(body, "model")
    if "messages" in body:
        return Call(is_chat=True, model=model, messages=_messages(body))
    prompt, tokens = _prompt(body)
    return Call(is_chat=False, model=model, prompt=prompt, prompt_tokens=tokens)


def sampling(body: Body, logprobs: int | None) -> Sampling:
    """The fields that say how a token is drawn, without the seed. Every wire form takes them."""
    return Sampling(
        temperature=number(body, "temperature", 1.0, 0.0, 100.0),
        top_k=max(0, integer(body, "top_k", 0, -1)),
        top_p=number(body, "top_p", 1.0, 1e-9, 1.0),
        min_p=number(body, "min_p", 0.0, 0.0, 1.0),
        presence_penalty=number(body, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        repetition_penalty=number(body, "repetition_penalty", 1.0, 0.01, 100.0),
        logit_bias=logit_bias(body),
        logprobs=logprobs,
    )


def min_tokens(body: Body, limit: int | None) -> int:
    """min_tokens, not above max_tokens."""
    least = integer(body, "min_tokens", 0, 0)
    if limit is not None and least > limit:
        raise WireError(400, f"min_tokens {least} is above max_tokens {limit}", param="min_tokens")
    return least


def _max_tokens(body: Body) -> int | None:
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    return None if body.get(name) is None else integer(body, name, 1, 1)


def _logprobs(body: Body, chat: bool) -> int | None:
    if not chat:
        unasked = body.get("logprobs") is None or body["logprobs"] is False  # 0 asks for the chosen token's alone
        return None if unasked else integer(body, "logprobs", 0, 0, MAX_TOP_LOGPROBS)
    wanted = flag(body, "logprobs")
    count = integer(body, "top_logprobs", 0, 0, MAX_TOP_LOGPROBS)
    if count and not wanted:
        raise WireError(400, "top_logprobs needs logprobs=true", param="top_logprobs")
    return count if wanted else None


def _messages(body: Body) -> tuple[Mapping[str, Any], ...]:
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


def _prompt(body: Body) -> tuple[str, tuple[int, ...]]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt, ()
    if isinstance(prompt, list) and prompt and all(type(each) is int and 0 <= each < 2**31 for each in prompt):
        return "", tuple(prompt)
    raise WireError(400, "prompt must be one text or one list of token ids, not empty", param="prompt")
