"""How a node's clock stands against the parent's: from round trips, with the error that they leave open.

The one idea: the node's reading was taken somewhere between question and answer, so the shortest round trip pins the
offset to plus or minus half its length, whatever the network did on the other trips. It must not know who carries the
question. The offset starts stages at the same instant on every host and lines telemetry up; no latency is ever made
of it, since each request is wholly timed on one host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchlab.clock import Clock
from benchlab.units import NS_PER_MS

_TRIES = 40
_LIMIT_NS = 500 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Offset:
    """node = parent + offset_ns, to within error_ns, at `at_ns` (parent's monotonic clock); ns all.

    wall_ns: the node's wall clock less its monotonic one. trips: how many round trips were made.
    """

    at_ns: int
    offset_ns: int
    error_ns: int
    wall_ns: int
    trips: int


def measure_offset(ask: Callable[[], tuple[int, int]], clock: Clock, *, tries: int = _TRIES) -> Offset:
    """The offset by the shortest of `tries` round trips (fewer where they take more than half a second in all).

    ask: a round trip to the node; gives its (monotonic, wall) clocks in ns. What it raises is the caller's to catch.
    """
    best: Offset | None = None
    began = clock.monotonic_ns()
    trips = 0
    while trips < tries:
        before = clock.monotonic_ns()
        monotonic, wall = ask()
        after = clock.monotonic_ns()
        trips += 1
        error = (after - before + 1) // 2
        if best is None or error < best.error_ns:
            best = Offset(after, monotonic - (before + after) // 2, error, wall - monotonic, trips)
        if after - began > _LIMIT_NS:
            break
    if best is None:
        raise ValueError("an offset needs at least one round trip")
    return Offset(best.at_ns, best.offset_ns, best.error_ns, best.wall_ns, trips)
