"""Between the event loop and the engine's thread.

The one idea: two one-way letter boxes. Requests and cancellations go in and are taken up before the next step; news
comes out once a step, all in one call, and each piece goes straight to its listener. The engine never touches a
socket, the event loop never touches the engine.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Protocol

from benchlab_engine.core.admission import Refusal, RefusalKind, refuse
from benchlab_engine.core.journal import StepRow
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.request import FinishReason, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Emission
from benchlab_engine.serve.ticket import Ticket


class Watcher(Protocol):
    """Counts what happens. on_step comes on the engine's thread, the others on the event loop's."""

    def on_step(self, row: StepRow) -> None:
        """A step has been settled."""
        ...

    def on_first(self, ticket: Ticket) -> None:
        """A request's first token is there."""
        ...

    def on_end(self, ticket: Ticket) -> None:
        """A request has left the engine."""
        ...


class Mailbox:
    """Owns the engine's thread. All public methods belong to the event loop's thread."""

    def __init__(self, engine: Engine, watcher: Watcher, keep: int = 20_000) -> None:
        self.engine = engine
        self.live: dict[str, Ticket] = {}
        self.past: OrderedDict[str, Ticket] = OrderedDict()  # ended ones, for /timeline
        self.failure: str | None = None  # what the last failed step said
        self.broken = False  # the engine's thread has died
        self._watcher = watcher
        self._keep = keep
        self._letters: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin stepping; news comes on this event loop."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present step."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def submit(self, specs: Sequence[RequestSpec], accepted_ns: int) -> list[Ticket] | Refusal:
        """Hand requests in, all or none, or say at once why not. Listeners are set before the caller next waits."""
        limits = self.engine.scheduler.config.limits()
        for number, spec in enumerate(specs):
            if spec.request_id in self.live:
                return Refusal(RefusalKind.DUPLICATE, f"a request with the id {spec.request_id!r} is being served")
            refusal = refuse(spec, limits, len(self.live) + number)
            if refusal is not None:
                return refusal
        tickets = [Ticket(spec, RequestTimes(accepted=accepted_ns)) for spec in specs]
        self.live.update((ticket.spec.request_id, ticket) for ticket in tickets)
        self._post(lambda: self._enter(tickets))
        return tickets

    def cancel(self, request_id: str, reason: FinishReason) -> None:
        """End a request before the next step. Nothing happens if it has ended."""
        if request_id in self.live:
            self._post(lambda: self._leave(request_id, reason))

    # -- the engine's thread ------------------------------------------------------------------------------------

    def _enter(self, tickets: Sequence[Ticket]) -> None:
        engine = self.engine
        for ticket in tickets:
            refusal = engine.submit(ticket.spec, engine.clock(), ticket.times)
            if refusal is not None:
                self.failure = refusal.message
                self._tell([Emission(ticket.spec.request_id, engine.clock(), None, FinishReason.ERROR)])

    def _leave(self, request_id: str, reason: FinishReason) -> None:
        self.engine.cancel(request_id, self.engine.clock(), reason)

    def _post(self, letter: Callable[[], None]) -> None:
        with self._wake:
            self._letters.append(letter)
            self._wake.notify()

    def _run(self) -> None:
        try:
            self._step_until_stopped()
        except BaseException as error:  # nothing may end this thread unseen: clients would wait for ever
            self.failure = f"{type(error).__name__}: {error}"
            self.broken = True
            traceback.print_exc()
            self._on_loop(self._fail_all)  # there, none can come between the look at who waits and the news

    def _step_until_stopped(self) -> None:
        audited = False
        stalled = False
        while True:
            with self._wake:
                if not self._letters and not self._stopping:
                    if not self.engine.scheduler.requests:
                        if not self._wake.wait(timeout=None if audited else 1.0):
                            audited = True
                    elif stalled:
                        self._wake.wait(timeout=0.002)
                if self._stopping:
                    return
                letters = list(self._letters)
                self._letters.clear()
            for letter in letters:
                letter()
            if not letters and not self.engine.scheduler.requests:
                self.engine.scheduler.audit()  # idle for a second: the pool must be whole
                continue
            audited = False
            outcome = self.engine.step()
            stalled = outcome.row is None
            if outcome.emissions:
                self._tell(outcome.emissions)
            if outcome.error:
                self.failure = outcome.error
                print(f"engine step failed: {outcome.error}", file=sys.stderr, flush=True)  # noqa: T201
            if outcome.row is not None:
                self._watcher.on_step(outcome.row)

    def _tell(self, emissions: list[Emission]) -> None:
        self._on_loop(self._deliver, emissions)

    def _on_loop(self, call: Callable[..., None], *given: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *given)
        except RuntimeError:  # the event loop has closed: nobody is left to be told
            self._stopping = True

    # -- the event loop's thread --------------------------------------------------------------------------------

    def _deliver(self, emissions: list[Emission]) -> None:
        live, watcher = self.live, self._watcher
        for emission in emissions:
            ticket = live.get(emission.request_id)
            if ticket is None:
                continue
            ticket.num_cached = emission.num_cached
            if emission.token is not None:
                ticket.num_tokens += 1
                if ticket.num_tokens == 1:
                    watcher.on_first(ticket)
            if emission.finish is None:
                ticket.listener(emission)
            else:
                self._end(ticket, emission)

    def _fail_all(self) -> None:
        now = self.engine.clock()
        self._deliver([Emission(name, now, None, FinishReason.ERROR) for name in self.live])

    def _end(self, ticket: Ticket, emission: Emission) -> None:
        name = emission.request_id
        del self.live[name]
        self.past.pop(name, None)
        self.past[name] = ticket
        if len(self.past) > self._keep:
            self.past.popitem(last=False)
        ticket.listener(emission)
        # The engine may have reached the length before it heard of the stop string that the answer ended at.
        ticket.finish = FinishReason.STOP if ticket.is_stopped else emission.finish
        self._watcher.on_end(ticket)
        ticket.close()
