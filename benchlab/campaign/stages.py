"""From a load to a timetable, to one slice of it a worker, and to the window that is judged. Pure.

Open loop: every due instant is fixed here, before time zero. With a number of requests, the window closes when the
request after the last would have come. Closed loop: windows by requests are found in the records afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchlab.campaign.spec import Load, RunSpec, Warmup
from benchlab.errors import UsageError
from benchlab.loadgen.arrivals import arrival_times
from benchlab.loadgen.job import StageJob
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage, planned. Times in ns from its start; `w0_ns` and `w1_ns` are None where only the records can tell."""

    index: int
    load: Load
    at_ns: tuple[int, ...]
    until_ns: int | None
    w0_ns: int | None
    w1_ns: int | None
    count: int | None
    warmup_requests: int

    @property
    def planned(self) -> int | None:
        """Requests of the whole stage, warm-up included; None for a closed loop by time."""
        return len(self.at_ns) if self.load.kind == "open" else self.count


def plan_stages(spec: RunSpec, items: Sequence[WorkloadItem]) -> list[Stage]:
    """All stages of a run, in order. Raises UsageError where the loads and the workload do not fit."""
    return [_plan(index, load, spec, items) for index, load in enumerate(spec.loads)]


def _plan(index: int, load: Load, spec: RunSpec, items: Sequence[WorkloadItem]) -> Stage:
    if load.kind == "closed":
        return _closed(index, load, spec)
    times = _trace_times(load, items) if load.arrival.kind == "trace" else None
    if times is not None:
        return _from_trace(index, load, spec, times)
    rate = load.rate or 0.0
    # each stage draws arrivals of its own: the same gaps scaled would make stages share their bursts
    seed = spec.arrival_seed * 1_000_003 + index

    def draw(*, until_ns: int | None = None, count: int | None = None) -> np.ndarray:
        return arrival_times(load.arrival, rate=rate, until_ns=until_ns, count=count, seed=seed)

    warm = spec.warmup
    if spec.requests is not None:
        warm_count = warm.requests if not warm.ns else len(draw(until_ns=warm.ns))
        whole = draw(count=warm_count + spec.requests)
        w0 = int(whole[warm_count]) if warm_count else 0
        w1 = int(whole[-1])
        return _open(index, load, whole[:-1], w0, w1, warm_count)
    duration = spec.duration_ns or 0
    w0 = int(draw(count=warm.requests)[-1]) if warm.requests else warm.ns
    return _open(index, load, draw(until_ns=w0 + duration), w0, w0 + duration, warm.requests)


def _open(index: int, load: Load, at_ns: np.ndarray, w0: int, w1: int, warm: int) -> Stage:
    times = tuple(int(ns) for ns in at_ns)
    if not any(w0 <= ns < w1 for ns in times):
        raise UsageError(
            f"no request falls into the measured window of stage {load.name}",
            where="--rate/--duration",
            hint="measure longer, or give -n/--requests instead of --duration",
        )
    return Stage(index, load, times, w1, w0, w1, None, warm)


def _closed(index: int, load: Load, spec: RunSpec) -> Stage:
    warm: Warmup = spec.warmup
    if spec.requests is not None:
        if warm.ns:
            raise UsageError(
                "with -n/--requests a closed loop cannot tell beforehand how many requests fit in a warm-up time",
                where="--warmup",
                hint="write --warmup 20req, or give --duration",
            )
        return Stage(index, load, (), None, None, None, spec.requests + warm.requests, warm.requests)
    duration = spec.duration_ns or 0
    w0 = None if warm.requests else warm.ns
    until = duration + warm.ns
    return Stage(index, load, (), until, w0, until, None, warm.requests)


def _trace_times(load: Load, items: Sequence[WorkloadItem]) -> np.ndarray:
    """The workload's own arrivals, ns from the first; scaled to a mean rate when one is given."""
    times = [item.arrival_s for item in items]
    if any(time is None for time in times):
        raise UsageError(
            "the workload has no arrival times", where="--arrival trace", hint="give -r/--rate with --arrival poisson"
        )
    at = np.asarray(times, dtype=np.float64) * NS_PER_S
    at -= at[0]
    if load.rate is not None and at[-1] > 0:
        at *= ((len(at) - 1) / at[-1]) / (load.rate / NS_PER_S)
    return np.round(at).astype(np.int64)


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


def slices(stage: Stage, spec: RunSpec, *, start_ns: int, offset: int) -> list[StageJob]:
    """One slice of a stage a worker: every n-th arrival, every n-th user, each its share of the in-flight cap."""
    n = spec.workers
    jobs: list[StageJob] = []
    for worker in range(n):
        users = list(range(worker, stage.load.concurrency or 0, n))
        cap = None if spec.max_inflight is None else _share(spec.max_inflight, worker, n)
        jobs.append(
            StageJob(
                stage=stage.index,
                kind=stage.load.kind,
                start_ns=start_ns,
                until_ns=stage.until_ns,
                drain_ns=spec.drain_ns,
                offset=offset,
                at_ns=list(stage.at_ns[worker::n]),
                sequences=list(range(worker, len(stage.at_ns), n)),
                users=users,
                count=None if stage.count is None else _share(stage.count, worker, n),
                first=worker,
                step=n,
                think_ns=spec.think_ns,
                max_inflight=cap,
            )
        )
    return jobs


def _share(total: int, worker: int, n: int) -> int:
    return total // n + (worker < total % n)


def find_window(stage: Stage, intended_ns: Sequence[int], end_ns: Sequence[int]) -> tuple[int, int]:
    """The judged window [w0, w1), ns from stage start, once the records are there (times likewise from its start)."""
    w0, w1 = stage.w0_ns, stage.w1_ns
    order = sorted(intended_ns)
    if w0 is None:
        w0 = order[stage.warmup_requests] if stage.warmup_requests < len(order) else (order[-1] + 1 if order else 0)
    if w1 is None:
        w1 = max([*end_ns, w0]) + 1
    return w0, max(w1, w0 + 1)


def manifest_entry(stage: Stage, spec: RunSpec) -> dict[str, Any]:
    """What the manifest says of a stage before it has run."""
    load = stage.load
    span = (stage.w1_ns - stage.w0_ns) / NS_PER_S if stage.w0_ns is not None and stage.w1_ns is not None else None
    inside = sum(1 for ns in stage.at_ns if stage.w0_ns is not None and stage.w0_ns <= ns < (stage.w1_ns or 0))
    # offered is what the timetable holds, not what was asked for: a Poisson draw of 10 requests is seldom its mean
    offered = inside / span if span and load.kind == "open" else None
    return {
        "stage": stage.index,
        "name": load.name,
        "kind": load.kind,
        "asked_rps": load.rate,
        "offered_rps": offered,
        "concurrency": load.concurrency,
        "arrival": str(load.arrival) if load.kind == "open" else None,
        "warmup": str(spec.warmup),
        "planned": stage.planned,
        "complete": False,
        "why": "not run",
    }
