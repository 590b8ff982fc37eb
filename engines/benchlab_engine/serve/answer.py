"""One answer: news of its requests in, events or one body out.

The one idea: the mailbox calls the answer with each piece of news, and the event is on its way to the socket before
that call returns: no queue, no task switch. Leaving `send` for any reason cancels what still runs. It must not know
how tokens are made, nor a wire form's words.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import web

from benchlab_engine.core.request import FinishReason
from benchlab_engine.core.scheduler import Emission
from benchlab_engine.serve.call import Call, Piece, Usage, Wire
from benchlab_engine.serve.choice import Choice
from benchlab_engine.serve.fields import WireError
from benchlab_engine.serve.gauges import Gauges
from benchlab_engine.serve.mailbox import Mailbox
from benchlab_engine.serve.outlet import Outlet
from benchlab_engine.serve.spoil import CutError, SpoiledOutlet
from benchlab_engine.serve.ticket import Ticket
from benchlab_engine.serve.tokens import Vocabulary
from benchlab_engine.sim.faults import NO_FAULT, Fault


@dataclass(frozen=True, slots=True)
class Desk:
    """What every answer of a server needs. max_unread_*: what a client may leave unread before it is given up."""

    model: str
    vocabulary: Vocabulary
    mailbox: Mailbox
    gauges: Gauges
    max_unread_bytes: int = 256 * 1024
    max_unread_tokens: int = 4096


class Answer:
    """The choices of one call, and how they end. Made in the same turn of the event loop as its tickets."""

    def __init__(
        self, desk: Desk, wire: Wire, call: Call, tickets: Sequence[Ticket], fault: Fault, prefix: str = ""
    ) -> None:
        self._desk = desk
        self._wire = wire
        self._call = call
        self._fault = fault
        self._id = tickets[0].spec.request_id
        self._created = int(time.time())
        self._choices = [Choice(index, call, ticket, desk.vocabulary, prefix) for index, ticket in enumerate(tickets)]
        for choice in self._choices:
            choice.ticket.listener = partial(self._news, choice)
        self._left = len(self._choices)
        self._count = 0  # tokens of all choices
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: WireError | None = None

    def _news(self, choice: Choice, emission: Emission) -> None:
        if choice.is_done or self._done.done():
            return
        try:
            if emission.token is not None:
                self._desk.gauges.generation_tokens += 1
                self._count += 1
            piece = choice.take(emission)
            if piece is None:
                assert emission.finish is not None
                self._give_up(self._reason(emission.finish, choice.ticket))
                return
            if piece.stop is not None:
                choice.ticket.is_stopped = True
                self._desk.mailbox.cancel(emission.request_id, FinishReason.STOP)
            if piece.finish is not None:
                self._left -= 1
            self._show(choice, piece)
            if not self._left:
                self._end()
        except Exception as error:  # one answer's fault must not keep the others of this step from their news
            traceback.print_exc()
            self._give_up(WireError(500, f"the answer failed: {type(error).__name__}: {error}", "internal_error"))

    def _show(self, choice: Choice, piece: Piece) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _give_up(self, error: WireError, reason: FinishReason = FinishReason.CANCELLED) -> None:
        if self._error is None and not self._done.done():
            self._error = error
            self._cancel(reason)
            self._done.set_result(None)

    def _cancel(self, reason: FinishReason) -> None:
        for choice in self._choices:
            self._desk.mailbox.cancel(choice.ticket.spec.request_id, reason)

    def _usage(self, count: int | None = None) -> Usage:
        first = self._choices[0].ticket
        completion = (self._count if count is None else count) + self._fault.usage_offset
        return Usage(first.num_prompt, completion, first.num_cached)

    def _reason(self, reason: FinishReason, ticket: Ticket) -> WireError:
        """An end that is no answer, as an error."""
        mailbox = self._desk.mailbox
        late = ticket.spec.deadline_ns and mailbox.engine.clock() >= ticket.spec.deadline_ns
        if reason is FinishReason.DEADLINE or (reason is FinishReason.EXPIRED and late):
            return WireError(
                504, "the request's deadline passed before its answer was whole", "timeout", code="deadline"
            )
        if reason is FinishReason.EXPIRED:
            return WireError(503, "the request waited longer than its wait budget", "overloaded", retry_after=1)
        if reason is FinishReason.CANCELLED:
            return WireError(503, "the request was cancelled: the server is going down", "cancelled", retry_after=5)
        return WireError(500, f"the engine failed: {mailbox.failure}", "internal_error")


class WholeAnswer(Answer):
    """An answer as one JSON body."""

    def __init__(
        self, desk: Desk, wire: Wire, call: Call, tickets: Sequence[Ticket], fault: Fault, prefix: str = ""
    ) -> None:
        super().__init__(desk, wire, call, tickets, fault, prefix)
        self._pieces: list[list[Piece]] = [[] for _ in self._choices]

    async def send(self) -> web.StreamResponse:
        """Wait for all of it. WireError where the engine gave up."""
        try:
            await self._done
        finally:
            self._cancel(FinishReason.CANCELLED)
        if self._error is not None:
            raise self._error
        body = self._wire.whole(self._call, self._id, self._desk.model, self._created, self._pieces, self._usage())
        now = self._desk.mailbox.engine.clock()
        for choice in self._choices:
            choice.ticket.written.append(now)
        return web.Response(
            body=json.dumps(body).encode(), content_type="application/json", headers={"x-request-id": self._id}
        )

    def _show(self, choice: Choice, piece: Piece) -> None:
        self._pieces[choice.index].append(piece)


class StreamedAnswer(Answer):
    """An answer as server-sent events, one a token. The head goes out with the first of them."""

    def __init__(
        self, desk: Desk, wire: Wire, call: Call, tickets: Sequence[Ticket], fault: Fault, prefix: str = ""
    ) -> None:
        if fault.no_usage or fault.usage_every:
            told = call.include_usage and not fault.no_usage
            call = replace(call, include_usage=told, continuous_usage=fault.usage_every)
        super().__init__(desk, wire, call, tickets, fault, prefix)
        self._events = wire.events(call, self._id, desk.model, self._created)
        bounds = desk.mailbox.engine.clock, desk.max_unread_bytes, desk.max_unread_tokens, self._on_slow
        self._outlet = Outlet(*bounds) if fault == NO_FAULT else SpoiledOutlet(fault, *bounds)
        self._early: list[tuple[Choice, Piece, int]] = []  # what came before the head was out
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._merged: dict[int, list[str]] = {}  # texts that a fault holds back, by choice
        self._is_open = False
        self._is_slow = False

    async def send(self, request: web.Request) -> web.StreamResponse | None:
        """Write the stream. WireError where the engine gave up before the first byte; None: the client has gone."""
        try:
            if not self._fault.opens_early:
                await self._begun
            if self._error is not None and not self._early:
                raise self._error
            await self._outlet.open(request, self._id)
            self._open()
            try:
                await self._outlet.run(self._done)
            except WireError as error:
                self._error = error
                super()._end()  # later news must not be written behind the end of the body
            if self._error is not None:
                self._outlet.send(self._events.error(self._error))
            return await self._outlet.close(is_slow=self._is_slow)
        except (ConnectionError, CutError):
            return None
        finally:
            self._cancel(FinishReason.CANCELLED)

    def _open(self) -> None:
        self._is_open = True
        self._outlet.send(self._events.opening(self._usage(0)))
        for choice, piece, count in self._early:
            self._write(choice, piece, count)
        if self._done.done() and self._error is None:
            self._close()

    def _show(self, choice: Choice, piece: Piece) -> None:
        if self._is_open:
            self._write(choice, piece, self._count)
            return
        self._early.append((choice, piece, self._count))
        if not self._begun.done():
            self._begun.set_result(None)

    def _write(self, choice: Choice, piece: Piece, count: int) -> None:
        """One piece as one event; the end as another, unless the piece is nothing but the end."""
        text = piece.text
        if piece.is_token and self._fault.merge:
            held = self._merged.setdefault(choice.index, [])
            held.append(text)
            if piece.finish is None and len(held) < self._fault.merge:
                return
            text = "".join(self._merged.pop(choice.index))
        if piece.is_token:
            usage = self._usage(count) if self._call.continuous_usage else None
            event = self._events.token(choice.index, text, piece.chances, usage)
            self._outlet.token(event, choice.ticket.written)
        if piece.finish is not None and not self._fault.no_finish:
            rest = "" if piece.is_token else "".join(self._merged.pop(choice.index, ())) + piece.text
            self._outlet.send(self._events.finish(choice.index, piece, rest, self._usage(count)))

    def _end(self) -> None:
        if self._is_open and not self._done.done():
            self._close()
        super()._end()

    def _close(self) -> None:
        self._outlet.send(self._events.closing(self._usage(), is_marked=not self._fault.no_done))

    def _give_up(self, error: WireError, reason: FinishReason = FinishReason.CANCELLED) -> None:
        super()._give_up(error, reason)
        if not self._begun.done():
            self._begun.set_result(None)

    def _on_slow(self) -> None:
        self._is_slow = True
        self._give_up(
            WireError(503, "the client reads too slowly: its unread answer was given up", "slow_reader"),
            FinishReason.SLOW_READER,
        )
