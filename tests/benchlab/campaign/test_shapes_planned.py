"""-n, --duration and --warmup for every load shape: what is planned, which window is judged, what the manifest says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.campaign.load_workload import load_workload
from benchlab.campaign.spec import Load, RunSpec, Warmup
from benchlab.campaign.stages import (
    Stage,
    find_window,
    first_item,
    manifest_entry,
    num_used,
    offered_rps,
    plan_stages,
    slices,
)
from benchlab.errors import UsageError
from benchlab.loadgen.arrivals import Arrival, parse_arrival
from benchlab.loadgen.rate_curve import parse_ramp
from benchlab.loadgen.session_graph import SessionGraph, in_sessions
from benchlab.loadgen.think import ThinkTime
from benchlab.loadgen.trace_times import TraceShape, parse_trace_shape
from benchlab.loadgen.worker import make_plan
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import to_bytes
from tests.benchlab.loadgen.test_sessions import DIAMOND, chat

S = NS_PER_S
WARMUPS = [Warmup(), Warmup(ns=2 * S), Warmup(requests=7)]
ARRIVALS = [parse_arrival(text) for text in ("constant", "poisson", "gamma:2", "weibull:0.6", "mmpp")]
RAMPS = [parse_ramp(text) for text in ("linear:5..20", "exp:20..5", "step:5,20,5", "sine:5..20@2s")]
TRACE = [WorkloadItem(id=f"t{i}", prompt="x", arrival_s=i * 0.5) for i in range(40)]
SESSIONS = in_sessions(chat("a", 5) + chat("b", 3) + DIAMOND + [WorkloadItem(id="alone", prompt="x")])


def spec_of(load: Load, warmup: Warmup = WARMUPS[0], *, n: int | None = None, s: int | None = None, **more) -> RunSpec:
    return RunSpec((load,), None, requests=n, duration_ns=None if s is None else s * S, warmup=warmup, **more)


def plan(load: Load, warmup: Warmup = WARMUPS[0], *, items: list[WorkloadItem] = TRACE, **more) -> Stage:
    return plan_stages(spec_of(load, warmup, **more), items)[0]


def inside(stage: Stage) -> int:
    assert stage.w0_ns is not None and stage.w1_ns is not None
    return sum(stage.w0_ns <= ns < stage.w1_ns for ns in stage.at_ns)


@pytest.mark.parametrize("warmup", WARMUPS, ids=str)
@pytest.mark.parametrize("arrival", ARRIVALS, ids=str)
@pytest.mark.parametrize("ramp", [None, *RAMPS], ids=str)
def test_open_shapes_measure_what_was_asked(warmup: Warmup, arrival: Arrival, ramp) -> None:
    load = Load("open", rate=10.0 if ramp is None else ramp.mean, arrival=arrival, ramp=ramp)

    counted, timed = plan(load, warmup, n=50), plan(load, warmup, s=5)

    assert inside(counted) == 50 and counted.planned == 50 + counted.warmup_requests
    assert (timed.w1_ns or 0) - (timed.w0_ns or 0) == 5 * S and timed.planned == len(timed.at_ns)
    for stage in (counted, timed):
        assert stage.until_ns == stage.w1_ns and list(stage.at_ns) == sorted(stage.at_ns)
        before = sum(ns < (stage.w0_ns or 0) for ns in stage.at_ns)
        assert before == warmup.requests if warmup.requests else (stage.w0_ns or 0) >= warmup.ns
        entry = manifest_entry(stage, spec_of(load, warmup, n=50))
        json.dumps(entry)
        assert entry["arrival"] == str(arrival) and entry["shape"]["ramp"] == (None if ramp is None else str(ramp))


def test_a_ramp_begins_with_the_measured_window() -> None:
    ramp = parse_ramp("linear:10..90")
    stage = plan(Load("open", rate=ramp.mean, arrival=Arrival("constant"), ramp=ramp), Warmup(ns=2 * S), s=8)

    per_s = np.bincount([ns // S for ns in stage.at_ns])

    assert list(per_s) == pytest.approx([10, 10, 15, 25, 35, 45, 55, 65, 75, 85], abs=1)
    assert stage.load.name == "linear:10..90"


def test_c22_stages_of_one_seed_do_not_share_their_bursts() -> None:
    loads = (Load("open", rate=10.0, arrival=ARRIVALS[4]), Load("open", rate=10.0, arrival=ARRIVALS[4]))
    first, second = plan_stages(RunSpec(loads, None, requests=20), [])
    (other, _) = plan_stages(RunSpec(loads, None, requests=20, seed=7), [])

    assert first.at_ns != second.at_ns and first.at_ns == other.at_ns  # the content's seed moves no arrival


# -- sessions


@pytest.mark.parametrize("warmup", WARMUPS, ids=str)
def test_counted_sessions_hold_at_least_so_many_requests_and_are_whole(warmup: Warmup) -> None:
    stage = plan(Load("open", rate=2.0), warmup, n=20, items=SESSIONS)
    graph = SessionGraph(SESSIONS)

    sizes = [len(graph.places(session)) for session in range(len(stage.at_ns))]
    begun = sum(ns < warmup.ns for ns in stage.at_ns)
    assert sum(sizes) == stage.planned and (stage.until_ns, stage.w1_ns) == (None, None)
    assert sum(sizes[begun:]) >= 20 + warmup.requests > sum(sizes[begun:-1])
    assert stage.w0_ns == (None if warmup.requests else warmup.ns)


@pytest.mark.parametrize("warmup", WARMUPS, ids=str)
@pytest.mark.parametrize("load", [Load("open", rate=3.0), Load("closed", concurrency=2)], ids=["open", "closed"])
def test_timed_sessions_have_their_window_in_time(warmup: Warmup, load: Load) -> None:
    stage = plan(load, warmup, s=10, items=SESSIONS)

    assert stage.planned is None and stage.until_ns == stage.w1_ns == 10 * S + warmup.ns
    assert stage.w0_ns == (None if warmup.requests else warmup.ns)
    entry = manifest_entry(stage, spec_of(load, warmup, s=10))
    assert entry["offered_rps"] is None and entry["asked_rps"] is None
    assert entry["shape"]["sessions"]["asked_per_s"] == load.rate
    assert offered_rps(stage, 0, 10 * S) is None


def test_counted_closed_sessions_are_whole_and_a_warm_up_time_is_refused() -> None:
    load = Load("closed", concurrency=2)

    assert plan(load, n=6, items=SESSIONS).planned == 8 and plan(load, n=6, items=SESSIONS).count == 2
    assert plan(load, n=9, items=SESSIONS).planned == 12
    with pytest.raises(UsageError, match="warm-up time"):
        plan(load, WARMUPS[1], n=6, items=SESSIONS)


@settings(deadline=None)
@given(
    workers=st.integers(1, 5),
    loads=st.lists(
        st.sampled_from([Load("open", rate=5.0), Load("closed", concurrency=1), Load("closed", concurrency=4)]),
        min_size=1,
        max_size=3,
    ),
    n=st.integers(1, 40),
    fail=st.booleans(),
)
def test_slices_of_sessions_are_whole_and_stages_go_on_where_the_last_one_ended(
    workers: int, loads: list[Load], n: int, fail: bool
) -> None:
    spec = replace(spec_of(loads[0], n=n, workers=workers), loads=tuple(loads))
    stages = plan_stages(spec, SESSIONS)
    graph = SessionGraph(SESSIONS)
    offset = 0
    for stage in stages:
        jobs = slices(stage, spec, start_ns=0, offset=first_item(stage, offset, len(SESSIONS)))
        begun, seen, owner = [], [], {}
        for worker, job in enumerate(jobs):
            dues, sessions = run_out(job, fail)
            begun.append(sessions)
            seen += dues
            for position in dues:
                session = graph.session_at(offset + position)
                session -= graph.position(session) != offset + position
                assert owner.setdefault(session, worker) == worker
        used = num_used(jobs, begun, graph)
        assert sorted(seen) == list(range(used)) and used == stage.planned
        offset += used


def run_out(job, fail: bool) -> tuple[list[int], int]:
    """Every request of a slice, taken or dropped, and how many sessions it began."""
    made = make_plan(job, SESSIONS)
    seen: list[int] = []
    now = 0
    while (due_ns := made.next_due_ns()) is not None:
        now = max(now, due_ns) + 1
        for due in made.take(now):
            seen.append(due.sequence)
            bad = fail and due.sequence % 3 == 0
            made.ended(due, now, Outcome.TIMEOUT if bad else Outcome.OK)
        seen += [each.due.sequence for each in made.dropped()]
    return seen + [each.due.sequence for each in made.dropped()], made.facts().sessions or 0


def test_the_window_of_counted_sessions_is_found_in_the_records() -> None:
    stage = plan(Load("open", rate=2.0), Warmup(requests=3), n=20, items=SESSIONS)

    assert find_window(stage, [0, 5, 9, 12, 30], [4, 8, 40]) == (12, 41)


def test_a_shared_cap_leaves_no_worker_idle() -> None:
    spec = spec_of(Load("open", rate=50.0), n=40, workers=4, max_inflight=2)
    (stage,) = plan_stages(spec, [])

    shared = slices(stage, spec, start_ns=0, offset=0, permits="/folder")
    split = slices(stage, spec, start_ns=0, offset=0)

    assert [(len(job.at_ns), job.max_inflight, job.permits) for job in shared] == [(10, 2, "/folder")] * 4
    assert [(len(job.at_ns), job.max_inflight, job.permits) for job in split] == [(20, 1, None)] * 2 + [
        (0, None, None)
    ] * 2
    (alone,) = slices(stage, replace(spec, workers=1), start_ns=0, offset=0, permits="/folder")
    assert (alone.max_inflight, alone.permits) == (2, None)


# -- traces


def traced(shape: TraceShape, items: list[WorkloadItem] = TRACE, **more) -> Stage:
    return plan(Load("open", arrival=Arrival("trace")), trace=shape, items=items, **more)


def test_a_trace_is_scaled_and_looped() -> None:
    assert traced(TraceShape(scale=0.5)).at_ns[-1] == round(19.5 * 0.5 * S)
    looped = traced(TraceShape(loop=3, scale=2.0))
    assert len(looped.at_ns) == 120 and set(np.diff(looped.at_ns)) == {S}  # one mean gap between the rounds
    assert looped.planned == 120


def test_arrivals_are_spread_within_their_tick_and_keep_their_order() -> None:
    items = [WorkloadItem(id=str(n), prompt="x", arrival_s=float(n // 10)) for n in range(400)]

    stage = traced(TraceShape(spread_ns=S), items)
    other = traced(TraceShape(spread_ns=S), items, arrival_seed=1)

    at = np.asarray(stage.at_ns)
    assert list(at // S) == [n // 10 for n in range(400)] and (np.diff(at) > 0).all()
    assert 0.4 < np.mean(at % S) / S < 0.6
    assert stage.at_ns == traced(TraceShape(spread_ns=S), items).at_ns != other.at_ns


def test_a_clip_leaves_the_rest_out_and_says_so(tmp_path: Path) -> None:
    data = tmp_path / "trace.jsonl"
    data.write_bytes(to_bytes(TRACE))
    spec = replace(spec_of(Load("open", arrival=Arrival("trace"))), data=data)

    found = load_workload(replace(spec, trace=parse_trace_shape(None, "5s..7s", None, None)))

    assert [item.id for item in found.items] == ["t10", "t11", "t12", "t13"]
    assert any("36 items left out" in note for note in found.notes)
    with pytest.raises(UsageError, match="nothing arrives"):
        load_workload(replace(spec, trace=parse_trace_shape(None, "100s..200s", None, None)))


def test_what_is_no_shape_of_a_trace_is_refused() -> None:
    for given_ in ((0.0, None, None, None), (None, "5s", None, None), (None, "7s..5s", None, None)):
        with pytest.raises(UsageError):
            parse_trace_shape(*given_)
    with pytest.raises(UsageError, match="too many"):
        traced(TraceShape(loop=10_000_000))


@pytest.mark.parametrize(("n", "s"), [(6, None), (None, 4), (None, None)])
def test_sessions_of_a_trace_begin_at_its_times(n: int | None, s: int | None) -> None:
    items = [*with_arrival(chat("a", 3), 0.0), *with_arrival(chat("b", 2), 1.5), *with_arrival(chat("c", 1), 6.0)]

    stage = traced(TraceShape(), items, n=n, s=s)

    starts = [0, round(1.5 * S), 6 * S]
    assert list(stage.at_ns) == (starts if n == s else starts[:3] if n else starts[:2])
    assert stage.planned == (None if s else 6)


def with_arrival(items: list[WorkloadItem], arrival_s: float) -> list[WorkloadItem]:
    return [msgspec.structs.replace(items[0], arrival_s=arrival_s), *items[1:]]


def test_pauses_that_nobody_makes_are_refused() -> None:
    spec = replace(spec_of(Load("open", rate=2.0), n=4), think=ThinkTime(first=S))
    with pytest.raises(UsageError, match="nobody waits"):
        plan_stages(spec, [])
    assert plan_stages(spec, SESSIONS) and plan_stages(replace(spec, loads=(Load("closed", concurrency=1),)), [])
