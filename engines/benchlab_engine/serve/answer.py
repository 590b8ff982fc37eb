"""One answer: news of a request in, events or one body out.

The one idea: a token's way from the mailbox to the socket (detokenise, stop strings, one event, one write) is one
loop, and leaving it for any reason cancels the request. It must not know how tokens are made.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from benchlab_engine.core.request import FinishReason
from benchlab_engine.serve.gauges import Gauges
from benchlab_engine.serve.mailbox import Mailbox, Ticket
from benchlab_engine.serve.stops import StopFilter
from benchlab_engine.serve.tokens import TextStream
from benchlab_engine.serve.wire_openai import Call, EventWriter, WireError, usage, whole
from benchlab_engine.sim.faults import Fault


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token brought. text may be empty. finish: the wire's word, on the last piece only."""

    text: str
    is_token: bool
    finish: str | None = None
    stop: str | None = None


class Answer:
    """Everything one answer needs, and its count of tokens."""

    def __init__(
        self,
        call: Call,
        ticket: Ticket,
        mailbox: Mailbox,
        gauges: Gauges,
        decoder: TextStream,
        model: str,
        fault: Fault,
    ) -> None:
        self._call = call
        self._ticket = ticket
        self._mailbox = mailbox
        self._gauges = gauges
        self._decoder = decoder
        self._filter = StopFilter(call.stop)
        self._model = model
        self._fault = fault
        self._id = ("chatcmpl-" if call.chat else "cmpl-") + ticket.spec.request_id
        self._created = int(time.time())
        self._count = 0

    async def send_whole(self) -> web.StreamResponse:
        """The answer as one JSON body."""
        text, last = [], Piece("", False)
        try:
            async for piece in self._pieces():
                text.append(piece.text)
                last = piece
        finally:
            self._mailbox.cancel(self._ticket.spec.request_id, FinishReason.CANCELLED)
        body = whole(
            self._call, self._id, self._created, self._model, "".join(text), last.finish or "stop", last.stop,
            self._usage(),
        )  # fmt: skip
        if self._fault.status:
            raise WireError(self._fault.status, "fault asked for", "fault")
        self._written()
        return web.json_response(body, headers={"x-request-id": self._ticket.spec.request_id})

    async def send_stream(self, request: web.Request) -> web.StreamResponse:
        """The answer as server-sent events, one a token. The head goes out with the first of them."""
        response = web.StreamResponse(
            headers={
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "x-request-id": self._ticket.spec.request_id,
            }
        )
        events = EventWriter(self._call, self._id, self._created, self._model)
        started = False
        try:
            async for piece in self._pieces():
                if not started:
                    await response.prepare(request)
                    started = True
                    if self._call.chat:
                        await self._write(response, events.role())
                await self._send(request, response, events, piece)
            if self._call.include_usage:
                await self._write(response, events.usage(self._usage()))
            if not self._fault.no_done:
                await self._write(response, events.DONE)
        except WireError as error:
            if not started:
                raise
            await self._write(response, events.error(error))
        except (ConnectionResetError, _CutError):
            return response
        finally:
            self._mailbox.cancel(self._ticket.spec.request_id, FinishReason.CANCELLED)
        await response.write_eof()
        return response

    async def _send(
        self, request: web.Request, response: web.StreamResponse, events: EventWriter, piece: Piece
    ) -> None:
        """One piece as one event; the end as another, unless the piece is nothing but the end."""
        fault = self._fault
        count = self._usage() if self._call.continuous_usage else None
        if piece.is_token:
            if fault.stall_at == self._count:
                await asyncio.sleep(fault.stall_ns / 1e9)
            if fault.reset_at == self._count:
                _reset(request)
                raise _CutError
            if fault.error_at == self._count:
                raise WireError(500, "fault asked for", "fault")
            await self._write(response, events.text(piece.text, count))
            self._written()
        if piece.finish is not None and not fault.no_finish:
            text = "" if piece.is_token else piece.text
            await self._write(response, events.finish(piece.finish, piece.stop, text, count))

    async def _write(self, response: web.StreamResponse, event: bytes) -> None:
        if not self._fault.drip_ns:
            await response.write(event)
            return
        for index in range(len(event)):
            await response.write(event[index : index + 1])
            await asyncio.sleep(self._fault.drip_ns / 1e9)

    def _written(self) -> None:
        self._ticket.times.token_written.append(self._mailbox.engine.clock())

    async def _pieces(self) -> AsyncIterator[Piece]:
        """The answer piece by piece. The last has a finish reason. WireError where the engine gave up."""
        while True:
            news = await self._ticket.news.get()
            at_end = news.finish is FinishReason.STOP
            text = ""
            if news.token is not None:
                self._count += 1
                self._gauges.generation_tokens += 1
                text = self._filter.push("" if at_end else self._decoder.push(news.token))
            if self._filter.hit is not None:
                self._mailbox.cancel(self._ticket.spec.request_id, FinishReason.STOP)
                yield Piece(text, True, "stop", self._filter.hit)
                return
            if news.finish is None:
                yield Piece(text, True)
            elif news.finish in (FinishReason.STOP, FinishReason.LENGTH):
                rest = self._filter.push(self._decoder.flush())
                stop = self._filter.hit
                rest += self._filter.flush()
                reason = "length" if news.finish is FinishReason.LENGTH and stop is None else "stop"
                yield Piece(text + rest, not at_end, reason, stop)
                return
            else:
                raise self._gave_up(news.finish)

    def _gave_up(self, reason: FinishReason) -> WireError:
        if reason is FinishReason.EXPIRED:
            return WireError(503, "the request waited longer than its wait budget", "overloaded", retry_after=1)
        if reason is FinishReason.CANCELLED:
            return WireError(503, "the request was cancelled by the server", "cancelled")
        return WireError(500, f"the engine failed: {self._mailbox.failure}", "internal_error")

    def _usage(self) -> dict[str, Any]:
        spec = self._ticket.spec
        return usage(len(spec.prompt), self._count + self._fault.usage_offset, self._ticket.num_cached)


def _reset(request: web.Request) -> None:
    """Cut the connection so that the client sees a reset, not an orderly end."""
    if request.transport is None:
        return
    number = request.transport.get_extra_info("socket").fileno()
    with socket.socket(fileno=os.dup(number)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()


class _CutError(Exception):
    """The connection was cut on purpose."""


def error_response(error: WireError, request_id: str = "") -> web.Response:
    """A WireError as an HTTP answer."""
    headers: dict[str, str] = {"x-request-id": request_id} if request_id else {}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    return web.Response(body=error.encode(), status=error.status, content_type="application/json", headers=headers)


def times_of(ticket: Ticket) -> Mapping[str, Any]:
    """The engine's own times of one request as JSON values, ns of the engine's monotonic clock."""
    times = ticket.times
    return {
        "request_id": ticket.spec.request_id,
        "clock": "monotonic_ns",
        "accepted": times.accepted,
        "queued": times.queued,
        "admitted": times.admitted,
        "prefill_start": times.prefill_start,
        "prefill_end": times.prefill_end,
        "token_ready": times.token_ready,
        "token_written": times.token_written,
        "released": times.released,
        "preempted": times.preempted,
        "resumed": times.resumed,
        "prompt_tokens": len(ticket.spec.prompt),
        "cached_tokens": ticket.num_cached,
        "output_tokens": ticket.num_tokens,
        "finish_reason": ticket.finish,
    }


def dump(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"))
