"""What the load generator is held to, worked out from the rows of a run.

The one idea: every target is a figure, a limit and whether it holds; figures are medians over rounds, ratios are
medians of ratios within a round. What was not measured has no figure and does not hold. It must not know how a page
looks.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.peers.cases import BY_NAME

Row = dict[str, Any]
_SHAPES = ("stream", "role-early", "tail", "finish-apart", "four-a-chunk")
HELD = 0.98
"""Share of the events due that still counts as held: the last wave drains within the window that is looked at."""


@dataclass(frozen=True)
class Target:
    """`value` as measured (None: not measured), `limit` it must be at most (or at least, where `at_least`). note: what
    else the same run says about it."""

    what: str
    value: float | None
    limit: float
    unit: str
    at_least: bool = False
    note: str = ""

    @property
    def holds(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def get(row: Row | None, *path: str) -> Any:
    """A value deep in a row; None where any step is missing."""
    found: Any = row
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def of(rows: Sequence[Row], case: str, tool: str) -> list[Row]:
    return [row for row in rows if row["case"] == case and row["tool"] == tool]


def middle(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def median(rows: Sequence[Row], case: str, tool: str, *path: str) -> float | None:
    return middle(get(row, *path) for row in of(rows, case, tool))


def ratio(rows: Sequence[Row], case: str, tools: tuple[str, str], *path: str) -> float | None:
    """Median over the rounds of one client's figure over the other's in the same round; a client with fewer rounds is
    set against the same rounds of the other."""
    ours = {row["round"]: get(row, *path) for row in of(rows, case, tools[0])}
    theirs = {row["round"]: get(row, *path) for row in of(rows, case, tools[1])}
    return middle(ours[n] / theirs[n] for n in ours.keys() & theirs.keys() if ours[n] is not None and theirs[n])


def shape_error(rows: Sequence[Row], case: str, tool: str) -> float | None:
    """Largest relative error of median TTFT, TPOT and end-to-end time as reported, against the server's log."""
    pairs = (("ttft", "ttft"), ("mean_gap", "per_token"), ("e2e", "e2e"))
    errors: list[float] = []
    for row in of(rows, case, tool):
        for reported, true in pairs:
            said, is_ = get(row, "reported", reported, "p50"), get(row, "true", true, "p50")
            if said is not None and is_:
                errors.append(abs(said / is_ - 1))
    return max(errors, default=None)


def all_of(rows: Sequence[Row]) -> list[Target]:
    """Every target, in the order of the page."""
    return [*_closed(rows), *_paced(rows), *_pacing(rows), *_shapes(rows), *_prompts(rows)]


def _closed(rows: Sequence[Row]) -> list[Target]:
    found = [
        Target(
            f"closed loop, events/s against {peer}",
            ratio(rows, "closed-64", ("benchlab", peer), "events_s"),
            times,
            "x",
            at_least=True,
            note=_floor_against(rows, peer),
        )
        for peer, times in (("vllm", 5.0), ("inference-perf", 15.0), ("aiperf", 50.0), ("guidellm", 50.0))
    ]
    cost = ("closed-64", "cpu_per_1k")
    found.append(
        Target(
            "closed loop, CPU per event against the floor", ratio(rows, cost[0], ("benchlab", "floor"), cost[1]), 2, "x"
        )
    )
    two = ratio(rows, cost[0], ("benchlab-2", "benchlab"), cost[1])
    found.append(Target("closed loop, CPU per event, two workers against one", two, 1.2, "x"))
    return found


def _floor_against(rows: Sequence[Row], peer: str) -> str:
    """What the floor reaches against this peer: more is not to be had of this server on this host."""
    times = ratio(rows, "closed-64", ("floor", peer), "events_s")
    full = median(rows, "closed-64", "floor", "server_share")
    if times is None or full is None:
        return ""
    return f"the floor: {times:.1f} x, the server then at {full:.0%} of its core"


def _paced(rows: Sequence[Row]) -> list[Target]:
    held = median(rows, "paced-256", "benchlab", "events_s")
    return [
        Target("12,800 events/s due: held", held, 12_800 * HELD, "events/s", at_least=True),
        Target("12,800 events/s: share of one core", median(rows, "paced-256", "benchlab", "cpu_share"), 0.5, ""),
        Target(
            "12,800 events/s: peak memory, all processes", median(rows, "paced-256", "benchlab", "peak_mb"), 150, "MB"
        ),
        Target("each further request of 128 tokens: memory under load", _grown(rows, "load_mb"), 10, "kB"),
        Target("the same, to the end of the run, judged and reported", _grown(rows, "peak_mb"), 10, "kB"),
    ]


def _grown(rows: Sequence[Row], key: str) -> float | None:
    """kB by which the peak is higher for each request that one run had more than the other."""
    few, many = (median(rows, f"memory-{name}", "benchlab", key) for name in ("few", "many"))
    more = BY_NAME["memory-many"].requests - BY_NAME["memory-few"].requests
    return None if few is None or many is None else max(0.0, many - few) * 1024 / more


def _pacing(rows: Sequence[Row]) -> list[Target]:
    found: list[Target] = []
    for rate in (200, 800):
        for key, words in (("gap_cv", "CV of gaps"), ("off_grid_p99_ms", "p99 off the grid")):
            path = (f"constant-{rate}", ("benchlab", "floor"), "arrivals", key)
            found.append(Target(f"constant {rate}/s, {words} against the floor", ratio(rows, *path), 1.2, "x"))
        path = (f"constant-{rate}", ("benchlab-precise", "benchlab"), "arrivals", "off_grid_p99_ms")
        found.append(
            Target(f"constant {rate}/s, p99 off the grid, precise against normal", ratio(rows, *path), 1.0, "x")
        )
    for rate in (50, 200, 800):
        path = (f"poisson-{rate}", ("benchlab", "floor"), "arrivals", "ks")
        found.append(Target(f"Poisson {rate}/s, KS distance against the floor", ratio(rows, *path), 1.2, "x"))
        if rate < 800:
            runs = of(rows, f"poisson-{rate}", "benchlab")
            tested = middle(get(r, "arrivals", "ks") / get(r, "arrivals", "ks_limit") for r in runs if "arrivals" in r)
            found.append(Target(f"Poisson {rate}/s, KS distance over its 5% limit", tested, 1.0, "x"))
    opened = [row for row in rows if row["tool"] == "benchlab" and "arrivals" in row]
    sent = [row["requests"] / BY_NAME[row["case"]].requests for row in opened]
    found.append(
        Target("open loops: share of the requests that arrived", min(sent, default=None), 1.0, "", at_least=True)
    )
    return found


def _shapes(rows: Sequence[Row]) -> list[Target]:
    return [
        Target(f"shape of stream: {BY_NAME[case].what}", percent(shape_error(rows, case, "benchlab")), 1.0, "%")
        for case in _SHAPES
    ]


def _prompts(rows: Sequence[Row]) -> list[Target]:
    long, short = (median(rows, f"prompts-{name}", "benchlab", "cpu_per_1k") for name in ("long", "short"))
    times = long / short if long and short else None
    return [Target("prompts of 50,000 tokens, CPU per event after the upload against short ones", times, 1.1, "x")]


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
