"""The HTTP face: routes, errors, keys, and the way down.

The one idea: each route reads a request, calls one thing, and answers; every refusal is a JSON error in the form of
its wire. It must not know the runner or the scheduler's insides.
"""

from __future__ import annotations

import asyncio
import hmac
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from benchlab_engine.core.admission import Refusal
from benchlab_engine.core.request import FinishReason
from benchlab_engine.serve import wire_anthropic, wire_openai
from benchlab_engine.serve.answer import Desk, StreamedAnswer, WholeAnswer
from benchlab_engine.serve.call import Call, Wire
from benchlab_engine.serve.events_anthropic import AnthropicWire
from benchlab_engine.serve.events_openai import OpenAiWire
from benchlab_engine.serve.fields import WireError, parse_object
from benchlab_engine.serve.intake import Tenants, encode, refused, specs_of, wishes_of
from benchlab_engine.serve.pages import Pages, check_model
from benchlab_engine.sim.faults import NO_FAULT, Fault, parse_fault

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPENAI, _ANTHROPIC = OpenAiWire(), AnthropicWire()


@dataclass(frozen=True, slots=True)
class Face:
    """What the HTTP face is built from. max_wait_ns, tenant_limit: 0 is no limit. faults: may a header ask for some."""

    api_key: str = ""
    max_wait_ns: int = 0
    tenant_limit: int = 0
    max_body_bytes: int = 8 * 1024 * 1024
    body_limit_s: float = 60.0  # how long a body may take to arrive
    faults: bool = False
    default_fault: Fault = field(default=NO_FAULT)


class Server:
    """The routes over one mailbox."""

    def __init__(self, face: Face, desk: Desk) -> None:
        self._face = face
        self._desk = desk
        self._limits = desk.mailbox.engine.scheduler.config.limits()
        self._pages = Pages(desk, self._limits.max_model_len)
        self._tenants = Tenants(face.tenant_limit, desk.gauges.refused)

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=self._face.max_body_bytes, middlewares=[self._guard])
        posts = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completions,
            "/v1/messages": self._messages,
            "/v1/messages/count_tokens": self._count_tokens,
            "/tokenize": self._tokenize,
        }
        for path, handler in posts.items():
            app.router.add_post(path, handler, expect_handler=_expect)
        app.add_routes(self._pages.routes(_expect))
        app.router.add_route("*", "/{path:.*}", _nowhere, expect_handler=_expect)
        return app

    async def drain(self, limit_s: float) -> bool:
        """Refuse what is new and let the rest end; what has not by then is told so. True: everything ended itself."""
        self._pages.draining = True
        if await self._is_empty_within(limit_s):
            return True
        mailbox = self._desk.mailbox
        print(f"{len(mailbox.live)} answers were cut after {limit_s:g} s", file=sys.stderr, flush=True)  # noqa: T201
        for name in list(mailbox.live):
            mailbox.cancel(name, FinishReason.CANCELLED)
        await self._is_empty_within(1.0)
        return False

    async def _is_empty_within(self, limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        while self._desk.mailbox.live and time.monotonic() < end:  # noqa: ASYNC110  once in a life
            await asyncio.sleep(0.02)
        return not self._desk.mailbox.live

    # -- around every route -------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        wire: Wire = _ANTHROPIC if request.path.startswith("/v1/messages") else _OPENAI
        headers: Mapping[str, str] = {}
        try:
            self._check_key(request)
            return await handler(request)
        except WireError as caught:
            error = caught
        except web.HTTPRequestEntityTooLarge:
            error = WireError(413, f"the body is larger than {self._face.max_body_bytes} bytes", code="body_too_large")
        except web.HTTPException as caught_http:
            message = f"{request.method} {request.path}: {caught_http.reason}"
            error = WireError(caught_http.status, message, "not_found_error" if caught_http.status == 404 else "http")
            headers = {"allow": caught_http.headers["allow"]} if "allow" in caught_http.headers else {}
        except ConnectionError:
            return _gone()
        except Exception as unseen:
            traceback.print_exc()
            error = WireError(500, f"the server failed: {type(unseen).__name__}: {unseen}", "internal_error")
        return _error_response(wire, error, request.headers.get("x-request-id", ""), headers)

    def _check_key(self, request: web.Request) -> None:
        if not self._face.api_key or request.path in ("/health", "/ready"):
            return
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.headers.get("x-api-key", bearer)
        if not hmac.compare_digest(given.encode(errors="replace"), self._face.api_key.encode()):
            raise WireError(401, "the API key is missing or wrong", "authentication_error", code="invalid_api_key")

    async def _body(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._face.body_limit_s):
                return await request.read()
        except TimeoutError:
            raise WireError(
                408, f"the body did not arrive within {self._face.body_limit_s:g} s", "timeout", code="body_timeout"
            ) from None
        except web.RequestPayloadError as error:
            raise WireError(400, f"the body cannot be read: {error}", code="body_broken") from None

    # -- answers ------------------------------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _OPENAI, lambda raw: wire_openai.parse(raw, chat=True))

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _OPENAI, lambda raw: wire_openai.parse(raw, chat=False))

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _ANTHROPIC, wire_anthropic.parse)

    async def _answer(self, request: web.Request, wire: Wire, parse: Callable[[bytes], Call]) -> web.StreamResponse:
        desk, accepted_ns = self._desk, self._desk.mailbox.engine.clock()
        fault, wishes = self._fault_of(request), wishes_of(request.headers)
        call = parse(await self._body(request))
        check_model(call.model, desk.model)
        if fault.slow_start_ns:
            await asyncio.sleep(fault.slow_start_ns / 1e9)
        if fault.status:
            raise WireError(fault.status, "fault asked for", "fault", retry_after=1)
        prompt = await encode(desk.vocabulary, call)
        self._check_open()
        specs = specs_of(call, prompt, wishes, desk.vocabulary, self._limits, self._face.max_wait_ns, accepted_ns)
        with self._tenants.place(wishes.tenant):
            tickets = desk.mailbox.submit(specs, accepted_ns)
            if isinstance(tickets, Refusal):
                desk.gauges.refused[tickets.kind] += 1
                raise refused(tickets)
            prefix = self._text_of(prompt) if call.echo else ""
            if not call.stream:
                return await WholeAnswer(desk, wire, call, tickets, fault, prefix).send()
            return await StreamedAnswer(desk, wire, call, tickets, fault, prefix).send(request) or _gone()

    def _text_of(self, tokens: list[int]) -> str:
        stream = self._desk.vocabulary.stream()
        return "".join([stream.push(token) for token in tokens]) + stream.flush()

    def _check_open(self) -> None:
        mailbox = self._desk.mailbox
        if self._pages.draining:
            self._desk.gauges.refused["draining"] += 1
            raise WireError(503, "the server is shutting down", "overloaded", retry_after=5)
        if mailbox.broken:
            raise WireError(500, f"the engine has failed: {mailbox.failure}", "internal_error")

    def _fault_of(self, request: web.Request) -> Fault:
        text = request.headers.get("x-benchlab-fault")
        if not text:
            return self._face.default_fault
        if not self._face.faults:
            raise WireError(
                400, "faults are not allowed here; start the engine with --allow-faults", param="x-benchlab-fault"
            )
        try:
            return parse_fault(text)
        except ValueError as error:
            raise WireError(400, str(error), param="x-benchlab-fault") from None

    # -- counting -----------------------------------------------------------------------------------------------

    async def _count_tokens(self, request: web.Request) -> web.Response:
        call = wire_anthropic.parse(await self._body(request), counting=True)
        check_model(call.model, self._desk.model)
        return web.json_response({"input_tokens": len(await encode(self._desk.vocabulary, call))})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = parse_object(await self._body(request))
        call = wire_openai.parse_prompt(body)
        check_model(call.model, self._desk.model)
        tokens = await encode(self._desk.vocabulary, call)
        return web.json_response({"count": len(tokens), "max_model_len": self._limits.max_model_len, "tokens": tokens})


async def _expect(request: web.Request) -> None:
    """Answer "Expect: 100-continue"; any other expectation is no concern of ours."""
    if request.headers.get("expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _nowhere(request: web.Request) -> web.StreamResponse:
    """Whatever no route takes: 405 where another method would do, else 404."""
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        if resource.canonical != "/{path}":
            allowed |= (await resource.resolve(request))[1]
    if allowed:
        raise web.HTTPMethodNotAllowed(request.method, sorted(allowed))
    raise web.HTTPNotFound


def _gone() -> web.Response:
    """For a client that has gone: nobody sees it."""
    return web.Response(status=499)


def _error_response(wire: Wire, error: WireError, request_id: str, headers: Mapping[str, str]) -> web.Response:
    echoed = request_id if request_id.isascii() and request_id.isprintable() else ""
    status, body = wire.error(error, echoed)
    out = {**headers, **({"x-request-id": echoed} if echoed else {})}
    if error.retry_after is not None:
        out["retry-after"] = str(error.retry_after)
    response = web.Response(body=body, status=status, content_type="application/json", headers=out)
    if error.status in (408, 413) or error.code == "body_broken":
        response.force_close()  # the rest of the body has not been read
    return response
