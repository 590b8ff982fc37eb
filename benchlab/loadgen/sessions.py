"""Sessions and agent graphs as a plan: a session begins as a whole, its later turns are due when what they wait for
has been answered and their pause is over. Pure.

The one idea: every item of a session that was begun is due exactly once, or is dropped with the reason: what it waits
for went wrong (its answer will never be there), or the stage was over before it was due.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchlab.loadgen.closed_loop import Backoff
from benchlab.loadgen.plan import Dropped, Due, PlanFacts
from benchlab.loadgen.session_graph import SessionGraph
from benchlab.records.event import Outcome

Think = Callable[[int, int], int]
"""(user or session, which of its pauses) -> ns."""

_CUT = "the stage was over before it was due"


@dataclass(slots=True)
class _Live:
    """A session under way. base: sequence number of its first item; left: items neither ended nor dropped; origin_ns:
    the earliest of its items' own arrival times, to which `begun_ns` corresponds."""

    number: int
    base: int
    first: int
    begun_ns: int
    origin_ns: int
    left: int
    unmet: dict[int, int]
    ready_ns: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    user: int | None = None


class Sessions:
    """Sessions of a workload, open loop or closed.

    offset: position in the workload at which the stage begins; sequence numbers count from there. Open: `at_ns`
    ascending, with the number of the session that begins then in `numbers`. Closed: `users` begin one session each at
    0 and the next when it is over, in the order first, first + step, ... until `count` were begun. think: the pause
    before a turn whose item does not say (`wait_s`), and of a user between two sessions. Nothing is due at or after
    `until_ns`.
    """

    def __init__(
        self,
        graph: SessionGraph,
        *,
        offset: int = 0,
        at_ns: Sequence[int] = (),
        numbers: Sequence[int] = (),
        users: Sequence[int] = (),
        count: int | None = None,
        first: int = 0,
        step: int = 1,
        until_ns: int | None = None,
        think: Think = lambda who, pause: 0,
        keep_times: bool = False,
    ) -> None:
        self._graph, self._offset, self._think, self._until_ns = graph, offset, think, until_ns
        self._first_session = graph.session_at(offset)
        self._starts = deque(zip(at_ns, numbers, strict=True))
        self._keep_times = keep_times
        self._count, self._number, self._step = count, first, step
        self._due: list[tuple[int, int, Due]] = []
        self._live: dict[int, _Live] = {}
        self._dropped: list[Dropped] = []
        self._pauses: dict[int, int] = {}
        self.backoff = Backoff()
        self.begun = 0
        """Sessions begun so far."""
        for user in users:
            self._next_session(0, user)

    # -- what a driver asks

    def next_due_ns(self) -> int | None:
        instants = [self._starts[0][0]] if self._starts else []
        if self._due:
            instants.append(self._due[0][0])
        return min(instants, default=None)

    def take(self, now_ns: int) -> list[Due]:
        while self._starts and self._starts[0][0] <= now_ns:
            at_ns, number = self._starts.popleft()
            self._begin(at_ns, number, None)
        due: list[Due] = []
        while self._due and self._due[0][0] <= now_ns:
            due.append(heapq.heappop(self._due)[2])
        return due

    def ended(self, due: Due, now_ns: int, outcome: Outcome = Outcome.OK) -> None:
        live = self._live.get(due.sequence)
        if live is None:
            return
        place = live.first + due.sequence - live.base
        self._close(live, place)
        pause = 0 if live.user is None else self.backoff.after(live.user, outcome)
        if outcome is Outcome.OK:
            self._answered(live, place, now_ns)
        else:
            over = self._until_ns is not None and now_ns >= self._until_ns
            why = _CUT if over else f"its session went no further: request {due.sequence} of the stage was {outcome}"
            self._drop_after(live, place, now_ns, why, "cut" if over else "session")
        if not live.left and live.user is not None:
            self._next_session(now_ns + self._pause(live.user) + pause, live.user)

    def stop(self, now_ns: int) -> None:
        self._until_ns = until = now_ns if self._until_ns is None else min(self._until_ns, now_ns)
        while self._starts and self._starts[-1][0] >= until:
            self._starts.pop()
        waiting, self._due = self._due, []
        for at_ns, sequence, due in waiting:
            if at_ns < until:
                heapq.heappush(self._due, (at_ns, sequence, due))
                continue
            live = self._live[sequence]
            self._drop(live, live.first + sequence - live.base, at_ns, _CUT, "cut")

    def dropped(self) -> list[Dropped]:
        found, self._dropped = self._dropped, []
        return found

    def facts(self) -> PlanFacts:
        return PlanFacts(self.begun, self.backoff.times, self.backoff.ns)

    # -- sessions

    def _next_session(self, at_ns: int, user: int) -> None:
        if (self._until_ns is not None and at_ns >= self._until_ns) or (
            self._count is not None and self.begun >= self._count
        ):
            return
        number, self._number = self._number, self._number + self._step
        self._begin(at_ns, number, user)

    def _begin(self, at_ns: int, number: int, user: int | None) -> None:
        graph = self._graph
        session = self._first_session + number
        places = graph.places(session)
        own_ns = [ns for place in places if (ns := graph.arrival_ns[place]) is not None] if self._keep_times else []
        live = _Live(
            number=number,
            base=graph.position(session) - self._offset,
            first=places[0],
            begun_ns=at_ns,
            origin_ns=min(own_ns, default=0),
            left=len(places),
            unmet={place: len(graph.needs[place]) for place in places},
            user=user,
        )
        self.begun += 1
        for place in places:
            self._live[live.base + place - live.first] = live
        for place in places:
            if not graph.needs[place]:
                self._make_due(live, place, at_ns + (graph.wait_ns[place] or 0))

    def _answered(self, live: _Live, place: int, now_ns: int) -> None:
        graph = self._graph
        for child in graph.needed_by[place]:
            live.unmet[child] -= 1
            live.ready_ns[child] = max(live.ready_ns.get(child, now_ns), now_ns)
            if live.unmet[child] or child in live.closed:
                continue
            wait = graph.wait_ns[child]
            if wait is None:
                wait = self._pause(live.number if live.user is None else live.user)
            self._make_due(live, child, live.ready_ns[child] + wait)

    def _pause(self, who: int) -> int:
        pause = self._pauses[who] = self._pauses.get(who, 0) + 1
        return self._think(who, pause)

    def _make_due(self, live: _Live, place: int, at_ns: int) -> None:
        if self._keep_times and (own := self._graph.arrival_ns[place]) is not None:
            at_ns = max(at_ns, live.begun_ns + own - live.origin_ns)
        if self._until_ns is not None and at_ns >= self._until_ns:
            self._drop(live, place, at_ns, _CUT, "cut")
            return
        sequence = live.base + place - live.first
        heapq.heappush(self._due, (at_ns, sequence, Due(at_ns, sequence, place, live.user)))

    # -- the end of an item

    def _close(self, live: _Live, place: int) -> None:
        live.closed.add(place)
        live.left -= 1
        del self._live[live.base + place - live.first]

    def _drop(self, live: _Live, place: int, at_ns: int, why: str, kind: str) -> None:
        """This item and all that wait for it will never be due."""
        self._drop_one(live, place, at_ns, why, kind)
        self._drop_after(live, place, at_ns, why, kind)

    def _drop_after(self, live: _Live, place: int, at_ns: int, why: str, kind: str) -> None:
        after = deque(self._graph.needed_by[place])
        while after:
            child = after.popleft()
            if child not in live.closed:
                self._drop_one(live, child, at_ns, why, kind)
                after.extend(self._graph.needed_by[child])

    def _drop_one(self, live: _Live, place: int, at_ns: int, why: str, kind: str) -> None:
        sequence = live.base + place - live.first
        self._close(live, place)
        self._dropped.append(Dropped(Due(at_ns, sequence, place, live.user), why, kind))
