"""The HTTP face: routes, errors, keys, and the way down.

The one idea: each route reads a request, calls one thing, and answers; every refusal is a JSON error in the wire's
form. It must not know the runner or the scheduler's insides.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from benchlab_engine.core.admission import Refusal, RefusalKind
from benchlab_engine.core.plan import Sampling
from benchlab_engine.core.request import RequestSpec
from benchlab_engine.serve.answer import Answer, dump, error_response, times_of
from benchlab_engine.serve.gauges import Gauges
from benchlab_engine.serve.mailbox import Mailbox
from benchlab_engine.serve.tokens import Vocabulary
from benchlab_engine.serve.wire_openai import Call, WireError, parse, parse_object
from benchlab_engine.sim.faults import NO_FAULT, Fault, parse_fault

_ID = re.compile(r"[\x21-\x7e]{1,200}")
_DEFAULT_COMPLETION_TOKENS = 16  # the wire's own default for /v1/completions
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Face:
    """What the HTTP face is built from. max_wait_ns: 0 is no limit. faults: may a header ask for misbehaviour."""

    model: str
    vocabulary: Vocabulary
    ledger: Mapping[str, int]
    api_key: str = ""
    max_wait_ns: int = 0
    max_body_bytes: int = 8 * 1024 * 1024
    faults: bool = False
    default_fault: Fault = field(default=NO_FAULT)


class Server:
    """The routes over one mailbox."""

    def __init__(self, face: Face, mailbox: Mailbox, gauges: Gauges) -> None:
        self._face = face
        self._mailbox = mailbox
        self._gauges = gauges
        self._limits = mailbox.engine.scheduler.config.limits()
        self._started = int(time.time())
        self.draining = False

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=self._face.max_body_bytes, middlewares=[self._guard])
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completions),
                web.get("/v1/models", self._models),
                web.post("/tokenize", self._tokenize),
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/metrics", self._metrics),
                web.get("/timeline/{request_id}", self._timeline_of),
                web.get("/timeline", self._timeline),
                web.get("/journal", self._journal),
            ]
        )
        return app

    async def drain(self, limit_s: float) -> bool:
        """Refuse what is new and let the rest end. True: everything has."""
        self.draining = True
        end = time.monotonic() + limit_s
        while self._mailbox.live and time.monotonic() < end:  # noqa: ASYNC110  once in a life
            await asyncio.sleep(0.02)
        return not self._mailbox.live

    # -- around every route -------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            self._check_key(request)
            return await handler(request)
        except WireError as error:
            return error_response(error, request.headers.get("x-request-id", ""))
        except web.HTTPRequestEntityTooLarge:
            limit = self._face.max_body_bytes
            return error_response(WireError(413, f"the body is larger than {limit} bytes", code="body_too_large"))
        except web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}"
            return error_response(
                WireError(error.status, message, "not_found_error" if error.status == 404 else "http")
            )

    def _check_key(self, request: web.Request) -> None:
        if not self._face.api_key or request.path in ("/health", "/ready"):
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._face.api_key.encode()):
            raise WireError(401, "the API key is missing or wrong", "authentication_error", code="invalid_api_key")

    # -- answers ------------------------------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: web.Request, chat: bool) -> web.StreamResponse:
        accepted_ns = self._mailbox.engine.clock()
        fault = self._fault_of(request)
        call = parse(await request.read(), chat)
        self._check_model(call.model)
        if fault.slow_start_ns:
            await asyncio.sleep(fault.slow_start_ns / 1e9)
        if fault.status:
            raise WireError(fault.status, "fault asked for", "fault", retry_after=1)
        if self.draining:
            self._gauges.refused["draining"] += 1
            raise WireError(503, "the server is shutting down", "overloaded", retry_after=5)
        if self._mailbox.broken:
            raise WireError(500, f"the engine has failed: {self._mailbox.failure}", "internal_error")
        spec = self._spec(call, request)
        ticket = self._mailbox.submit(spec, accepted_ns)
        if isinstance(ticket, Refusal):
            self._gauges.refused[ticket.kind] += 1
            raise _refused(ticket)
        face = self._face
        answer = Answer(call, ticket, self._mailbox, self._gauges, face.vocabulary.stream(), face.model, fault)
        return await (answer.send_stream(request) if call.stream else answer.send_whole())

    def _spec(self, call: Call, request: web.Request) -> RequestSpec:
        prompt = self._encode(call)
        room = max(1, self._limits.room() - len(prompt))
        default = room if call.chat else min(room, _DEFAULT_COMPLETION_TOKENS)
        seed = call.seed
        if seed is None:
            seed = secrets.randbits(63) if call.temperature > 0 else 0
        return RequestSpec(
            request_id=_request_id(request),
            prompt=tuple(prompt),
            max_new_tokens=default if call.max_tokens is None else call.max_tokens,
            sampling=Sampling(call.temperature, call.top_k, call.top_p, seed),
            end_tokens=frozenset() if call.ignore_eos else self._face.vocabulary.end_tokens,
            salt=request.headers.get("x-tenant", ""),
            max_wait_ns=self._face.max_wait_ns,
            min_new_tokens=call.min_tokens,
        )

    def _encode(self, call: Call) -> list[int]:
        try:
            if call.chat:
                return self._face.vocabulary.encode_chat(call.messages)
            return list(call.prompt_tokens) or self._face.vocabulary.encode(call.prompt)
        except ValueError as error:
            raise WireError(400, str(error), param="messages") from None

    def _check_model(self, name: str) -> None:
        if name and name != self._face.model:
            raise WireError(
                404, f"the model {name!r} is not served here; this server has {self._face.model!r}",
                "not_found_error", "model", "model_not_found",
            )  # fmt: skip

    def _fault_of(self, request: web.Request) -> Fault:
        text = request.headers.get("x-benchlab-fault")
        if not text:
            return self._face.default_fault
        if not self._face.faults:
            raise WireError(400, "faults are not allowed here; start the engine with --allow-faults", param="header")
        try:
            return parse_fault(text)
        except ValueError as error:
            raise WireError(400, str(error), param="x-benchlab-fault") from None

    # -- the rest -----------------------------------------------------------------------------------------------

    async def _models(self, _: web.Request) -> web.Response:
        card = {
            "id": self._face.model, "object": "model", "created": self._started, "owned_by": "benchlab",
            "max_model_len": self._limits.max_model_len,
        }  # fmt: skip
        return web.json_response({"object": "list", "data": [card]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = parse_object(await request.read())
        chat = "messages" in body
        call = parse(dump(body | {"max_tokens": 1}).encode(), chat)
        self._check_model(call.model)
        tokens = self._encode(call)
        return web.json_response({"count": len(tokens), "max_model_len": self._limits.max_model_len, "tokens": tokens})

    async def _health(self, _: web.Request) -> web.Response:
        if self._mailbox.broken:
            return web.json_response({"status": "failed", "reason": self._mailbox.failure}, status=500)
        return web.json_response({"status": "live"})

    async def _ready(self, _: web.Request) -> web.Response:
        status = "failed" if self._mailbox.broken else "draining" if self.draining else "ready"
        return web.json_response({"status": status}, status=200 if status == "ready" else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        pending = max(0, len(self._mailbox.live) - len(self._mailbox.engine.scheduler.requests))
        return web.Response(text=self._gauges.render(not self.draining, pending), content_type="text/plain")

    async def _timeline_of(self, request: web.Request) -> web.Response:
        name = request.match_info["request_id"]
        ticket = self._mailbox.past.get(name) or self._mailbox.live.get(name)
        if ticket is None:
            raise WireError(404, f"no request {name!r} is known", "not_found_error")
        return web.json_response(times_of(ticket))

    async def _timeline(self, request: web.Request) -> web.Response:
        since = _whole_number(request, "since")
        tickets = [each for each in self._mailbox.past.values() if (each.times.released or 0) >= since]
        clock = {"now_ns": self._mailbox.engine.clock(), "wall_ns": time.time_ns()}
        return web.Response(
            text=dump({**clock, "requests": [times_of(each) for each in tickets]}), content_type="application/json"
        )

    async def _journal(self, request: web.Request) -> web.Response:
        since = _whole_number(request, "since")
        rows: list[dict[str, Any]] = [
            asdict(row) for row in list(self._mailbox.engine.journal.rows) if row.number > since
        ]
        return web.Response(text=dump({"steps": rows}), content_type="application/json")


def _whole_number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    if not text.isdecimal():
        raise WireError(400, f"{name} must be a whole number, not {text!r}", param=name)
    return int(text)


def _request_id(request: web.Request) -> str:
    given = request.headers.get("x-request-id", "")
    if not given:
        return secrets.token_hex(12)
    if not _ID.fullmatch(given):
        raise WireError(400, "x-request-id must be 1 to 200 printable ASCII characters", param="x-request-id")
    return given


def _refused(refusal: Refusal) -> WireError:
    if refusal.kind is RefusalKind.QUEUE_FULL:
        return WireError(503, f"the queue is full: {refusal.message}", "overloaded", retry_after=1)
    code = "context_length_exceeded" if refusal.kind is RefusalKind.TOO_LONG else str(refusal.kind)
    return WireError(400, refusal.message, code=code)
