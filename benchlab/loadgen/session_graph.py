"""What waits for what in a workload: sessions, their turns, and agent graphs. Pure.

The one idea: a session is a set of items that hang together by what they wait for. It is begun as a whole, and its
items stand next to each other in the workload's order (`in_sessions`), so that a place in that order says both which
item and which session. An item waits for those of its `depends_on`; without that, a later turn of a session (by
`turn`, else by its place in the file) waits for every item of the turn before, unless it has an arrival time of its
own. It must not know when anything is sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise

from benchlab.errors import UsageError
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem


class SessionGraph:
    """The sessions of a workload whose items stand as `in_sessions` puts them.

    starts[s]: place of the first item of session s; needs[p], needed_by[p]: the places that p waits for, and that wait
    for p; wait_ns[p]: pause after what it waited for, None where the workload does not say. Sessions count on beyond
    the workload's end: session len(starts) is the first one again.
    """

    def __init__(self, items: Sequence[WorkloadItem], needs: Sequence[tuple[int, ...]] | None = None) -> None:
        self.needs = list(needs) if needs is not None else find_needs(items)
        self.num_items = len(items)
        self.starts = _starts(self.needs)
        self.needed_by: list[list[int]] = [[] for _ in items]
        for place, waits_for in enumerate(self.needs):
            for other in waits_for:
                self.needed_by[other].append(place)
        self.wait_ns = [None if item.wait_s is None else round(item.wait_s * NS_PER_S) for item in items]
        self.arrival_ns = [None if item.arrival_s is None else round(item.arrival_s * NS_PER_S) for item in items]

    @property
    def num_sessions(self) -> int:
        return len(self.starts)

    def places(self, session: int) -> range:
        """Places of a session's items, in one round of the workload."""
        index = session % len(self.starts)
        end = self.starts[index + 1] if index + 1 < len(self.starts) else self.num_items
        return range(self.starts[index], end)

    def position(self, session: int) -> int:
        """Position of a session's first item, rounds of the workload counted."""
        turn, index = divmod(session, len(self.starts))
        return turn * self.num_items + self.starts[index]

    def session_at(self, position: int) -> int:
        """The session that begins at this position, or the next one to begin after it."""
        turn, place = divmod(position, self.num_items)
        index = bisect_right(self.starts, place) - 1
        return turn * len(self.starts) + index + (self.starts[index] != place)

    def covering(self, session: int, num_items: int) -> int:
        """How many whole sessions from this one on hold at least so many items."""
        found = count = 0
        while found < num_items:
            found += len(self.places(session + count))
            count += 1
        return count


def has_sessions(items: Sequence[WorkloadItem]) -> bool:
    """Whether any item of the workload waits for another. Raises UsageError for what can never be due."""
    return any(find_needs(items))


def find_needs(items: Sequence[WorkloadItem]) -> list[tuple[int, ...]]:
    """Places that each item waits for. Raises UsageError for an unknown id and for items that wait for one another."""
    needs: list[tuple[int, ...]] = [()] * len(items)
    if any(item.session is not None for item in items):
        _turns(items, needs)
    if any(item.depends_on for item in items):
        places = {item.id: place for place, item in enumerate(items)}
        for place, item in enumerate(items):
            if item.depends_on is not None:
                needs[place] = tuple(sorted({_place(places, item, other) for other in item.depends_on}))
    if any(needs):
        _check_order(items, needs)
    return needs


def in_sessions(items: Sequence[WorkloadItem]) -> list[WorkloadItem]:
    """The items with each session's next to each other, sessions and items otherwise in their order."""
    needs = find_needs(items)
    if not any(needs):
        return list(items)
    head = list(range(len(items)))

    def find(place: int) -> int:
        while head[place] != place:
            head[place] = head[head[place]]
            place = head[place]
        return place

    for place, waits_for in enumerate(needs):
        for other in waits_for:
            one, two = sorted((find(place), find(other)))
            head[two] = one
    return [items[place] for place in sorted(range(len(items)), key=lambda place: (find(place), place))]


def _place(places: dict[str, int], item: WorkloadItem, other: str) -> int:
    found = places.get(other)
    if found is None:
        raise UsageError(
            f"item '{item.id[:60]}' waits for '{other[:60]}', which is no item of the workload",
            where="depends_on",
            hint="name the id of an item; what waits for one that was left out (--lenient, --trace-clip) must go too",
        )
    return found


def _turns(items: Sequence[WorkloadItem], needs: list[tuple[int, ...]]) -> None:
    """Fill in what later turns wait for: every item of the turn before."""
    sessions: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        if item.session is not None:
            sessions.setdefault(item.session, []).append(place)
    for places in sessions.values():
        if all(items[place].turn is not None for place in places):
            places.sort(key=lambda place: items[place].turn or 0)
            turns = [tuple(group) for _, group in groupby(places, key=lambda place: items[place].turn)]
        else:
            turns = [(place,) for place in places]
        for before, group in pairwise(turns):
            for place in group:
                if items[place].depends_on is None and items[place].arrival_s is None:
                    needs[place] = before


def _check_order(items: Sequence[WorkloadItem], needs: Sequence[tuple[int, ...]]) -> None:
    """Raise for items that wait, in the end, for themselves."""
    left = [len(waits_for) for waits_for in needs]
    needed_by: dict[int, list[int]] = {}
    for place, waits_for in enumerate(needs):
        for other in waits_for:
            needed_by.setdefault(other, []).append(place)
    free = [place for place, count in enumerate(left) if not count]
    done = 0
    while free:
        done += 1
        for place in needed_by.get(free.pop(), ()):
            left[place] -= 1
            if not left[place]:
                free.append(place)
    if done < len(needs):
        stuck = [items[place].id or str(place) for place, count in enumerate(left) if count]
        raise UsageError(
            f"{len(stuck)} items wait for one another and can never be sent: {', '.join(stuck[:5])[:200]}",
            where="depends_on",
            hint="take one of these dependencies out",
        )


def _starts(needs: Sequence[tuple[int, ...]]) -> list[int]:
    """Places where a session begins, given that sessions stand together: no item before it hangs together with it."""
    reach = list(range(len(needs)))  # the farthest place that hangs together with anything up to here
    for place, waits_for in enumerate(needs):
        for other in waits_for:
            low, high = sorted((place, other))
            reach[low] = max(reach[low], high)
    starts, end = [], -1
    for place, far in enumerate(reach):
        if place > end:
            starts.append(place)
        end = max(end, far, place)
    return starts
