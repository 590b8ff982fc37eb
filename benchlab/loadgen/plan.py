"""The timetable's contract. A plan is pure: it is told the time, it never asks; its times are ns from stage start.

Due instants are absolute: being late with one request moves no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchlab.records.event import Outcome


@dataclass(frozen=True, slots=True)
class Due:
    """A request that is wanted at `at_ns` (from the stage's start). `item` is an index into the workload's order."""

    at_ns: int
    sequence: int
    item: int
    user: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A request that was planned and will never be due, and why: it gets a record all the same.

    kind: `session` where something that it waits for went wrong, `cut` where the stage was over first.
    """

    due: Due
    why: str
    kind: str


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a plan has done so far. sessions: begun, None where it knows none. backoff: after connection errors."""

    sessions: int | None = None
    backoff_times: int = 0
    backoff_ns: int = 0


class LoadPlan(Protocol):
    """What a driver needs of a load shape."""

    def next_due_ns(self) -> int | None:
        """When the next request is due; None if none is known now (closed loop: until one has ended)."""
        ...

    def take(self, now_ns: int) -> list[Due]:
        """Every request due at or before `now_ns` that was not taken yet, in order. Never one that is due later."""
        ...

    def ended(self, due: Due, now_ns: int, outcome: Outcome = Outcome.OK) -> None:
        """A request taken before has ended. Closed loops and sessions make what comes after it here."""
        ...

    def stop(self, now_ns: int) -> None:
        """Want nothing more from `now_ns` on (the stage's end, an interrupt, an abort)."""
        ...

    def dropped(self) -> list[Dropped]:
        """What became known since the last call never to be due. Every planned request is taken or dropped, once."""
        ...

    def facts(self) -> PlanFacts:
        """For the report of the stage."""
        ...
