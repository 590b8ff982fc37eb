"""What one cap over all workers costs and gains beside a cap that is split among them, in pairs in one run.

    python tests/benchmarks/shared_cap.py [--workers 2] [--cap 8] [--rate 300] [--pairs 3] [--seconds 4]

Arrivals are Poisson, dealt out to the workers by chance, at about the rate that the cap lets through, so that often one
worker has requests waiting while the other has places free: a split cap leaves those unused. Printed are medians of
the pairs: the wait behind the cap (ms), the share of waiting time during which a place was free in truth, requests that
overtook one that was due more than 5 ms before, the greatest level in flight, and CPU a request. No thresholds.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np

from benchlab.doctor.rig import Rig, Stage
from benchlab.loadgen.job import StageJob
from benchlab.records.record import Record
from benchlab.units import NS_PER_MS, NS_PER_S


def jobs_for(rig: Rig, seed: int, rate: float, seconds: float, cap: int, *, shared: bool) -> list[StageJob]:
    """A slice a worker: random arrivals, each on a random worker."""
    draw = np.random.default_rng(seed)
    at = np.cumsum(draw.exponential(1 / rate, round(rate * seconds)))
    owner = draw.integers(0, rig.workers, len(at))
    stage = len(rig.stages)
    start = rig._clock.monotonic_ns() + NS_PER_S // 2
    jobs = []
    for worker in range(rig.workers):
        mine = np.flatnonzero(owner == worker)
        jobs.append(
            StageJob(
                stage=stage,
                kind="open",
                start_ns=start,
                until_ns=round((seconds + 1) * NS_PER_S),
                drain_ns=5 * NS_PER_S,
                offset=0,
                at_ns=[round(at[n] * NS_PER_S) for n in mine],
                sequences=[int(n) for n in mine],
                max_inflight=cap if shared else cap // rig.workers,
                permits=str(rig._spool) if shared else None,
                workers=rig.workers,
                held_in_drain=True,
            )
        )
    return jobs


def figures(records: list[Record], cap: int, cpu_s: float) -> dict[str, float]:
    """Waits, and how well the cap's places were used while somebody waited."""
    held = np.asarray([record.held_ns for record in records]) / NS_PER_MS
    edges = []
    for record in records:
        sent, end, dispatched = record.sent_ns or 0, record.end_ns or 0, record.dispatched_ns or 0
        edges += [(sent, 1, 0), (end, -1, 0)]
        if record.held_ns:
            edges += [(dispatched, 0, 1), (dispatched + record.held_ns, 0, -1)]
    edges.sort()
    level = waiting = peak = 0
    waited = unused = 0
    for (ns, flying, queued), (later, _, _) in pairwise(edges):
        level, waiting = level + flying, waiting + queued
        peak = max(peak, level)
        if waiting > 0:
            waited += later - ns
            unused += (later - ns) * (level < cap)
    order = np.asarray([record.intended_ns for record in sorted(records, key=lambda r: r.sent_ns or 0)])
    overtaken = int((np.maximum.accumulate(order)[:-1] > order[1:] + 5 * NS_PER_MS).sum())
    return {
        "held mean": float(held.mean()),
        "held p99": float(np.percentile(held, 99)),
        "unused share": unused / waited if waited else 0.0,
        "overtaken": overtaken,
        "peak": peak,
        "CPU ms a request": cpu_s * 1e3 / len(records),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--workers", 2), ("--cap", 8), ("--rate", 300), ("--pairs", 3), ("--seconds", 4)):
        parser.add_argument(name, type=int, default=default)
    asked = parser.parse_args()
    with Rig(workers=asked.workers, tokens=4) as rig:
        rig.server.order(f"paced {5 * NS_PER_MS} {5 * NS_PER_MS}")
        rig.open(50, 0.5)
        found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for pair in range(asked.pairs):
            for shared in (False, True) if pair % 2 == 0 else (True, False):
                jobs = jobs_for(rig, pair, asked.rate, asked.seconds, asked.cap, shared=shared)
                reports = rig.pool.run_stage(jobs, lambda: None)
                rig.stages.append(done := Stage(jobs[0].stage, reports))
                records = list(rig.records([done]).values())
                found[shared].append(figures(records, asked.cap, sum(report.cpu_s for report in reports)))
        for shared, runs in found.items():
            medians = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
            words = "  ".join(f"{name} {value:.3f}" for name, value in medians.items())
            print(f"{'one cap' if shared else 'split  '}  {words}")


if __name__ == "__main__":
    main()
