"""Stages whose arrivals are sessions: how many are begun and when, and which window is judged. Pure.

A session is never begun to be cut by a count: with -n, as many whole sessions are begun as hold so many requests, and
the stage lasts until they are over. With a time, the turns that would be due at or after the stage's end are not sent.
A request belongs to the window by its own intended time, whatever its session.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchlab.campaign.spec import Load, RunSpec
from benchlab.errors import UsageError
from benchlab.loadgen.session_graph import SessionGraph

Draw = Callable[..., np.ndarray]
"""Arrivals of this stage: draw(until_ns=...) or draw(count=...), as `arrival_times` gives them."""


class SessionTimes:
    """What `Stage` needs to know: at_ns (open), count of sessions (closed), planned requests, the window."""

    def __init__(
        self,
        *,
        at_ns: np.ndarray | None = None,
        count: int | None = None,
        planned: int | None = None,
        until_ns: int | None = None,
        w0_ns: int | None = None,
        w1_ns: int | None = None,
        warmup_requests: int = 0,
    ) -> None:
        self.at_ns = np.zeros(0, dtype=np.int64) if at_ns is None else at_ns
        self.count, self.planned, self.until_ns = count, planned, until_ns
        self.w0_ns, self.w1_ns, self.warmup_requests = w0_ns, w1_ns, warmup_requests


def size_of(graph: SessionGraph, first: int, count: int) -> int:
    """Requests of `count` sessions from `first` on."""
    return graph.position(first + count) - graph.position(first)


def closed_sessions(load: Load, spec: RunSpec, graph: SessionGraph, first: int) -> SessionTimes:
    """So many users, each with one session at a time."""
    warm = spec.warmup
    if spec.requests is None:
        until = (spec.duration_ns or 0) + warm.ns
        w0 = None if warm.requests else warm.ns
        return SessionTimes(until_ns=until, w0_ns=w0, w1_ns=until, warmup_requests=warm.requests)
    # all users begin at once: the first request of each is warm-up or none is
    warm_count = max(warm.requests, load.concurrency or 0) if warm.requests else 0
    count = graph.covering(first, spec.requests + warm_count)
    return SessionTimes(count=count, planned=size_of(graph, first, count), warmup_requests=warm_count)


def open_sessions(spec: RunSpec, graph: SessionGraph, first: int, draw: Draw) -> SessionTimes:
    """Sessions begin when the arrival process says."""
    warm = spec.warmup
    w0 = None if warm.requests else warm.ns
    if spec.requests is None:
        until = (spec.duration_ns or 0) + warm.ns
        at = draw(until_ns=until)
        return _some(SessionTimes(at_ns=at, until_ns=until, w0_ns=w0, w1_ns=until, warmup_requests=warm.requests))
    before = len(draw(until_ns=warm.ns)) if warm.ns else 0
    count = before + graph.covering(first + before, spec.requests + warm.requests)
    at = draw(count=count)[:-1]
    planned = size_of(graph, first, count)
    return SessionTimes(at_ns=at, planned=planned, w0_ns=w0, warmup_requests=warm.requests)


def trace_sessions(spec: RunSpec, graph: SessionGraph, at: np.ndarray) -> SessionTimes:
    """Sessions begin at the trace's own times, which are `at`."""
    warm = spec.warmup
    w0 = None if warm.requests else warm.ns
    if spec.requests is not None:
        at = at[: graph.covering(0, spec.requests + warm.requests)]
    if spec.duration_ns is None:
        return SessionTimes(at_ns=at, planned=size_of(graph, 0, len(at)), w0_ns=w0, warmup_requests=warm.requests)
    until = spec.duration_ns + warm.ns
    times = SessionTimes(at_ns=at[at < until], until_ns=until, w0_ns=w0, w1_ns=until, warmup_requests=warm.requests)
    return _some(times)


def _some(times: SessionTimes) -> SessionTimes:
    if not len(times.at_ns):
        raise UsageError(
            "no session begins in this stage",
            where="--rate/--duration",
            hint="measure longer, or give -n/--requests instead of --duration",
        )
    return times
