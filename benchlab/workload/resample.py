"""Other workloads from one: a slice, another rate, fewer or redrawn sessions, merged tenants, capped lengths, pauses.

The one idea: a session goes or stays as a whole, for its turns wait for one another. Every step is seeded and says in a
sentence what it did; what it does to the statistics is for `inspect`, before and after. It must not read files.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchlab.errors import UsageError
from benchlab.workload.draw import Draw
from benchlab.workload.item import WorkloadItem

Items = Sequence[WorkloadItem]
Step = tuple[list[WorkloadItem], str]


def units(items: Items) -> list[list[int]]:
    """The places of items that belong together (one session, or one waits for another), by their first one."""
    head = list(range(len(items)))

    def find(place: int) -> int:
        while head[place] != place:
            head[place] = head[head[place]]
            place = head[place]
        return place

    sessions: dict[str, int] = {}
    places: dict[str, int] = {}
    for place, item in enumerate(items):
        places[item.id] = place
        if item.session is not None:
            head[find(place)] = find(sessions.setdefault(item.session, place))
    for place, item in enumerate(items):
        for other in item.depends_on or ():
            if other in places:
                one, two = sorted((find(place), find(places[other])))
                head[two] = one
    found: dict[int, list[int]] = {}
    for place in range(len(items)):
        found.setdefault(find(place), []).append(place)
    return sorted(found.values())


def _arrival(items: Items, unit: list[int]) -> float | None:
    return min((at for place in unit if (at := items[place].arrival_s) is not None), default=None)


def _share(draw: Draw) -> float:
    """A number in [0, 1)."""
    return draw.below(2**52) / 2**52


def _kept(items: Items, kept: list[list[int]]) -> list[WorkloadItem]:
    return [items[place] for place in sorted(place for unit in kept for place in unit)]


def _rebased(items: list[WorkloadItem], origin: float) -> list[WorkloadItem]:
    return [
        item if item.arrival_s is None else msgspec.structs.replace(item, arrival_s=round(item.arrival_s - origin, 9))
        for item in items
    ]


def cut(items: Items, start_s: float, end_s: float) -> Step:
    """Sessions (and single items) that begin from start_s to before end_s, counted from start_s."""
    begun = [(unit, _arrival(items, unit)) for unit in units(items)]
    if all(at is None for _, at in begun):
        raise UsageError("the workload has no arrival times", where="--slice", hint="leave it out")
    kept = [unit for unit, at in begun if at is not None and start_s <= at < end_s]
    if not kept:
        last = max(at for _, at in begun if at is not None)
        raise UsageError("nothing arrives in that span", where="--slice", hint=f"arrivals go from 0 to {last:.3f} s")
    told = f"slice {start_s:g} to {end_s:g} s: {len(kept):,} of {len(begun):,} sessions or single items"
    if start_s > 0 and any(item.prefix_blocks for item in items):
        told += "; its first items ask for blocks whose first use was cut away: slice from 0, or warm up"
    return _rebased(_kept(items, kept), start_s), told


def scale_rate(items: Items, factor: float) -> Step:
    """Arrivals at `factor` times the rate; the pauses inside sessions are people's and tools' and stay."""
    if not 0 < factor < 1e6:
        raise UsageError(f"a rate times {factor:g}", where="--rate-scale", hint="give a number above 0, such as 2")
    changed = [
        item if item.arrival_s is None else msgspec.structs.replace(item, arrival_s=item.arrival_s / factor)
        for item in items
    ]
    return changed, f"arrivals at {factor:g} times the rate"


def thin(items: Items, share: float, seed: int) -> Step:
    """Each session (or single item) stays with this chance: a Poisson process stays one."""
    if not 0 < share <= 1:
        raise UsageError(f"a share of {share:g}", where="--thin", hint="give a share above 0, up to 1")
    draw, all_units = Draw(seed, "thin"), units(items)
    kept = [unit for unit in all_units if _share(draw) < share]
    if not kept:
        raise UsageError("nothing is left", where="--thin", hint="give a larger share, or another --seed")
    return _kept(items, kept), f"thinned to {share:g}: {len(kept):,} of {len(all_units):,} sessions or single items"


def bootstrap(items: Items, number: int, seed: int) -> Step:
    """So many sessions (or single items) drawn with replacement, each with its own times; copies get names of their own
    and keep their blocks, so a cache meets them again."""
    if not 1 <= number <= 10_000_000:
        raise UsageError(f"{number} sessions", where="--bootstrap", hint="give 1 to 10,000,000")
    draw, all_units = Draw(seed, "bootstrap"), units(items)
    drawn: list[WorkloadItem] = []
    times: dict[int, int] = {}
    for _ in range(number):
        place = draw.below(len(all_units))
        copy = times[place] = times.get(place, 0) + 1
        drawn += [items[at] if copy == 1 else _renamed(items[at], f"#{copy}") for at in all_units[place]]
    drawn = _in_order(drawn)
    return drawn, f"{number:,} of {len(all_units):,} sessions or single items drawn with replacement"


def _renamed(item: WorkloadItem, tail: str) -> WorkloadItem:
    return msgspec.structs.replace(
        item,
        id=item.id + tail,
        session=None if item.session is None else item.session + tail,
        depends_on=None if item.depends_on is None else [name + tail for name in item.depends_on],
    )


def _in_order(items: list[WorkloadItem]) -> list[WorkloadItem]:
    keys, last = [], 0.0
    for item in items:
        last = last if item.arrival_s is None else item.arrival_s
        keys.append(last)
    return [items[place] for place in sorted(range(len(items)), key=keys.__getitem__)]


def merge(parts: Sequence[tuple[str, Items]]) -> Step:
    """Workloads side by side from the same instant, each a tenant: names, sessions and blocks stay apart."""
    timed = [name for name, items in parts if any(item.arrival_s is not None for item in items)]
    if timed and len(timed) < len(parts):
        raise UsageError(
            f"{timed[0]} has arrival times, and others have none",
            where="workload convert",
            hint="merge workloads that all have times, or none",
        )
    merged: list[WorkloadItem] = []
    base = 0
    for name, items in parts:
        ids: dict[int, int] = {}
        for item in items:
            blocks = None
            if item.prefix_blocks is not None:
                blocks = [base + ids.setdefault(block, len(ids)) for block in item.prefix_blocks]
            merged.append(
                msgspec.structs.replace(
                    item,
                    id=f"{name}/{item.id}",
                    session=None if item.session is None else f"{name}/{item.session}",
                    depends_on=None if item.depends_on is None else [f"{name}/{other}" for other in item.depends_on],
                    prefix_blocks=blocks,
                    tenant=name,
                )
            )
        base += len(ids)
    return _in_order(merged), f"{len(parts)} workloads merged as tenants: {', '.join(name for name, _ in parts)}"


def cap(items: Items, max_input: int | None, max_output: int | None, *, drop: bool) -> Step:
    """Lengths at most so long: cut to the cap, or longer items (with their sessions) left out."""

    def over(item: WorkloadItem) -> bool:
        return (max_input is not None and (item.input_tokens or 0) > max_input) or (
            max_output is not None and (item.output_tokens or 0) > max_output
        )

    num_over = sum(over(item) for item in items)
    said = " and ".join(
        f"{side} {most:,}" for side, most in (("input", max_input), ("output", max_output)) if most is not None
    )
    if drop:
        kept = [unit for unit in units(items) if not any(over(items[place]) for place in unit)]
        if not kept:
            raise UsageError("nothing is left", where="--drop-longer", hint="raise the cap")
        left = _kept(items, kept)
        return left, f"{len(items) - len(left):,} items left out for lengths over {said} tokens, sessions as a whole"
    texts = sum(item.input_tokens is None for item in items) if max_input is not None else 0
    note = f"; the text of {texts:,} items is not cut" if texts else ""
    return [_capped(item, max_input, max_output) for item in items], f"{num_over:,} items cut to {said} tokens{note}"


def _capped(item: WorkloadItem, max_input: int | None, max_output: int | None) -> WorkloadItem:
    if max_output is not None and (item.output_tokens or 0) > max_output:
        item = msgspec.structs.replace(item, output_tokens=max_output)
    if max_input is None or (item.input_tokens or 0) <= max_input:
        return item
    blocks = item.prefix_blocks
    if blocks is not None and item.block_tokens is not None:
        blocks = blocks[: max_input // item.block_tokens]  # a block that is cut is no longer the one others share
    return msgspec.structs.replace(item, input_tokens=max_input, prefix_blocks=blocks)


def cap_waits(items: Items, most_s: float) -> Step:
    """Pauses between turns at most so long."""
    if not 0 <= most_s <= 1e9:
        raise UsageError(f"a pause of {most_s:g} s", where="--idle-cap", hint="give seconds, such as 60s")
    longer = sum((item.wait_s or 0) > most_s for item in items)
    changed = [
        item if item.wait_s is None else msgspec.structs.replace(item, wait_s=min(item.wait_s, most_s))
        for item in items
    ]
    return changed, f"{longer:,} pauses cut to {most_s:g} s"


def spread_ticks(items: Items, tick_s: float | None, seed: int) -> Step:
    """Arrivals of a coarse clock spread evenly at random within its tick."""
    if tick_s is None:
        raise UsageError(
            "the arrivals are not those of a coarse clock", where="--spread-ticks", hint="leave it out (see inspect)"
        )
    draw = Draw(seed, "ticks")
    changed = [
        item
        if item.arrival_s is None
        else msgspec.structs.replace(item, arrival_s=round(item.arrival_s + _share(draw) * tick_s, 9))
        for item in items
    ]
    return _in_order(changed), f"arrivals spread within ticks of {tick_s:g} s"
