"""The client's certificate of a stage: was it fast enough, on time, and are its stamps sharp? From its own account.

The one idea: a run proves its own load generator. Each worker's ceiling is one over its CPU seconds an event, in this
very stage; headroom is that ceiling over the load that was due, what it could not send in time included. Lateness is
taken from the records, the loop's lag and CPU from the workers, the error of the times from their slack. It must not
know the server's side: an overloaded server leaves all of this untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchlab.metrics import request
from benchlab.metrics.columns import Bools, Columns, Floats
from benchlab.metrics.limits import Limits
from benchlab.metrics.quantiles import ordered, quantile
from benchlab.metrics.rule import Rule, State, judged
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_MS, NS_PER_S

_MORE = (
    "the client is the bottleneck: --workers auto, or a client host of its own (`benchlab doctor` says what it carries)"
)


def certificate(c: Columns, inside: Bools, stage: Mapping[str, Any]) -> dict[str, Any]:
    """What `summary.json` tells of the client in a stage. `inside`: requests of the window. None: not known.

    headroom: the least of the workers'. stamp_error_ms: 99% of the text events are off by no more. not_sent, late:
    arrivals of the window that were never sent, or begun only after the sending was over.
    """
    workers = [_worker(c, entry, stage) for entry in stage.get("workers") or []]
    lag = request.dispatch_lag(c).values[inside]
    lag = lag[np.isfinite(lag)]
    heads = [w["headroom"] for w in workers if w["headroom"] is not None]
    return {
        "workers": workers,
        "headroom": min(heads, default=None),
        "cpu_share": _most(w["cpu_share"] for w in workers),
        "dispatch_lag_ms": {**_quantiles(lag), "max": float(lag.max()) if len(lag) else None},
        "loop_lag_ms": {key: _most(w["loop_lag_ms"].get(key) for w in workers) for key in ("p50", "p99", "max")},
        "stamps": _stamp_source(c),
        "stamp_error_ms": stamp_error_ms(c, stage),
        "clock_error_ms": _most(w["clock_error_ms"] for w in workers),
        "not_sent": int((inside & c.is_outcome(Outcome.NOT_SENT) & ~c.text_is("error_kind", "session")).sum()),
        "late": int((inside & _late(c, stage)).sum()),
    }


def _worker(c: Columns, entry: Mapping[str, Any], stage: Mapping[str, Any]) -> dict[str, Any]:
    """One worker's figures: CPU share, its ceiling (events a CPU second), the events a second due, and headroom."""
    cpu, wall = entry.get("cpu_s"), entry.get("wall_s")
    events = entry.get("events_sending") or entry.get("events") or 0
    error = entry.get("offset_error_ns")
    told: dict[str, Any] = {
        "worker": entry.get("worker"),
        "cpu_share": cpu / wall if cpu is not None and wall else None,
        "ceiling_eps": None,
        "due_eps": None,
        "headroom": None,
        "loop_lag_ms": entry.get("loop_lag_ms") or {},
        "clock_error_ms": None if error is None else error / NS_PER_MS,
    }
    if not cpu or not wall or not events:
        return told
    mine = c.number("worker") == float(entry.get("worker") or 0)
    missing = int((mine & _late(c, stage)).sum()) * _events_each(c, mine)
    ceiling, due = events / cpu, (events + missing) / min(wall, _planned_s(stage) or wall)
    return told | {"ceiling_eps": ceiling, "due_eps": due, "headroom": ceiling / due}


def _planned_s(stage: Mapping[str, Any]) -> float | None:
    """How long an open loop was to send: a client that could not took longer over it."""
    start, until = stage.get("start_ns"), stage.get("w1_ns")
    if stage.get("kind") == "closed" or start is None or until is None or until <= start:
        return None
    return float(until - start) / NS_PER_S


def _late(c: Columns, stage: Mapping[str, Any]) -> Bools:
    """Requests of an open loop that were due while it sent, and were not begun by then: the client's own backlog."""
    if stage.get("kind") == "closed" or stage.get("w1_ns") is None:
        return np.zeros(c.n, dtype=np.bool_)
    until = float(stage["w1_ns"])
    begun = c.number("dispatched_ns")
    return np.asarray((c.number("intended_ns") < until) & (np.isnan(begun) | (begun >= until)))


def _events_each(c: Columns, mine: Bools) -> float:
    """Events of an answer, on average."""
    whole = mine & c.is_outcome(Outcome.OK)
    counts = np.diff(c.offsets)[whole] if len(c.offsets) > 1 else np.zeros(0)
    return float(counts.mean()) if len(counts) else 0.0


def _most(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _quantiles(values: Floats) -> dict[str, float | None]:
    if not len(values):
        return {"p50": None, "p99": None}
    sorted_values = ordered(values)
    return {"p50": quantile(sorted_values, 0.5), "p99": quantile(sorted_values, 0.99)}


def _stamp_source(c: Columns) -> str | None:
    """kernel | callback | mixed, of the requests that had an answer: those without one have no stamps at all."""
    answered = np.diff(c.offsets) > 0 if len(c.offsets) > 1 else np.zeros(c.n, dtype=np.bool_)
    kernel, callback = (bool((answered & c.text_is("stamp_source", word)).any()) for word in ("kernel", "callback"))
    return None if not answered.any() else "mixed" if kernel and callback else "kernel" if kernel else "callback"


def median_ttft_ms(c: Columns, inside: Bools) -> float | None:
    """Median TTFT of the window's good answers, ms: the scale of what is measured."""
    first = request.ttft(c).values[inside & c.is_outcome(Outcome.OK)]
    first = first[np.isfinite(first)]
    return float(np.median(first)) if len(first) else None


def merged_mask(c: Columns) -> Bools:
    """Which text events shared a read with another text event of their answer.

    A last text that shares its read with the finish or usage event alone is not counted: servers send those in one
    burst, and no gap between tokens lies inside it.
    """
    if not len(c.visible):
        return np.zeros(0, dtype=np.bool_)
    rows, stamps = c.visible_row, c.chunk_ns[c.visible]
    again = (rows[1:] == rows[:-1]) & (stamps[1:] == stamps[:-1])
    return np.asarray(np.concatenate([[False], again]) | np.concatenate([again, [False]]), dtype=np.bool_)


def merged(c: Columns) -> tuple[float, float] | None:
    """(share of text events that shared a read with another, p99 of how much earlier those may be in ms)."""
    return _shared(c)[:2] if len(c.visible) else None


def _shared(c: Columns) -> tuple[float, float, float]:
    """What `merged` tells, and the p99 of the slack in ns over all text events, those that share no read having none.

    Found once: a summary asks for it several times, and it passes over every event.
    """
    found: tuple[float, float, float] = c.kept("merged", _find_shared)
    return found


def _find_shared(c: Columns) -> tuple[float, float, float]:
    shared = merged_mask(c)
    slack = c.slack_ns[c.visible].astype(np.float64)
    width = slack[shared]
    early = float(np.quantile(width, 0.99)) / NS_PER_MS if len(width) else 0.0
    return float(shared.mean()), early, float(np.quantile(np.where(shared, slack, 0.0), 0.99))


def stamp_error_ms(c: Columns, stage: Mapping[str, Any]) -> float | None:
    """99% of the text events are off by at most so many ms: their slack, the clocks' own error, and where the time was
    read in a callback, how late that was at its 99th percentile. None where no text came."""
    if not len(c.visible):
        return None
    workers = stage.get("workers") or []
    clock = _most(w.get("offset_error_ns") for w in workers) or 0.0
    bound = _shared(c)[2] + clock
    if _stamp_source(c) != "kernel":
        lag = _most((w.get("loop_lag_ms") or {}).get("p99") for w in workers)
        bound = max(bound, (lag or 0.0) * NS_PER_MS)
    return bound / NS_PER_MS


def client_rules(c: Columns, inside: Bools, stage: Mapping[str, Any], limits: Limits, number: int) -> list[Rule]:
    """The rules on the client's speed, lateness and sharpness; their limits grow with the TTFT that is measured."""
    told = certificate(c, inside, stage)
    limit, fail = limits.lag(median_ttft_ms(c, inside))
    late = "the client was late: more --workers, or a quieter client host"
    blurred = "text events share reads, or are stamped late: gaps finer than this are not told apart"
    busy = judged(
        "client_cpu_share", told["cpu_share"], limits.cpu_share, _MORE, fail=limits.cpu_share_fail, stage=number
    )
    lag = told["dispatch_lag_ms"]["p99"]
    loop = told["loop_lag_ms"]["p99"]
    return [
        judged("dispatch_lag_p99_ms", lag, limit, late, fail=fail, stage=number),
        _headroom(told["headroom"], limits, number),
        busy,
        judged("loop_lag_p99_ms", loop, limit, _MORE, fail=fail, stage=number),
        judged("stamp_error_p99_ms", told["stamp_error_ms"], limit, blurred, stage=number),
    ]


def _headroom(value: float | None, limits: Limits, number: int) -> Rule:
    """A worker's own ceiling over the load due of it: the least of them must be above the limit."""
    if value is None:
        return Rule("client_headroom", "not checked", None, limits.headroom, "the run does not tell", number)
    state: State = "fail" if value < limits.headroom_fail else "warn" if value < limits.headroom else "pass"
    return Rule("client_headroom", state, value, limits.headroom, "" if state == "pass" else _MORE, number)
