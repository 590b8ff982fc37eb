"""Closed loop: so many users, each sends its next request when its last has ended and it has thought.

A user whose request found no connection waits a growing while before it asks again: refusals come back at once, and
without a pause a dead server would be asked thousands of times a second.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from benchlab.loadgen.plan import Dropped, Due, PlanFacts
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_MS, NS_PER_S

FIRST_PAUSE_NS = 10 * NS_PER_MS
LONGEST_PAUSE_NS = NS_PER_S


class Backoff:
    """Pauses after connection errors, doubling from 10 ms to 1 s for each user, forgotten at its first success."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self.times = 0
        self.ns = 0

    def after(self, user: int, outcome: Outcome) -> int:
        """How long this user waits now, ns."""
        if outcome is not Outcome.ERROR_CONNECT:
            if self._failures:
                self._failures.pop(user, None)
            return 0
        failures = self._failures.get(user, 0)
        self._failures[user] = failures + 1
        pause = min(FIRST_PAUSE_NS << min(failures, 20), LONGEST_PAUSE_NS)
        self.times += 1
        self.ns += pause
        return pause


class ClosedLoop:
    """`users` users from time 0. No request is due at or after `until_ns`, nor beyond `count` requests in all.

    item_of: sequence number -> item index. stride: this plan's users take sequence numbers first, first + step, ...
    so that the slices of several workers never collide. think_ns: pause after each answer, or a function of (user,
    how many requests it has sent) that gives it.
    """

    def __init__(
        self,
        users: list[int],
        item_of: Callable[[int], int],
        *,
        until_ns: int | None = None,
        count: int | None = None,
        think_ns: int | Callable[[int, int], int] = 0,
        first: int = 0,
        step: int = 1,
    ) -> None:
        self._item_of, self._until_ns, self._count, self._think_ns = item_of, until_ns, count, think_ns
        self._sequence, self._step = first, step
        self._made = 0
        self._turns: dict[int, int] = {}
        self._waiting: list[tuple[int, int, Due]] = []
        self.backoff = Backoff()
        for user in users:
            self._make(0, user)

    def _make(self, at_ns: int, user: int) -> None:
        if (self._until_ns is not None and at_ns >= self._until_ns) or (
            self._count is not None and self._made >= self._count
        ):
            return
        due = Due(at_ns, self._sequence, self._item_of(self._sequence), user)
        heapq.heappush(self._waiting, (at_ns, self._sequence, due))
        self._sequence += self._step
        self._made += 1

    def next_due_ns(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None

    def take(self, now_ns: int) -> list[Due]:
        due: list[Due] = []
        while self._waiting and self._waiting[0][0] <= now_ns:
            due.append(heapq.heappop(self._waiting)[2])
        return due

    def ended(self, due: Due, now_ns: int, outcome: Outcome = Outcome.OK) -> None:
        user = due.user or 0
        think = self._think_ns
        if not isinstance(think, int):
            turn = self._turns[user] = self._turns.get(user, 0) + 1
            think = think(user, turn)
        self._make(now_ns + think + self.backoff.after(user, outcome), user)

    def stop(self, now_ns: int) -> None:
        self._until_ns = now_ns if self._until_ns is None else min(self._until_ns, now_ns)
        self._waiting = [entry for entry in self._waiting if entry[0] < now_ns]
        heapq.heapify(self._waiting)

    def dropped(self) -> list[Dropped]:
        """A closed loop plans nothing that it does not send."""
        return []

    def facts(self) -> PlanFacts:
        return PlanFacts(None, self.backoff.times, self.backoff.ns)
