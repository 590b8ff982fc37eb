"""The Anthropic wire form, inwards: a body of /v1/messages becomes a Call.

The one idea: a system text and blocks of text are folded into the messages of a chat; what this engine cannot do
(tools, images, thinking) is refused by name. Sampling fields of the OpenAI form are taken here too. It must not know
the engine, the tokenizer or HTTP.
"""

from __future__ import annotations

from typing import Any

from benchlab_engine.serve.call import MAX_STOPS, PRIORITIES, SEEDS, Call
from benchlab_engine.serve.fields import (
    Body,
    WireError,
    flag,
    integer,
    parse_object,
    refuse_unsupported,
    shown,
    text,
    texts,
)
from benchlab_engine.serve.wire_openai import min_tokens, sampling

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ({"type": "none"}, {"type": "auto"}),
    "mcp_servers": ([],),
    "container": (),
    "thinking": ({"type": "disabled"},),
    "output_config": ({},),
    "n": (1,),
    "logprobs": (False,),
}
_ROLES = ("user", "assistant")


def parse(raw: bytes, counting: bool = False) -> Call:
    """A body of /v1/messages. counting: of /v1/messages/count_tokens, which generates nothing and so has no length."""
    body = parse_object(raw)
    refuse_unsupported(body, _NEUTRAL)
    messages = [*_system(body), *_messages(body)]
    if body.get("max_tokens") is None and not counting:
        raise WireError(400, "max_tokens is required: the most tokens to generate", param="max_tokens")
    limit = integer(body, "max_tokens", 1, 1)
    return Call(
        is_chat=True,
        model=text(body, "model"),
        messages=tuple(messages),
        max_tokens=limit,
        min_tokens=min_tokens(body, limit),
        stream=flag(body, "stream"),
        stop=texts(body, "stop_sequences", MAX_STOPS),
        sampling=sampling(body, None),
        seed=None if body.get("seed") is None else integer(body, "seed", 0, *SEEDS),
        ignore_eos=flag(body, "ignore_eos"),
        priority=None if body.get("priority") is None else integer(body, "priority", 0, *PRIORITIES),
    )


def _system(body: Body) -> list[dict[str, Any]]:
    system = body.get("system")
    if system is None or system in ("", []):
        return []
    return [{"role": "system", "content": _text_of(system, "system")}]


def _messages(body: Body) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise WireError(400, "messages must be a list of at least one message", param="messages")
    out: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise WireError(400, f"{where} must be an object whose role is user or assistant", param=where)
        out.append({"role": message["role"], "content": _text_of(message.get("content"), f"{where}.content")})
    return out


def _text_of(content: Any, where: str) -> str:
    """A text, or blocks of text joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise WireError(400, f"{where} must be a text or a list of blocks, not {shown(content)}", param=where)
    parts: list[str] = []
    for index, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind != "text":
            raise WireError(
                400, f"{where}[{index}]: blocks of type {shown(kind)} are not supported, only text", param=where
            )
        if not isinstance(block.get("text"), str):
            raise WireError(400, f"{where}[{index}].text must be a text", param=where)
        parts.append(block["text"])
    return "".join(parts)
