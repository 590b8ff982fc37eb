"""From a checked call and its headers to requests of the engine.

The one idea: everything that turns a request away before it is in the line stands here, each refusal with its status.
It must not know wire forms or how answers are written.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from benchlab_engine.core.admission import Limits, Refusal, RefusalKind
from benchlab_engine.core.request import RequestSpec
from benchlab_engine.serve.call import PRIORITIES, Call
from benchlab_engine.serve.fields import WireError
from benchlab_engine.serve.tokens import Vocabulary
from benchlab_engine.sim.costs import parse_duration

Headers = Mapping[str, str]
_ID = re.compile(r"[\x21-\x7e]{1,200}")
_TENANT = re.compile(r"[\x20-\x7e]{0,200}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_DEFAULT_COMPLETION_TOKENS = 16  # the wire's own default for /v1/completions
_LONG_TEXT = 32_768  # characters from which on text is made into tokens beside the event loop


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the headers of a request say of it. deadline_ns: from now on, 0 none."""

    request_id: str
    tenant: str
    priority: int
    deadline_ns: int


def wishes_of(headers: Headers) -> Wishes:
    """The headers x-request-id, x-tenant, x-priority and x-deadline. WireError 400 names the one that is wrong."""
    request_id, tenant = headers.get("x-request-id", ""), headers.get("x-tenant", "")
    if request_id and not _ID.fullmatch(request_id):
        raise WireError(400, "x-request-id must be 1 to 200 printable ASCII characters", param="x-request-id")
    if not _TENANT.fullmatch(tenant):
        raise WireError(400, "x-tenant must be at most 200 printable ASCII characters", param="x-tenant")
    priority = headers.get("x-priority", "0").strip()
    if not _INTEGER.fullmatch(priority) or not PRIORITIES[0] <= int(priority) <= PRIORITIES[1]:
        raise WireError(400, "x-priority must be a 32-bit integer; lower goes first", param="x-priority")
    deadline = headers.get("x-deadline", "")
    try:
        deadline_ns = parse_duration(deadline) if deadline else 0
    except ValueError as error:
        raise WireError(400, f"x-deadline: {error}", param="x-deadline") from None
    if deadline and not 0 < deadline_ns < 2**62:
        raise WireError(400, "x-deadline must be longer than nothing, and a duration such as 2s", param="x-deadline")
    return Wishes(request_id or secrets.token_hex(12), tenant, int(priority), deadline_ns)


class Tenants:
    """How many answers each tenant has under way. limit 0: no limit. refused: counts those turned away."""

    def __init__(self, limit: int, refused: Counter[str]) -> None:
        self._limit = limit
        self._refused = refused
        self._live: Counter[str] = Counter()

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Hold one of the tenant's places. WireError 429 when all are taken."""
        if self._limit and self._live[tenant] >= self._limit:
            self._refused["tenant_limit"] += 1
            name = f"tenant {tenant!r}" if tenant else "the tenant without a name"
            raise WireError(
                429, f"{name} has {self._limit} requests under way, which is its limit; wait for one to end",
                "rate_limit_error", code="tenant_limit", retry_after=1,
            )  # fmt: skip
        self._live[tenant] += 1
        try:
            yield
        finally:
            self._live[tenant] -= 1
            if not self._live[tenant]:
                del self._live[tenant]


async def encode(vocabulary: Vocabulary, call: Call) -> list[int]:
    """The prompt's token ids. WireError 400 where it cannot be made into tokens."""
    length = len(call.prompt) + sum(len(str(message.get("content", ""))) for message in call.messages)
    try:
        if length < _LONG_TEXT:
            tokens = _encode(vocabulary, call)
        else:
            tokens = await asyncio.get_running_loop().run_in_executor(None, _encode, vocabulary, call)
    except ValueError as error:
        param = "messages" if call.is_chat else "prompt"
        raise WireError(400, f"the {param} cannot be made into tokens: {error}", param=param) from None
    if call.prompt_tokens and max(tokens) >= vocabulary.size:
        raise WireError(
            400, f"prompt has the token id {max(tokens)}; the vocabulary has {vocabulary.size} tokens", param="prompt"
        )
    return tokens


def _encode(vocabulary: Vocabulary, call: Call) -> list[int]:
    if call.is_chat:
        return vocabulary.encode_chat(call.messages)
    return list(call.prompt_tokens) or vocabulary.encode(call.prompt)


def specs_of(
    call: Call, prompt: list[int], wishes: Wishes, vocabulary: Vocabulary, limits: Limits, max_wait_ns: int, now_ns: int
) -> list[RequestSpec]:
    """One request for each choice; all but the first share the first one's prompt."""
    for token, _ in call.sampling.logit_bias:
        if token >= vocabulary.size:
            raise WireError(
                400, f"logit_bias has the token id {token}; the vocabulary has {vocabulary.size} tokens",
                param="logit_bias",
            )  # fmt: skip
    places = limits.max_seqs + limits.queue_limit
    if call.n > places:
        raise WireError(400, f"n={call.n} is more than the {places} requests this engine runs and queues", param="n")
    room = max(1, limits.room() - len(prompt))
    if limits.max_new_tokens:
        room = min(room, limits.max_new_tokens)
    default = room if call.is_chat else min(room, _DEFAULT_COMPLETION_TOKENS)
    length = max(default, call.min_tokens) if call.max_tokens is None else call.max_tokens
    seed = call.seed
    if seed is None:
        seed = secrets.randbits(62) if call.sampling.temperature > 0 else 0
    first = RequestSpec(
        request_id=wishes.request_id,
        prompt=tuple(prompt),
        max_new_tokens=length,
        sampling=replace(call.sampling, seed=seed),
        end_tokens=frozenset() if call.ignore_eos else vocabulary.end_tokens,
        salt=wishes.tenant,
        max_wait_ns=max_wait_ns,
        min_new_tokens=call.min_tokens,
        priority=wishes.priority if call.priority is None else call.priority,
        tenant=wishes.tenant,
        deadline_ns=now_ns + wishes.deadline_ns if wishes.deadline_ns else 0,
    )
    rest = [
        replace(
            first,
            request_id=f"{wishes.request_id}#{index}",
            sampling=replace(first.sampling, seed=seed + index),
            parent=wishes.request_id,
        )
        for index in range(1, call.n)
    ]
    return [first, *rest]


def refused(refusal: Refusal) -> WireError:
    """A refusal of the engine's door as an error. What can never be served is the caller's to change."""
    if refusal.kind is RefusalKind.QUEUE_FULL:
        return WireError(503, f"the queue is full: {refusal.message}", "overloaded", retry_after=1)
    code = "context_length_exceeded" if refusal.kind is RefusalKind.TOO_LONG else str(refusal.kind)
    param = "x-request-id" if refusal.kind is RefusalKind.DUPLICATE else None
    return WireError(400, refusal.message, param=param, code=code)
