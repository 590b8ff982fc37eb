"""Stamps against the truth: the arithmetic on made pairs, and the bounds that hold by construction on real ones."""

from __future__ import annotations

import sys
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.doctor import ceiling, exactness
from benchlab.doctor.exactness import covered, error_of, first_errors, gap_errors, pair
from benchlab.doctor.rig import Rig
from benchlab.doctor.truth import Written
from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Record
from benchlab.units import NS_PER_MS

T0 = 1_000_000


def record(name: str, stamps: list[int], slack: list[int] | None = None, outcome: Outcome = Outcome.OK) -> Record:
    kinds = [Kind.ROLE, *[Kind.CONTENT] * len(stamps), Kind.FINISH]
    first = stamps[0] if stamps else 0
    last = stamps[-1] if stamps else 0
    return Record(
        name, 0, "i", outcome, 0, chunk_ns=[first, *stamps, last], chunk_kind=kinds,
        chunk_slack_ns=[0, *(slack or [0] * len(stamps)), 0], chunk_tokens=[None] * (len(stamps) + 2),
    )  # fmt: skip


def written(name: str, before: list[int], width: int = 1000) -> Written:
    return Written(name, 0, array("q", [T0 + b for b in before]), array("q", [T0 + b + width for b in before]))


def test_pairs_are_lined_up_by_id_and_place() -> None:
    records = [record("a", [100, 200]), record("b", [50]), record("c", [1]), record("d", [1], outcome=Outcome.TIMEOUT)]
    truth = {"b": written("b", [40]), "a": written("a", [90, 190]), "c": written("c", [1, 2]), "d": written("d", [1])}

    pairs = pair(records, truth, T0)

    assert pairs.stamp.tolist() == [T0 + 100, T0 + 200, T0 + 50]
    assert pairs.before.tolist() == [T0 + 90, T0 + 190, T0 + 40]
    assert (pairs.row.tolist(), pairs.place.tolist(), pairs.unmatched) == ([0, 0, 1], [0, 1, 0], 2)


def test_errors_are_against_the_clock_before_the_write() -> None:
    ms = NS_PER_MS
    records = [record("a", [3 * ms, 5 * ms, 9 * ms])]
    pairs = pair(records, {"a": written("a", [2 * ms, 4 * ms, 6 * ms])}, T0)

    assert first_errors(pairs) == pytest.approx([1.0])
    assert gap_errors(pairs) == pytest.approx([0.0, 2.0])


def test_merged_chunks_are_left_out_of_the_errors_and_counted() -> None:
    ms = NS_PER_MS
    truth = {"a": written("a", [ms, 2 * ms, 3 * ms])}
    pairs = pair([record("a", [ms, 3 * ms, 3 * ms], [0, 2 * ms, 0])], truth, T0)
    found = error_of(pairs, stamps="kernel", clock_error_ns=0, cpu_share=0.1)

    assert found.gap.n == 0 and found.first.n == 1
    assert found.merged_share == pytest.approx(1 / 3) and found.covered_share == 1.0


@pytest.mark.parametrize(
    ("stamp", "slack", "holds"),
    [(10_000, 9_000, True), (10_000, 2_000, False), (3_000, 500, False), (5_500, 1, True), (4_900, 1, True)],
)
def test_slack_covers_the_truth_or_it_does_not(stamp: int, slack: int, holds: bool) -> None:
    pairs = pair([record("a", [stamp], [slack])], {"a": written("a", [5_000])}, T0)

    assert covered(pairs, clock_error_ns=100).tolist() == [holds]


def test_stamps_before_their_write_are_counted() -> None:
    pairs = pair([record("a", [4_000, 9_000])], {"a": written("a", [5_000, 8_500])}, T0)

    assert error_of(pairs, stamps="kernel", clock_error_ns=999, cpu_share=0).early == 1
    assert error_of(pairs, stamps="kernel", clock_error_ns=1001, cpu_share=0).early == 0


def test_nothing_to_compare_is_said_as_such() -> None:
    found = error_of(pair([], {}, T0), stamps="kernel", clock_error_ns=0, cpu_share=0)

    assert (found.first.n, found.first.p50, found.gap.max, found.rate, found.covered_share) == (0, None, None, 0, None)


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=30, unique=True), st.integers(0, 10**6))
def test_a_constant_lateness_is_an_error_of_the_first_chunk_and_of_no_gap(times: list[int], late: int) -> None:
    times = sorted(times)
    pairs = pair([record("a", [t + late for t in times])], {"a": written("a", times)}, T0)

    assert first_errors(pairs) == pytest.approx([late / NS_PER_MS])
    assert np.abs(gap_errors(pairs)).max() == pytest.approx(0, abs=1e-9)


@pytest.mark.skipif(sys.platform != "linux", reason="kernel stamps are Linux's")
def test_bounds_that_hold_by_construction_whoever_else_computes() -> None:
    """Real workers at three rates on a host of any noise: no kernel stamp lies before its write began, an unmerged
    chunk was received within its write, and the slack of a merged one covers the truth."""
    with Rig(workers=2, tokens=ceiling.TOKENS, kernel_stamps=lambda worker: worker == 0) as rig:
        stages = [exactness.run_rate(rig, rate, 0.4, workers=[0, 1]) for rate in (200.0, 1000.0, 4000.0)]
        truth = rig.server.truth()
        records = list(rig.records(stages).values())
        errors = exactness.errors_of(rig, [])
        assert errors == []
        clock = max(report.offset_error_ns for stage in stages for report in stage.reports) + 2_000

    kernel = [record for record in records if record.worker == 0]
    assert kernel and {record.stamp_source for record in kernel} == {"kernel"}
    pairs = pair(kernel, truth, rig.t0_ns)
    assert pairs.unmatched == 0 and len(pairs.stamp) > 1000
    assert (pairs.stamp >= pairs.before - clock).all()
    sharp = pairs.slack == 0
    # loopback delivers inside the write: the packet was received before the write returned
    within = pairs.stamp[sharp] <= pairs.after[sharp] + clock
    assert within.mean() > 0.999
    assert covered(pairs, clock).all()
    callback = pair([record for record in records if record.worker == 1], truth, rig.t0_ns)
    assert (callback.stamp >= callback.before - clock).all()
    assert {record.stamp_source for record in records if record.worker == 1} == {"callback"}
