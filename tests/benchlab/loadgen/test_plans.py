"""Plans: never before due, each due once, slices that make up the whole, nothing after a stop."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from benchlab.campaign.spec import Load, RunSpec
from benchlab.campaign.stages import plan_stages, slices
from benchlab.loadgen.arrivals import Arrival
from benchlab.loadgen.closed_loop import ClosedLoop
from benchlab.loadgen.open_loop import OpenLoop
from benchlab.loadgen.plan import Due, LoadPlan
from benchlab.loadgen.worker import make_plan

TIMES = st.lists(st.integers(0, 10**12), max_size=60).map(sorted)


def open_loop(times: list[int]) -> OpenLoop:
    return OpenLoop(times, range(len(times)), range(len(times)))


def walk(plan: LoadPlan, steps: list[int], *, took: int = 1) -> tuple[list[Due], int]:
    """Take at these instants (and at the end), each request ending `took` ns later; all dues and the last instant."""
    seen: list[Due] = []
    under_way: list[tuple[int, Due]] = []
    now = 0
    for step in steps:
        now += step
        for at, due in [entry for entry in under_way if entry[0] <= now]:
            under_way.remove((at, due))
            plan.ended(due, now)
        new = plan.take(now)
        assert all(due.at_ns <= now for due in new)
        under_way += [(now + took, due) for due in new]
        seen += new
    return seen, now


@given(times=TIMES, steps=st.lists(st.integers(0, 10**11), max_size=30))
def test_an_open_loop_issues_each_due_once_in_order_and_never_early(times: list[int], steps: list[int]) -> None:
    plan = open_loop(times)

    seen, now = walk(plan, steps)

    assert [ns for ns in times if ns <= now][: len(seen)] == [due.at_ns for due in seen]
    rest = plan.take(10**13)
    assert list(range(len(times))) == [due.sequence for due in [*seen, *rest]]
    assert plan.next_due_ns() is None and plan.take(10**13) == []


@given(times=TIMES, at=st.integers(0, 10**12), before=st.integers(0, 10**12))
def test_a_stopped_open_loop_wants_nothing_after(times: list[int], at: int, before: int) -> None:
    plan = open_loop(times)
    first = plan.take(min(before, at))

    plan.stop(at)

    rest = plan.take(10**13)
    assert all(due.at_ns < at for due in rest) and plan.next_due_ns() is None
    assert len(first) + len(rest) == max(len(first), sum(ns < at for ns in times))


@given(
    users=st.integers(1, 9),
    count=st.integers(0, 40),
    think=st.integers(0, 50),
    took=st.integers(1, 30),
    steps=st.lists(st.integers(1, 40), max_size=60),
)
def test_a_closed_loop_keeps_one_request_a_user(
    users: int, count: int, think: int, took: int, steps: list[int]
) -> None:
    plan = ClosedLoop(list(range(users)), lambda s: s, count=count, think_ns=think)

    seen, _ = walk(plan, steps, took=took)

    assert len({due.sequence for due in seen}) == len(seen) <= count
    for user in range(users):
        mine = [due.at_ns for due in seen if due.user == user]
        assert mine == sorted(mine)
        assert all(later - earlier >= think + took for earlier, later in itertools.pairwise(mine))


def test_a_closed_loop_by_time_makes_nothing_due_at_its_end() -> None:
    plan = ClosedLoop([0], lambda s: s, until_ns=100)
    (due,) = plan.take(0)

    plan.ended(due, 100)

    assert plan.next_due_ns() is None


def test_a_stopped_closed_loop_makes_nothing_more() -> None:
    plan = ClosedLoop([0, 1], lambda s: s, think_ns=50)
    first, second = plan.take(0)
    plan.ended(first, 10)

    plan.stop(20)
    plan.ended(second, 30)

    assert plan.next_due_ns() is None and plan.take(10**9) == []


@given(workers=st.integers(1, 9), count=st.integers(1, 60), cap=st.none() | st.integers(1, 12))
def test_c68_slices_partition_the_timetable(workers: int, count: int, cap: int | None) -> None:
    spec = RunSpec((Load("open", rate=50.0),), None, requests=count, workers=workers, max_inflight=cap)
    (stage,) = plan_stages(spec, [])

    jobs = slices(stage, spec, start_ns=0, offset=0)

    dues = [due for job in jobs for due in make_plan(job).take(10**13)]
    assert workers == len(jobs)
    assert list(range(count)) == sorted(due.sequence for due in dues)
    assert list(stage.at_ns) == [due.at_ns for due in sorted(dues, key=lambda due: due.sequence)]
    working = [job for job in jobs if job.at_ns]
    assert cap is None or (
        sum(job.max_inflight or 0 for job in working) <= cap and all(job.max_inflight for job in working)
    )


@given(
    workers=st.integers(1, 9),
    users=st.integers(1, 12),
    count=st.integers(1, 40),
    cap=st.none() | st.integers(1, 12),
)
def test_c68_closed_slices_hold_every_user_and_request_once(
    workers: int, users: int, count: int, cap: int | None
) -> None:
    load = Load("closed", concurrency=users)
    spec = RunSpec((load,), None, requests=count, workers=workers, max_inflight=cap)
    (stage,) = plan_stages(spec, [])

    jobs = slices(stage, spec, start_ns=0, offset=0)

    assert list(range(users)) == sorted(user for job in jobs for user in job.users)
    assert stage.count == sum(job.count or 0 for job in jobs)
    seen: list[int] = []
    for job in jobs:
        plan = make_plan(job)
        while dues := plan.take(10**9):
            seen += [due.sequence for due in dues]
            for due in dues:
                plan.ended(due, 5)
    assert count == len(seen) == len(set(seen))


def test_bursts_shorter_than_a_nanosecond_stay_inside_the_stage() -> None:
    for seed in range(200):
        load = Load("open", rate=10.0, arrival=Arrival("gamma", 10.0))
        spec = RunSpec((load,), None, requests=20, arrival_seed=seed)
        (stage,) = plan_stages(spec, [])
        assert stage.at_ns[-1] < (stage.until_ns or 0)
