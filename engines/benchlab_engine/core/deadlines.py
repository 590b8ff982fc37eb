"""Whose time has run out.

The one idea: one heap of instants, so that a step looks at those that are due and at nobody else. It must not know
what is done with them, or what time it is.
"""

from __future__ import annotations

from benchlab_engine.core.heap import KeyedHeap
from benchlab_engine.core.request import Request


class Deadlines:
    """The next instant, ns on the engine's clock, after which each request is not to go on as it is."""

    def __init__(self) -> None:
        self._heap = KeyedHeap()

    def watch(self, request: Request, queued_ns: int) -> None:
        """A request has joined the line: its wait budget and its deadline both count."""
        spec = request.spec
        instants = [queued_ns + spec.max_wait_ns] if spec.max_wait_ns else []
        if spec.deadline_ns:
            instants.append(spec.deadline_ns)
        if instants:
            self._heap.add(spec.request_id, (min(instants), request.rank))

    def started(self, request: Request) -> None:
        """It waits no more: only its deadline counts from now on."""
        if request.spec.max_wait_ns:
            self._heap.discard(request.spec.request_id)
            if request.spec.deadline_ns:
                self._heap.add(request.spec.request_id, (request.spec.deadline_ns, request.rank))

    def forget(self, request_id: str) -> None:
        """It has ended."""
        self._heap.discard(request_id)

    def due(self, now_ns: int) -> list[str]:
        """Those whose instant lies before now, in order; they are watched no longer."""
        late: list[str] = []
        while (key := self._heap.first_key()) is not None and key[0] < now_ns:
            name = self._heap.first()
            assert name is not None
            late.append(name)
            self._heap.discard(name)
        return late
