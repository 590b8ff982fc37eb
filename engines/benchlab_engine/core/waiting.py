"""The line in front of the engine: who is next.

The one idea: a request's place is fixed when it joins. With ageing, priority - waited / age falls for everybody at the
same pace, so comparing any two at any instant is comparing priority * age + queued: a key that never changes, and no
scan is ever needed. Equal keys go by arrival; a preempted request keeps its key, and so stands before its equals that
came later. Under fair shares every tenant has a line of its own and the tenant with the least served tokens goes
first: a priority moves a request past its own tenant's others, never past another tenant's.

A request may stand aside until its parent has the prompt computed: it keeps its key, and holds nobody up meanwhile.
It must not know blocks or budgets.
"""

from __future__ import annotations

from benchlab_engine.core.heap import KeyedHeap
from benchlab_engine.core.request import Request
from benchlab_engine.core.shares import Shares


class WaitingLine:
    """Requests that are accepted and hold no blocks. shares: None is one line for all."""

    def __init__(self, shares: Shares | None = None) -> None:
        self._shares = shares
        self._requests: dict[str, Request] = {}
        self._lanes: dict[str, KeyedHeap] = {}  # by tenant; one, named "", without shares
        self._tenants = KeyedHeap()  # those with somebody in line, by tokens served and then by their first's key
        self._aside: dict[str, list[Request]] = {}  # by parent

    def __len__(self) -> int:
        return len(self._requests)

    def head(self) -> Request | None:
        """Who is next, if anybody."""
        tenant = "" if self._shares is None else self._tenants.first()
        lane = None if tenant is None else self._lanes.get(tenant)
        name = None if lane is None else lane.first()
        return None if name is None else self._requests[name]

    def append(self, request: Request) -> None:
        """Take the place that the request's rank gives it."""
        self._requests[request.spec.request_id] = request
        tenant = self._tenant(request)
        lane = self._lanes.setdefault(tenant, KeyedHeap())
        if self._shares is not None and not lane and not request.times.preempted:
            least = self._tenants.first_key()
            self._shares.arrives(tenant, self._lanes, None if least is None else least[0])
        lane.add(request.spec.request_id, request.rank)
        self._place(tenant)

    def set_aside(self, request: Request) -> None:
        """Wait for the parent; `call_back` or the parent's end puts the request in line."""
        self._requests[request.spec.request_id] = request
        self._aside.setdefault(request.spec.parent, []).append(request)

    def call_back(self, parent_id: str) -> None:
        """Whoever stands aside for this parent joins the line."""
        for request in self._aside.pop(parent_id, ()):
            if self._requests.get(request.spec.request_id) is request:
                self.append(request)

    def remove(self, request_id: str) -> Request | None:
        """Leave the line from wherever it stands."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            tenant = self._tenant(request)
            lane = self._lanes.get(tenant)
            if lane is not None and lane.discard(request_id):
                self._place(tenant)
            elif request.spec.parent in self._aside:
                self._aside[request.spec.parent].remove(request)
        return request

    def served(self, tenant: str, weighted_tokens: int) -> None:
        """The tenant has had so much more of the engine. Nothing happens without shares."""
        if self._shares is not None:
            self._shares.charge(tenant, weighted_tokens)
            if tenant in self._lanes:
                self._place(tenant)

    def _tenant(self, request: Request) -> str:
        return "" if self._shares is None else request.spec.tenant

    def _place(self, tenant: str) -> None:
        lane = self._lanes[tenant]
        if not lane:
            del self._lanes[tenant]
            if self._shares is not None:
                self._tenants.discard(tenant)
                self._shares.leaves(tenant)
        elif self._shares is not None:
            self._tenants.add(tenant, (self._shares.of(tenant), lane.first_key()))
