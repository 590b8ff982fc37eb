"""From a load to a timetable and to the window that is judged, for every way to say how long and how to warm up."""

from __future__ import annotations

import itertools

import pytest

from benchlab.campaign.spec import Load, RunSpec, Warmup, parse_warmup
from benchlab.campaign.stages import Stage, find_window, first_item, manifest_entry, num_used, plan_stages, slices
from benchlab.errors import UsageError
from benchlab.loadgen.arrivals import Arrival
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem

S = NS_PER_S
WARMUPS = [Warmup(), Warmup(ns=2 * S), Warmup(requests=7)]
TRACE = [WorkloadItem(id=f"t{i}", prompt="x", arrival_s=i * 0.5) for i in range(40)]


def plan(load: Load, warmup: Warmup = WARMUPS[0], *, n: int | None = None, s: int | None = None, **more) -> Stage:
    spec = RunSpec((load,), None, requests=n, duration_ns=None if s is None else s * S, warmup=warmup, **more)
    return plan_stages(spec, TRACE)[0]


def inside(stage: Stage) -> int:
    assert stage.w0_ns is not None and stage.w1_ns is not None
    return sum(stage.w0_ns <= ns < stage.w1_ns for ns in stage.at_ns)


@pytest.mark.parametrize("warmup", WARMUPS, ids=str)
@pytest.mark.parametrize("kind", ["constant", "poisson", "gamma"])
def test_open_by_count_measures_exactly_so_many(warmup: Warmup, kind: str) -> None:
    stage = plan(Load("open", rate=10.0, arrival=Arrival(kind, 2.0)), warmup, n=50)

    assert inside(stage) == 50
    assert stage.planned == len(stage.at_ns) == 50 + stage.warmup_requests
    assert stage.until_ns == stage.w1_ns and stage.at_ns[-1] < (stage.w1_ns or 0)
    if warmup.ns:
        assert all(ns < warmup.ns for ns in stage.at_ns[: stage.warmup_requests])
        assert (stage.w0_ns or 0) >= warmup.ns


@pytest.mark.parametrize("warmup", WARMUPS, ids=str)
@pytest.mark.parametrize("kind", ["constant", "poisson", "gamma"])
def test_open_by_time_measures_exactly_so_long(warmup: Warmup, kind: str) -> None:
    stage = plan(Load("open", rate=10.0, arrival=Arrival(kind, 2.0)), warmup, s=5)

    assert (stage.w1_ns or 0) - (stage.w0_ns or 0) == 5 * S
    before = sum(ns < (stage.w0_ns or 0) for ns in stage.at_ns)
    assert stage.w0_ns == warmup.ns or before == warmup.requests
    assert stage.planned == len(stage.at_ns)


def test_constant_by_count_closes_its_window_where_the_next_would_have_come() -> None:
    stage = plan(Load("open", rate=4.0, arrival=Arrival("constant")), n=8)

    assert (stage.w0_ns, stage.w1_ns) == (0, 2 * S)
    assert manifest_entry(stage, RunSpec((), None))["offered_rps"] == 4.0


@pytest.mark.parametrize("warmup", WARMUPS, ids=str)
def test_closed_by_time(warmup: Warmup) -> None:
    stage = plan(Load("closed", concurrency=3), warmup, s=5)

    assert stage.planned is None and stage.until_ns == stage.w1_ns == 5 * S + warmup.ns
    assert stage.w0_ns == (None if warmup.requests else warmup.ns)


def test_closed_by_count_counts_its_warm_up_on_top() -> None:
    assert plan(Load("closed", concurrency=3), n=20).planned == 20
    assert plan(Load("closed", concurrency=3), WARMUPS[2], n=20).planned == 27
    assert plan(Load("closed", concurrency=12), WARMUPS[2], n=20).planned == 32  # all twelve begin at once


def test_closed_by_count_with_a_warm_up_time_is_refused() -> None:
    with pytest.raises(UsageError, match="warm-up time"):
        plan(Load("closed", concurrency=3), WARMUPS[1], n=20)


@pytest.mark.parametrize("warmup", WARMUPS, ids=str)
@pytest.mark.parametrize(("n", "s"), [(20, None), (None, 6), (None, None)])
def test_trace_keeps_the_times_of_the_workload(warmup: Warmup, n: int | None, s: int | None) -> None:
    stage = plan(Load("open", arrival=Arrival("trace")), warmup, n=n, s=s)

    assert (
        list(stage.at_ns)
        == [round(item.arrival_s * S) for item in TRACE if item.arrival_s is not None][: len(stage.at_ns)]
    )
    w0 = warmup.ns or round(warmup.requests * 0.5 * S)
    assert stage.w0_ns == w0
    if n is not None and not warmup.ns:
        assert n == inside(stage)
    if s is not None:
        assert (stage.w1_ns or 0) - w0 == 6 * S


def test_trace_with_a_rate_is_scaled_to_it() -> None:
    stage = plan(Load("open", rate=8.0, arrival=Arrival("trace")))

    assert pytest.approx(stage.at_ns[-1], abs=1) == 39 / 8 * S


def test_trace_without_times_and_an_empty_window_are_refused() -> None:
    with pytest.raises(UsageError, match="no arrival times"):
        plan_stages(RunSpec((Load("open", arrival=Arrival("trace")),), None), [WorkloadItem(id="a", prompt="x")])
    with pytest.raises(UsageError, match="no request falls"):
        plan(Load("open", rate=0.01), s=1)
    with pytest.raises(UsageError, match="seed"):
        plan(Load("open", rate=1.0), n=5, arrival_seed=-1)


def test_stages_do_not_share_their_draws_and_seeds_differ() -> None:
    loads = (Load("open", rate=10.0), Load("open", rate=10.0))
    first, second = plan_stages(RunSpec(loads, None, requests=20), [])
    (other, _) = plan_stages(RunSpec(loads, None, requests=20, arrival_seed=1), [])

    assert len({first.at_ns, second.at_ns, other.at_ns}) == 3


def test_c22_each_stage_has_its_own_length() -> None:
    loads = (Load("closed", concurrency=1), Load("closed", concurrency=64))
    for stage in plan_stages(RunSpec(loads, None, duration_ns=20 * S), []):
        assert (stage.until_ns, stage.count) == (20 * S, None)


def test_warm_up_by_requests_is_cut_by_the_records() -> None:
    stage = plan(Load("closed", concurrency=2), Warmup(requests=3), n=4)
    intended = [0, 0, 10, 12, 20, 21, 30]

    w0, w1 = find_window(stage, intended, [ns + 9 for ns in intended])

    assert (w0, w1) == (12, 40)
    assert sum(w0 <= ns < w1 for ns in intended) == 4


def test_users_that_begin_together_are_warm_up_together() -> None:
    stage = plan(Load("closed", concurrency=3), Warmup(requests=1), s=1)

    assert find_window(stage, [0, 0, 0, 5, 6], []) == (5, S)


@pytest.mark.parametrize("intended", [[], [0, 0], [0, 0, 0]])
def test_a_stage_that_never_left_its_warm_up_has_no_window(intended: list[int]) -> None:
    stage = plan(Load("closed", concurrency=3), Warmup(requests=3), n=9)

    w0, w1 = find_window(stage, intended, [4 for _ in intended])

    assert w0 == w1


def test_c50_the_window_of_a_closed_count_ends_with_the_last_answer() -> None:
    stage = plan(Load("closed", concurrency=1), n=2)

    assert find_window(stage, [0, S], [S, 2 * S]) == (0, 2 * S + 1)


@pytest.mark.parametrize(("workers", "users"), list(itertools.product([1, 3], [1, 4])))
def test_the_next_stage_begins_beyond_the_last_item_that_any_worker_sent(workers: int, users: int) -> None:
    spec = RunSpec((Load("closed", concurrency=users),), None, duration_ns=S, workers=workers)
    (stage,) = plan_stages(spec, [])
    jobs = slices(stage, spec, start_ns=0, offset=0)
    sent = [5 * (job.first + 1) if job.users else 0 for job in jobs]

    used = num_used(jobs, sent)

    assert used == 1 + max(job.first + k * job.step for job, n in zip(jobs, sent, strict=True) for k in range(n))
    assert num_used(jobs, [0] * workers) == 0


def test_a_trace_begins_each_stage_at_its_first_item() -> None:
    trace, other = plan(Load("open", arrival=Arrival("trace"))), plan(Load("open", rate=1.0), n=3)

    assert [first_item(trace, offset, 40) for offset in (0, 7, 41)] == [0, 40, 80]
    assert [first_item(other, offset, 40) for offset in (0, 7, 41)] == [0, 7, 41]


def test_warm_up_is_read() -> None:
    assert Warmup() == parse_warmup("none", duration_ns=S, requests=None)
    assert Warmup(ns=6 * S) == parse_warmup("auto", duration_ns=60 * S, requests=None)
    assert Warmup(ns=2 * S) == parse_warmup("auto", duration_ns=5 * S, requests=None)
    assert Warmup(requests=2) == parse_warmup("auto", duration_ns=None, requests=20)
    assert Warmup(requests=20) == parse_warmup("20req", duration_ns=None, requests=20)
    assert Warmup(ns=10 * S) == parse_warmup("10s", duration_ns=None, requests=20)
    for text in ("0req", "-1req", "req", "10"):
        with pytest.raises(UsageError):
            parse_warmup(text, duration_ns=S, requests=None)
