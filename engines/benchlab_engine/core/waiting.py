"""The line in front of the engine: first come, first served.

The one idea: order of arrival, with removal from the middle in constant time. A preempted request comes back at the
head. It must not know blocks or budgets.
"""

from __future__ import annotations

from collections import OrderedDict

from benchlab_engine.core.request import Request


class WaitingLine:
    """Requests that are accepted and hold no blocks."""

    def __init__(self) -> None:
        self._line: OrderedDict[str, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._line)

    def head(self) -> Request | None:
        """Who is next, if anybody."""
        return next(iter(self._line.values()), None)

    def append(self, request: Request) -> None:
        """Join at the end."""
        self._line[request.spec.request_id] = request

    def put_back(self, request: Request) -> None:
        """Join at the head: it has been served in part already."""
        self.append(request)
        self._line.move_to_end(request.spec.request_id, last=False)

    def remove(self, request_id: str) -> Request | None:
        """Leave the line from wherever it stands."""
        return self._line.pop(request_id, None)

    def overdue(self, now_ns: int) -> list[Request]:
        """Those never started that have waited longer than their wait budget."""
        late: list[Request] = []
        for request in self._line.values():
            queued, limit = request.times.queued, request.spec.max_wait_ns
            if limit and queued is not None and request.times.admitted is None and now_ns - queued > limit:
                late.append(request)
        return late
