"""How far the client's stamps are from what the server knows, at several event rates, kernel and callback side by side.

The one idea: pairs of the same event, from two processes on one clock. The time of a chunk is compared with the clock
just before its write (loopback delivers early in it: what the write takes after that is the server's own affair), gaps
with gaps. A chunk of a merged read is judged by its slack instead: the true time must lie
within it. Pure but for `measure`. It must not know sockets or formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchlab.doctor.rig import Rig, Stage
from benchlab.doctor.truth import Written
from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Record
from benchlab.units import NS_PER_MS, NS_PER_S

TOKENS = 16
GAP_NS = 10 * NS_PER_MS
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spread:
    """Absolute errors in ms: n of them, median, 99th percentile, largest. None where there were none."""

    n: int
    p50: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class Error:
    """How exact one client was at one rate.

    first: |stamp - truth| of the first content chunk. gap: |gap - true gap| between chunks that were not merged.
    merged_share: content chunks that shared a read with a later event. covered_share: of those, the ones whose true
    time lies within their slack (None where none were). early: stamps before the server's write had begun, by more
    than the clocks' own error. clock_error_ms: of the wall clock's offset. rate: events a second as written.
    """

    stamps: str
    rate: float
    first: Spread
    gap: Spread
    merged_share: float
    covered_share: float | None
    early: int
    clock_error_ms: float
    cpu_share: float
    unmatched: int


@dataclass(frozen=True, slots=True)
class Pairs:
    """Content chunks of one client beside the truth, all int64 ns on one clock: stamp, slack, before, after; `row` is
    the answer that a chunk belongs to, `place` its place there. `unmatched`: answers whose chunks are not as many as
    were written."""

    stamp: Ints
    slack: Ints
    before: Ints
    after: Ints
    row: Ints
    place: Ints
    unmatched: int


def pair(records: Sequence[Record], truth: Mapping[str, Written], t0_ns: int) -> Pairs:
    """Line the client's chunks up with the server's log by request id and place."""
    columns: list[list[Sequence[int]]] = [[], [], [], [], [], []]
    unmatched = row = 0
    for record in records:
        written = truth.get(record.request_id)
        kept = [k for k, kind in enumerate(record.chunk_kind) if kind is Kind.CONTENT]
        if record.outcome is not Outcome.OK or written is None or len(kept) != len(written.before_ns):
            unmatched += 1
            continue
        columns[0].append([record.chunk_ns[k] + t0_ns for k in kept])
        columns[1].append([record.chunk_slack_ns[k] for k in kept])
        columns[2].append(written.before_ns)
        columns[3].append(written.after_ns)
        columns[4].append([row] * len(kept))
        columns[5].append(range(len(kept)))
        row += 1
    joined = [np.concatenate([np.asarray(part, dtype=np.int64) for part in parts or [[]]]) for parts in columns]
    stamp, slack, before, after, rows, place = joined
    return Pairs(stamp, slack, before, after, rows, place, unmatched)


def first_errors(pairs: Pairs) -> npt.NDArray[np.float64]:
    """|stamp - truth| in ms of first content chunks with no slack."""
    firsts = (pairs.place == 0) & (pairs.slack == 0)
    return np.asarray(np.abs(pairs.stamp - pairs.before)[firsts] / NS_PER_MS)


def gap_errors(pairs: Pairs) -> npt.NDArray[np.float64]:
    """|gap - true gap| in ms of neighbouring content chunks that both have no slack."""
    sharp = pairs.slack == 0
    both = (np.diff(pairs.row) == 0) & sharp[1:] & sharp[:-1]
    return np.asarray(np.abs(np.diff(pairs.stamp) - np.diff(pairs.before))[both] / NS_PER_MS)


def covered(pairs: Pairs, clock_error_ns: int) -> npt.NDArray[np.bool_]:
    """For each merged chunk: the span that its record states, [stamp - slack, stamp], meets the span of its write."""
    merged = pairs.slack > 0
    early = pairs.stamp - pairs.slack - clock_error_ns
    return ((early <= pairs.after) & (pairs.before <= pairs.stamp + clock_error_ns))[merged]


def spread(errors: npt.NDArray[np.float64]) -> Spread:
    """Median, p99 and largest."""
    if not len(errors):
        return Spread(0, None, None, None)
    p50, p99 = (float(q) for q in np.quantile(errors, [0.5, 0.99]))
    return Spread(len(errors), p50, p99, float(errors.max()))


def error_of(pairs: Pairs, *, stamps: str, clock_error_ns: int, cpu_share: float) -> Error:
    """The figures of one client at one rate."""
    merged = pairs.slack > 0
    within = covered(pairs, clock_error_ns)
    span = float(pairs.before.max() - pairs.before.min()) / NS_PER_S if len(pairs.before) > 1 else 0.0
    return Error(
        stamps=stamps,
        rate=len(pairs.before) / span if span else 0.0,
        first=spread(first_errors(pairs)),
        gap=spread(gap_errors(pairs)),
        merged_share=float(merged.mean()) if len(merged) else 0.0,
        covered_share=float(within.mean()) if len(within) else None,
        early=int((pairs.stamp < pairs.before - clock_error_ns).sum()),
        clock_error_ms=clock_error_ns / NS_PER_MS,
        cpu_share=cpu_share,
        unmatched=pairs.unmatched,
    )


def errors_of(rig: Rig, stages: Sequence[Stage]) -> list[Error]:
    """The figures of every loaded worker of these stages, stage by stage."""
    truth = rig.server.truth()
    records = list(rig.records(stages).values())
    found: list[Error] = []
    for stage in stages:
        for report in stage.reports:
            if not report.requests:
                continue
            mine = [record for record in records if record.stage == stage.number and record.worker == report.worker]
            share = report.cpu_s / report.wall_s if report.wall_s else 0.0
            kernel = any(record.stamp_source == "kernel" for record in mine)
            pairs = pair(mine, truth, rig.t0_ns)
            name = "kernel" if kernel else "callback"
            found.append(error_of(pairs, stamps=name, clock_error_ns=report.offset_error_ns, cpu_share=share))
    return found


def run_rate(rig: Rig, rate: float, seconds: float, *, workers: list[int]) -> Stage:
    """`rate` events a second on each of these workers: paced streams, evenly begun."""
    rig.server.order(f"paced {20 * NS_PER_MS} {GAP_NS} {TOKENS}")
    return rig.open(rate / TOKENS, seconds, workers=workers)


def measure(rig: Rig, rates: Sequence[float], top_rate: float, *, kernel: int, callback: int) -> list[Error]:
    """Errors at `rates`, both clients at once, and at `top_rate`, one after the other. `kernel`, `callback`: which
    worker of the rig stamps so."""
    stages = [run_rate(rig, rate, 0.8, workers=[kernel, callback]) for rate in rates]
    stages += [run_rate(rig, top_rate, 0.8, workers=[worker]) for worker in (kernel, callback)]
    return errors_of(rig, stages)
