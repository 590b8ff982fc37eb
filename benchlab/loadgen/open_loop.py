"""Open loop: requests come when they come, whatever the server does with those before."""

from __future__ import annotations

from collections.abc import Sequence

from benchlab.loadgen.plan import Dropped, Due, PlanFacts
from benchlab.records.event import Outcome


class OpenLoop:
    """A fixed timetable. `at_ns` ascending; `sequences` and `items` say which requests of the stage they are."""

    def __init__(self, at_ns: Sequence[int], sequences: Sequence[int], items: Sequence[int]) -> None:
        if not len(at_ns) == len(sequences) == len(items):
            raise ValueError("a timetable needs one sequence number and one item a due instant")
        self._at_ns, self._sequences, self._items = at_ns, sequences, items
        self._next = 0
        self._until = len(at_ns)

    def next_due_ns(self) -> int | None:
        return int(self._at_ns[self._next]) if self._next < self._until else None

    def take(self, now_ns: int) -> list[Due]:
        due: list[Due] = []
        while self._next < self._until and self._at_ns[self._next] <= now_ns:
            k = self._next
            due.append(Due(int(self._at_ns[k]), int(self._sequences[k]), int(self._items[k])))
            self._next += 1
        return due

    def ended(self, due: Due, now_ns: int, outcome: Outcome = Outcome.OK) -> None:
        """An open loop does not care."""

    def stop(self, now_ns: int) -> None:
        while self._until > self._next and self._at_ns[self._until - 1] >= now_ns:
            self._until -= 1

    def dropped(self) -> list[Dropped]:
        """What lies beyond a stop is no part of the stage any more: its manifest says that it was cut short."""
        return []

    def facts(self) -> PlanFacts:
        return PlanFacts()
