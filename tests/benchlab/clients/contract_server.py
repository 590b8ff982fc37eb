"""A small endpoint for the contract's tests: keeps it in all three APIs, or breaks it in one way by name."""

from __future__ import annotations

import json
from typing import Any

from tests.support.stub_server import DONE, Request, Script, answer, event, sse

WORDS = ["one", " two", " three", " four", " five", " six", " seven", " eight", " nine", " ten", " eleven", " twelve"]
KEY = "sk-right"
PROMPT_TOKENS = 7


class Endpoint:
    """Callable as StubServer's answers. `fault`: '' or one of the names below. `key`: one is demanded."""

    def __init__(self, fault: str = "", *, key: bool = False) -> None:
        self.fault, self.key = fault, key

    def __call__(self, request: Request) -> Script:
        path = request.head.split()[1].decode()
        if path == "/v1/models":
            names = [] if self.fault == "model not listed" else ["m"]
            return reply("200 OK", {"data": [{"id": name} for name in names]})
        if self.fault == "no messages" and path == "/v1/messages":
            return reply("404 Not Found", {"error": {"message": "no such path"}})
        if path == "/tokenize":
            if self.fault == "no tokenize":
                return reply("404 Not Found", {"detail": "Not Found"})
            return reply("200 OK", {"count": PROMPT_TOKENS + 5 * (self.fault == "counts differ")})
        if self.key and KEY.encode() not in request.head and self.fault != "any key":
            return reply("401 Unauthorized", {"error": {"message": "wrong key"}})
        return self.generate(path, request.json)

    def generate(self, path: str, body: dict[str, Any]) -> Script:
        limit = body.get("max_tokens")
        if not isinstance(limit, int) and self.fault != "any field":
            return reply("400 Bad Request", {"error": {"message": "max_tokens must be an integer"}})
        if body["model"] != "m" and self.fault != "any model":
            return reply("404 Not Found", {"error": {"message": "no such model"}})
        limit = limit if isinstance(limit, int) else 4
        words = WORDS if self.fault == "ignores max_tokens" else (WORDS * (limit // len(WORDS) + 1))[:limit]
        stops = body.get("stop") or body.get("stop_sequences") or []
        text, reason = "".join(words), "length"
        for stop in stops if self.fault != "ignores stop" else []:
            if stop in text:
                words, reason = _spelled(text[: text.index(stop)]), "stop"
        if not body.get("stream"):
            return reply("200 OK", {"choices": []})
        events = (
            messages(words, reason, self.fault) if path == "/v1/messages" else openai(path, words, reason, self.fault)
        )
        return sse(*[(0.0 if limit < 100 else 0.002 * n, data) for n, data in enumerate(events)], then=self.then)

    @property
    def then(self) -> Any:
        return "close" if self.fault == "closes" else "keep"


def _spelled(text: str) -> list[str]:
    """Events that spell this beginning of an answer."""
    out: list[str] = []
    for word in WORDS:
        if text:
            out.append(text[: len(word)])
            text = text[len(word) :]
    return out


def reply(status: str, document: object) -> Script:
    return answer(status, json.dumps(document).encode())


def openai(path: str, words: list[str], reason: str, fault: str) -> list[bytes]:
    chat = path == "/v1/chat/completions"

    def piece(text: str, finish: str | None = None, role: bool = False) -> bytes:
        inner: dict[str, Any] = (
            {"delta": {"content": text} | ({"role": "assistant"} if role else {})} if chat else {"text": text}
        )
        return event({"choices": [{"index": 0, "finish_reason": finish, **inner}]})

    if fault == "no text":
        words = []
    out = [piece("", role=True)] if chat else []
    out += [piece(word) for word in words]
    if fault != "no finish":
        out.append(piece("", reason))
    if fault == "text after finish":
        out.append(piece(" more"))
    if fault != "no usage":
        tokens = len(words) - 3 if fault == "counts too few" else len(words)
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": max(tokens, 0)}
        out.append(event({"choices": [], "usage": usage}))
    return out if fault == "no done" else [*out, DONE]


def messages(words: list[str], reason: str, fault: str) -> list[bytes]:
    def named(kind: str, **more: Any) -> bytes:
        return event({"type": kind, **more}, name=kind)

    usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": 1}
    start = named("message_start", message={"role": "assistant", "content": [], "usage": usage})
    block = named("content_block_start", index=0, content_block={"type": "text", "text": ""})
    texts = [named("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in words]
    stop = "max_tokens" if reason == "length" else "stop_sequence"
    last = named("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": len(words)})
    if fault == "block not opened":
        return [start, *texts, named("content_block_stop", index=0), last, named("message_stop")]
    if fault == "block not closed":
        return [start, block, *texts, last, named("message_stop")]
    closed = [start, block, named("ping"), *texts, named("content_block_stop", index=0), last]
    return [*closed[1:], named("message_stop")] if fault == "no start" else [*closed, named("message_stop")]
