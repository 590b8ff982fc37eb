"""Between the event loop and the engine's thread.

The one idea: two one-way letter boxes. Requests and cancellations go in and are taken up before the next step; news
comes out once a step, all in one call. The engine never touches a socket, the event loop never touches the engine.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable

from benchlab_engine.core.admission import Refusal, RefusalKind, refuse
from benchlab_engine.core.journal import StepRow
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.request import FinishReason, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Emission

_MAX_UNREAD = 4096  # tokens a slow reader may leave unread before its request is cancelled


class Ticket:
    """One accepted request as the event loop sees it: its times, and its news in order."""

    def __init__(self, spec: RequestSpec, times: RequestTimes) -> None:
        self.spec = spec
        self.times = times
        self.news: asyncio.Queue[Emission] = asyncio.Queue()
        self.num_tokens = 0
        self.num_cached = 0
        self.finish: FinishReason | None = None


class Mailbox:
    """Owns the engine's thread. All public methods belong to the event loop's thread."""

    def __init__(self, engine: Engine, on_step: Callable[[StepRow], None], keep: int = 20_000) -> None:
        self.engine = engine
        self.live: dict[str, Ticket] = {}
        self.past: OrderedDict[str, Ticket] = OrderedDict()  # ended ones, for /timeline
        self.failure: str | None = None  # what the last failed step said
        self.broken = False  # the engine's thread has died
        self._on_step = on_step
        self._on_end: Callable[[Ticket], None] = lambda _: None
        self._keep = keep
        self._letters: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[Ticket], None]) -> None:
        """Begin stepping. on_end: called on the event loop as each request ends."""
        self._loop = loop
        self._on_end = on_end
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present step."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def submit(self, spec: RequestSpec, accepted_ns: int) -> Ticket | Refusal:
        """Hand a request in, or say at once why not."""
        if spec.request_id in self.live:
            return Refusal(RefusalKind.DUPLICATE, f"a request with the id {spec.request_id!r} is being served")
        refusal = refuse(spec, self.engine.scheduler.config.limits(), len(self.live))
        if refusal is not None:
            return refusal
        ticket = Ticket(spec, RequestTimes(accepted=accepted_ns))
        self.live[spec.request_id] = ticket
        self._post(lambda: self._enter(ticket))
        return ticket

    def cancel(self, request_id: str, reason: FinishReason) -> None:
        """End a request before the next step. Nothing happens if it has ended."""
        if request_id in self.live:
            self._post(lambda: self._leave(request_id, reason))

    # -- the engine's thread ------------------------------------------------------------------------------------

    def _enter(self, ticket: Ticket) -> None:
        engine = self.engine
        refusal = engine.submit(ticket.spec, engine.clock(), ticket.times)
        if refusal is not None:
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
            now = self.engine.clock()
            self._tell([Emission(name, now, None, FinishReason.ERROR) for name in list(self.live)])

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
            if outcome.error:
                self.failure = outcome.error
                print(f"engine step failed: {outcome.error}", file=sys.stderr, flush=True)  # noqa: T201
            if outcome.row is not None:
                self._on_step(outcome.row)
            if outcome.emissions:
                self._tell(outcome.emissions)

    def _tell(self, emissions: list[Emission]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._deliver, emissions)
        except RuntimeError:  # the event loop has closed: nobody is left to be told
            self._stopping = True

    # -- the event loop's thread --------------------------------------------------------------------------------

    def _deliver(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            ticket = self.live.get(emission.request_id)
            if ticket is None:
                continue
            ticket.num_cached = emission.num_cached
            ticket.num_tokens += emission.token is not None
            ticket.news.put_nowait(emission)
            if emission.finish is not None:
                ticket.finish = emission.finish
                del self.live[emission.request_id]
                self.past[emission.request_id] = ticket
                if len(self.past) > self._keep:
                    self.past.popitem(last=False)
                self._on_end(ticket)
            elif ticket.news.qsize() > _MAX_UNREAD:
                self.cancel(emission.request_id, FinishReason.CANCELLED)
