"""From a load to a timetable, to one slice of it a worker, and to the window that is judged. Pure.

Open loop: every due instant is fixed here, before time zero. With a number of requests, the window closes when the
request after the last would have come. Closed loop: windows by requests are found in the records afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchlab.campaign.replay import place_of
from benchlab.campaign.session_stages import SessionTimes, closed_sessions, open_sessions, trace_sessions
from benchlab.campaign.spec import AT_ONCE, Load, RunSpec, Warmup
from benchlab.errors import UsageError
from benchlab.loadgen.arrivals import arrival_times
from benchlab.loadgen.job import StageJob
from benchlab.loadgen.rate_curve import RateCurve
from benchlab.loadgen.session_graph import SessionGraph, find_needs
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage, planned. Times in ns from its start; `w0_ns` and `w1_ns` are None where only the records can tell.

    graph: where there is one, `at_ns` and `count` are of whole sessions.
    """

    index: int
    load: Load
    at_ns: tuple[int, ...]
    until_ns: int | None
    w0_ns: int | None
    w1_ns: int | None
    count: int | None
    warmup_requests: int
    graph: SessionGraph | None = field(default=None, compare=False, repr=False)
    session_items: int | None = None
    place: int | None = None
    """Where in the workload a replayed stage begins; None: wherever the stage before it came to."""

    @property
    def planned(self) -> int | None:
        """Requests of the whole stage, warm-up included; None for a closed loop or for sessions by time."""
        if self.graph is not None:
            return self.session_items
        return len(self.at_ns) if self.load.kind == "open" else self.count


def plan_stages(spec: RunSpec, items: Sequence[WorkloadItem]) -> list[Stage]:
    """All stages of a run, in order. Raises UsageError where the loads and the workload do not fit."""
    if spec.arrival_seed < 0:
        raise UsageError("a seed is 0 or more", where="--arrival-seed")
    needs = find_needs(items) if spec.replay is None else []
    graph = SessionGraph(items, needs) if any(needs) else None
    if graph is None:
        if spec.think != AT_ONCE and all(load.kind == "open" for load in spec.loads):
            hint = "leave it out; pauses are for the users of -c/--concurrency and the turns of sessions"
            raise UsageError("nobody waits for an answer before sending here", where="--think", hint=hint)
        return [_plan(index, load, spec, items) for index, load in enumerate(spec.loads)]
    stages: list[Stage] = []
    session = 0
    for index, load in enumerate(spec.loads):
        trace = load.kind == "open" and load.arrival.kind == "trace"
        session = -(-session // graph.num_sessions) * graph.num_sessions if trace else session
        times = _session_times(index, load, spec, graph, session)
        begun = len(times.at_ns) if load.kind == "open" else times.count or 0
        session += begun
        stages.append(_of_sessions(index, load, times, graph))
    return stages


def _session_times(index: int, load: Load, spec: RunSpec, graph: SessionGraph, first: int) -> SessionTimes:
    if load.kind == "closed":
        if spec.requests is not None and spec.warmup.ns:
            raise _no_warmup_time()
        return closed_sessions(load, spec, graph, first)
    if load.arrival.kind != "trace":
        return open_sessions(spec, graph, first, _draw(index, load, spec))
    starts = []
    for session in range(graph.num_sessions):
        known = [ns for place in graph.places(session) if (ns := graph.arrival_ns[place]) is not None]
        if not known:
            raise _no_times()
        starts.append(min(known))
    return trace_sessions(spec, graph, _shaped(load, spec, np.asarray(starts, dtype=np.float64)))


def _of_sessions(index: int, load: Load, times: SessionTimes, graph: SessionGraph) -> Stage:
    return Stage(
        index=index,
        load=load,
        at_ns=tuple(times.at_ns.tolist()),
        until_ns=times.until_ns,
        w0_ns=times.w0_ns,
        w1_ns=times.w1_ns,
        count=times.count,
        warmup_requests=times.warmup_requests,
        graph=graph,
        session_items=times.planned,
    )


def _draw(index: int, load: Load, spec: RunSpec) -> Any:
    """Arrivals of this stage: draw(until_ns=...) or draw(count=...)."""
    # each stage draws arrivals of its own: the same gaps scaled would make stages share their bursts
    seed = spec.arrival_seed * 1_000_003 + index
    rate = load.rate or 0.0
    curve = None if load.ramp is None else _curve(load, spec, seed)

    def draw(*, until_ns: int | None = None, count: int | None = None) -> np.ndarray:
        return arrival_times(load.arrival, rate=rate, until_ns=until_ns, count=count, seed=seed, curve=curve)

    return draw


def _curve(load: Load, spec: RunSpec, seed: int) -> RateCurve:
    """The ramp of a stage: over its measured time, or, with a number of requests, over the time that they take in the
    mean. Through the warm-up the rate is the ramp's first."""
    assert load.ramp is not None
    warm, first = spec.warmup, load.ramp.rates[0]
    begin_ns = warm.ns
    if warm.requests:
        times = arrival_times(load.arrival, rate=first, until_ns=None, count=warm.requests, seed=seed)
        begin_ns = int(times[-1])
    span_ns = spec.duration_ns or round((spec.requests or 1) / load.ramp.mean * NS_PER_S)
    return RateCurve(load.ramp.mean, load.ramp, begin_s=begin_ns / NS_PER_S, span_s=span_ns / NS_PER_S)


def _plan(index: int, load: Load, spec: RunSpec, items: Sequence[WorkloadItem]) -> Stage:
    if load.kind == "closed":
        return _closed(index, load, spec)
    if load.replay is not None:
        stored = load.replay
        until = max(stored.w1_ns, stored.at_ns[-1] + 1)
        place = place_of(stored, items)
        return Stage(index, load, stored.at_ns, until, stored.w0_ns, stored.w1_ns, None, 0, place=place)
    if load.arrival.kind == "trace":
        return _from_trace(index, load, spec, _trace_times(load, spec, items))
    draw = _draw(index, load, spec)
    warm = spec.warmup
    if spec.requests is not None:
        warm_count = warm.requests if not warm.ns else len(draw(until_ns=warm.ns))
        whole = draw(count=warm_count + spec.requests)
        w0 = int(whole[warm_count]) if warm_count else 0
        w1 = max(int(whole[-1]), int(whole[-2]) + 1)  # bursty gaps can be shorter than a nanosecond
        return _open(index, load, whole[:-1], w0, w1, warm_count)
    duration = spec.duration_ns or 0
    w0 = int(draw(count=warm.requests)[-1]) if warm.requests else warm.ns
    return _open(index, load, draw(until_ns=w0 + duration), w0, w0 + duration, warm.requests)


def _open(index: int, load: Load, at_ns: np.ndarray, w0: int, w1: int, warm: int) -> Stage:
    if not ((at_ns >= w0) & (at_ns < w1)).any():
        raise UsageError(
            f"no request falls into the measured window of stage {load.name}",
            where="--rate/--duration",
            hint="measure longer, or give -n/--requests instead of --duration",
        )
    return Stage(index, load, tuple(at_ns.tolist()), w1, w0, w1, None, warm)


def _closed(index: int, load: Load, spec: RunSpec) -> Stage:
    warm: Warmup = spec.warmup
    if spec.requests is not None:
        if warm.ns:
            raise _no_warmup_time()
        # all users begin at once: the first request of each is warm-up or none is
        warm_count = max(warm.requests, load.concurrency or 0) if warm.requests else 0
        return Stage(index, load, (), None, None, None, spec.requests + warm_count, warm_count)
    duration = spec.duration_ns or 0
    w0 = None if warm.requests else warm.ns
    until = duration + warm.ns
    return Stage(index, load, (), until, w0, until, None, warm.requests)


def _no_warmup_time() -> UsageError:
    return UsageError(
        "with -n/--requests a closed loop cannot tell beforehand how many requests fit in a warm-up time",
        where="--warmup",
        hint="write --warmup 20req, or give --duration",
    )


def _no_times() -> UsageError:
    hint = "give -r/--rate with --arrival poisson"
    return UsageError("the workload has no arrival times", where="--arrival trace", hint=hint)


def _trace_times(load: Load, spec: RunSpec, items: Sequence[WorkloadItem]) -> np.ndarray:
    """The workload's own arrivals, ns from the first; scaled to a mean rate when one is given."""
    times = [item.arrival_s for item in items]
    if any(time is None for time in times):
        raise _no_times()
    return _shaped(load, spec, np.asarray(times, dtype=np.float64) * NS_PER_S)


def _shaped(load: Load, spec: RunSpec, at: np.ndarray) -> np.ndarray:
    at = at - at[0]
    if load.rate is not None and at[-1] > 0:
        at *= ((len(at) - 1) / at[-1]) / (load.rate / NS_PER_S)
    return spec.trace.times(at, spec.arrival_seed)


def _from_trace(index: int, load: Load, spec: RunSpec, at: np.ndarray) -> Stage:
    warm = spec.warmup
    w0 = int(at[min(warm.requests, len(at) - 1)]) if warm.requests else warm.ns
    if spec.requests is not None:
        last = warm.requests + spec.requests
        w1 = int(at[last]) if last < len(at) else int(at[-1]) + 1
    elif spec.duration_ns is not None:
        w1 = w0 + spec.duration_ns
    else:
        w1 = int(at[-1]) + 1
    return _open(index, load, at[at < w1], w0, w1, warm.requests)


def slices(stage: Stage, spec: RunSpec, *, start_ns: int, offset: int, permits: str | None = None) -> list[StageJob]:
    """One slice of a stage a worker: every n-th arrival (whole session, where there are such), every n-th user.

    Workers beyond the number of users get an empty slice. permits: folder through which the workers keep the cap on
    requests in flight together; without it each keeps its share, and workers beyond the cap get an empty slice too.
    """
    places = [limit for limit in (stage.load.concurrency, spec.max_inflight) if limit is not None]
    shared = permits is not None and spec.max_inflight is not None and spec.workers > 1
    n = min([spec.workers, *(places[:1] if stage.load.kind == "closed" else [] if shared else places)])
    replay = stage.load.replay
    sequences: Sequence[int] = range(len(stage.at_ns)) if replay is None else replay.sequences
    jobs: list[StageJob] = []
    for worker in range(spec.workers):
        busy = worker < n
        users = list(range(worker, stage.load.concurrency or 0, n)) if busy else []
        cap = spec.max_inflight if busy else None
        if cap is not None and not shared:
            cap = _share(cap, worker, n)
        jobs.append(
            StageJob(
                stage=stage.index,
                kind=stage.load.kind,
                start_ns=start_ns,
                until_ns=stage.until_ns,
                drain_ns=spec.drain_ns,
                offset=offset,
                at_ns=list(stage.at_ns[worker::n]) if busy else [],
                sequences=list(sequences[worker::n]) if busy else [],
                users=users,
                count=None if stage.count is None else _share(stage.count, worker, n) if busy else 0,
                first=worker,
                step=n,
                think=spec.think,
                seed=spec.arrival_seed,
                sessions=stage.graph is not None,
                keep_times=stage.load.kind == "open" and stage.load.arrival.kind == "trace",
                max_inflight=cap,
                permits=permits if shared and busy else None,
                workers=spec.workers,
                abandon=list(spec.abandon),
                precise=spec.pacing == "precise",
                limit_ns=spec.stage_limit_ns,
                held_in_drain=spec.requests is not None,
            )
        )
    return jobs


def first_item(stage: Stage, offset: int, items: int) -> int:
    """Where in the workload a stage begins, `offset` of its requests being used: there, but a trace at its first, and a
    replayed stage where it began then."""
    if stage.place is not None:
        return offset + (stage.place - offset) % items
    trace = stage.load.kind == "open" and stage.load.arrival.kind == "trace"
    return -(-offset // items) * items if trace else offset


def num_used(jobs: Sequence[StageJob], begun: Sequence[int], graph: SessionGraph | None = None) -> int:
    """How far into the workload a stage came: one past the last position that any worker sent.

    begun: requests of each worker, or, with a graph, sessions.
    """
    ends = [
        (max(job.sequences[:sent]) if job.sequences else job.first + (sent - 1) * job.step) + 1
        for job, sent in zip(jobs, begun, strict=True)
        if sent
    ]
    last = max(ends, default=0)
    if graph is None or not last:
        return last
    offset = jobs[0].offset
    return graph.position(graph.session_at(offset) + last) - offset


def _share(total: int, worker: int, n: int) -> int:
    return total // n + (worker < total % n)


def find_window(stage: Stage, intended_ns: Sequence[int], end_ns: Sequence[int]) -> tuple[int, int]:
    """The judged window [w0, w1), ns from stage start, once the records are there (times likewise from its start).

    It is empty (w0 = w1) where the stage was over before its warm-up was.
    """
    w0, w1 = stage.w0_ns, stage.w1_ns
    if w0 is None:
        w0 = after_warmup(stage.warmup_requests, intended_ns)
    if w0 is None:
        last = max([*end_ns, *intended_ns], default=-1) + 1
        return last, last
    if w1 is None:
        w1 = max([*end_ns, w0]) + 1
    return w0, max(w1, w0)


def after_warmup(requests: int, intended_ns: Sequence[int]) -> int | None:
    """When the first request after a warm-up of so many was due; None if none was. What is due at the same instant
    as the last of the warm-up belongs to it too.
    """
    if not requests:
        return 0
    order = sorted(intended_ns)
    return next((ns for ns in order[requests:] if ns > order[requests - 1]), None)


def offered_rps(stage: Stage, w0: int, w1: int) -> float | None:
    """Arrivals a second that the timetable of an open loop holds in a window: a draw is seldom the rate asked for."""
    if stage.load.kind != "open" or w1 <= w0 or stage.graph is not None:  # turns are due when answers have ended
        return None
    return sum(1 for ns in stage.at_ns if w0 <= ns < w1) / ((w1 - w0) / NS_PER_S)


def manifest_entry(stage: Stage, spec: RunSpec) -> dict[str, Any]:
    """What the manifest says of a stage before it has run."""
    load = stage.load
    by_session = stage.graph is not None
    known = stage.w0_ns is not None and stage.w1_ns is not None
    return {
        "stage": stage.index,
        "name": load.name,
        "kind": load.kind,
        "asked_rps": None if by_session else load.rate,
        "offered_rps": offered_rps(stage, stage.w0_ns or 0, stage.w1_ns or 0) if known else None,
        "concurrency": load.concurrency,
        "arrival": str(load.arrival) if load.kind == "open" else None,
        "warmup": str(spec.warmup),
        "warmup_requests": stage.warmup_requests,
        "shape": _shape(stage, spec),
        "planned": stage.planned,
        "complete": False,
        "why": "not run",
    }


def _shape(stage: Stage, spec: RunSpec) -> dict[str, Any]:
    """Everything that made the timetable, beside what the entry says anyway; None for what has no part in it."""
    load = stage.load
    open_loop = load.kind == "open"
    trace = open_loop and load.arrival.kind == "trace"
    sessions = None
    if stage.graph is not None:
        sessions = {
            "in_workload": stage.graph.num_sessions,
            "planned": len(stage.at_ns) if open_loop else stage.count,
            "asked_per_s": load.rate if open_loop else None,
        }
    return {
        "ramp": None if load.ramp is None else str(load.ramp),
        "trace": spec.trace.facts() if trace else None,
        "think": None if open_loop and stage.graph is None else str(spec.think),
        "sessions": sessions,
        "abandon": [str(rule) for rule in spec.abandon],
        "replay": None if load.replay is None else str(spec.replay),
        "stage_limit_s": None if spec.stage_limit_ns is None else spec.stage_limit_ns / NS_PER_S,
        "abort_after_s": None if spec.abort_ns is None else spec.abort_ns / NS_PER_S,
    }
