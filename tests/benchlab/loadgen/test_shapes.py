"""Load shapes: their laws by KS tests on seeded times, rates that change within a stage, bursts that keep the mean,
and think times."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchlab.errors import UsageError
from benchlab.loadgen.arrivals import Arrival, arrival_times, from_burstiness, parse_arrival
from benchlab.loadgen.rate_curve import Ramp, RateCurve, parse_ramp
from benchlab.loadgen.think import ThinkTime, parse_think
from benchlab.units import NS_PER_S

MMPP = parse_arrival("mmpp:high=3x,share=0.2,stay=5s")
RAMPS = ["linear:2..20", "linear:20..2", "linear:5..5", "exp:2..20", "exp:9..1", "step:2,5,10", "sine:2..20@30s"]
RANDOM = [
    Arrival("poisson"),
    Arrival("gamma", cv=0.5),
    Arrival("weibull", shape=0.7),
    parse_arrival("mmpp:high=3x,share=0.2,stay=500ms"),
]


def times(arrival: Arrival, rate: float, count: int, seed: int = 0, curve: RateCurve | None = None) -> np.ndarray:
    return arrival_times(arrival, rate=rate, until_ns=None, count=count, seed=seed, curve=curve) / NS_PER_S


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("poisson", stats.expon()),
        ("gamma:2", stats.gamma(0.25, scale=4)),
        ("weibull:0.7", stats.weibull_min(0.7, scale=1 / math.gamma(1 + 1 / 0.7))),
        ("weibull:3", stats.weibull_min(3, scale=1 / math.gamma(1 + 1 / 3))),
    ],
)
@pytest.mark.parametrize("rate", [50, 200])
def test_gaps_follow_their_law(text: str, law: stats.rv_continuous, rate: float) -> None:
    arrival = parse_arrival(text)

    # of the burstiest gaps two in a hundred are below the whole nanosecond to which instants are rounded
    gaps = np.diff(times(arrival, rate, 3_000 if arrival.cv > 1 else 20_000, seed=11)) * rate

    assert stats.kstest(gaps, law.cdf).pvalue > 0.05
    assert gaps.std() / gaps.mean() == pytest.approx(law.std(), rel=0.1)
    assert str(arrival) == text


def test_bursts_keep_the_mean_and_raise_the_spread_of_counts() -> None:
    at = times(MMPP, 40, 400_000, seed=3)

    assert len(at) / at[-1] == pytest.approx(40, rel=0.05)
    counts = np.bincount(at.astype(int))[:-1]
    # two levels, 3 and 0.5 times the mean: a second's count has the variance m + m^2 var(level), nearly
    fano = counts.var() / counts.mean()
    assert fano == pytest.approx(1 + 40 * (0.2 * 2**2 + 0.8 * 0.5**2), rel=0.15)
    poisson = np.bincount(times(Arrival("poisson"), 40, 40_000, seed=3).astype(int))[:-1]
    assert poisson.var() / poisson.mean() == pytest.approx(1, abs=0.15)
    assert parse_arrival(str(MMPP)) == MMPP


def test_within_a_spell_bursts_are_poisson() -> None:
    """With levels known to be one (high=1x) the process must be a Poisson process."""
    gaps = np.diff(times(parse_arrival("mmpp:high=1x,share=0.5,stay=1s"), 100, 20_000, seed=4)) * 100

    assert stats.kstest(gaps, stats.expon.cdf).pvalue > 0.05


def test_a_burst_may_leave_nothing_for_the_time_between() -> None:
    at = times(parse_arrival("mmpp:high=5x,share=0.2,stay=1s"), 50, 20_000, seed=5)

    assert (np.diff(at) >= 0).all() and len(at) / at[-1] == pytest.approx(50, rel=0.2)
    assert (np.diff(at) > 0.5).sum() > 20


@pytest.mark.parametrize(
    "text",
    ["mmpp:high=6x,share=0.2", "mmpp:share=0", "mmpp:share=1,high=1x", "mmpp:stay=5", "mmpp:low=1x", "mmpp:high=0.5x",
     "weibull", "weibull:0", "weibull:x", "weibull:1000", "uniform"],
)  # fmt: skip
def test_what_is_no_process_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_arrival(text)


def test_burstiness_is_the_shape_of_the_gaps() -> None:
    assert from_burstiness("1") == Arrival("poisson")
    assert from_burstiness("0.25") == Arrival("gamma", cv=2.0)
    for text in ("0", "-1", "nan", "x"):
        with pytest.raises(UsageError):
            from_burstiness(text)


@pytest.mark.parametrize("text", RAMPS)
@settings(deadline=None)
@given(begin=st.floats(0, 50), span=st.floats(0.5, 500), at=st.lists(st.floats(0, 700), min_size=1, max_size=20))
def test_a_curve_and_its_inverse_agree(text: str, begin: float, span: float, at: list[float]) -> None:
    curve = RateCurve(0.0, parse_ramp(text), begin_s=begin, span_s=span)
    t = np.sort(np.asarray(at))

    due = curve.due_by(t)

    assert (np.diff(due) >= 0).all()
    assert np.allclose(curve.when(due), t, rtol=1e-7, atol=1e-6)
    small = 1e-4
    slope = (curve.due_by(t + small) - curve.due_by(t - small)) / (2 * small)
    smooth = np.abs(curve.rate(t + small) - curve.rate(t - small)) < 0.1
    assert np.allclose(slope[smooth], curve.rate(t)[smooth], rtol=1e-3, atol=0.06)


@pytest.mark.parametrize("text", RAMPS)
def test_a_ramp_has_its_mean_over_the_stage_and_waits_for_the_warm_up(text: str) -> None:
    ramp = parse_ramp(text)
    curve = RateCurve(ramp.mean, ramp, begin_s=10, span_s=90)

    due = curve.due_by(np.asarray([0.0, 10.0, 100.0, 101.0]))

    assert due[2] - due[1] == pytest.approx(90 * ramp.mean)
    assert due[1] == pytest.approx(10 * ramp.rates[0])
    assert str(parse_ramp(str(ramp))) == str(ramp)


@pytest.mark.parametrize("text", RAMPS)
@pytest.mark.parametrize("arrival", [Arrival("constant"), *RANDOM], ids=str)
def test_every_process_follows_every_curve(text: str, arrival: Arrival) -> None:
    ramp = parse_ramp(text)
    curve = RateCurve(ramp.mean, ramp, begin_s=100, span_s=1800)

    at = arrival_times(arrival, rate=ramp.mean, until_ns=1900 * NS_PER_S, count=None, seed=2, curve=curve) / NS_PER_S

    # stretched back, it is the process of rate one
    even = curve.due_by(at)
    slack = {"constant": 1e-3, "mmpp": 0.25}.get(arrival.kind, 0.08)
    for begin, end in ((0, 100), (100, 1000), (1000, 1900)):
        expected = float(np.diff(curve.due_by(np.asarray([begin, end], dtype=float)))[0])
        assert int(((at >= begin) & (at < end)).sum()) == pytest.approx(
            expected, abs=4 * math.sqrt(expected) + 2, rel=slack
        )
    if arrival.kind == "constant":
        assert np.allclose(np.diff(even), 1, atol=1e-5)
    elif arrival.kind == "poisson":
        assert stats.kstest(np.diff(even), stats.expon.cdf).pvalue > 0.01


@pytest.mark.parametrize(
    "text",
    ["", "linear", "linear:2", "linear:2..x", "linear:0..5", "linear:2..5@3s", "tan:1..2", "step:", "sine:1..2@"],
)
def test_what_is_no_ramp_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_ramp(text)


@settings(deadline=None)
@given(
    arrival=st.sampled_from(RANDOM),
    few=st.integers(1, 300),
    until_ns=st.integers(1, 20 * NS_PER_S),
    seed=st.integers(0, 2**40),
    ramp=st.none() | st.sampled_from(RAMPS).map(parse_ramp),
)
def test_the_same_seed_gives_the_same_first_times(
    arrival: Arrival, few: int, until_ns: int, seed: int, ramp: Ramp | None
) -> None:
    curve = None if ramp is None else RateCurve(ramp.mean, ramp, begin_s=1, span_s=20)
    long = arrival_times(arrival, rate=40, until_ns=None, count=2000, seed=seed, curve=curve)
    short = arrival_times(arrival, rate=40, until_ns=None, count=few, seed=seed, curve=curve)
    until = arrival_times(arrival, rate=40, until_ns=until_ns, count=None, seed=seed, curve=curve)

    assert (short == long[: few + 1]).all()
    shared = min(len(until), len(long))
    assert (until[:shared] == long[:shared]).all() and (until < until_ns).all()
    assert (np.diff(long) >= 0).all()


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("exp:2s", stats.expon(scale=2)),
        ("uniform:1s..3s", stats.uniform(1, 2)),
        ("lognormal:2s,0.5", stats.lognorm(0.5, scale=2)),
    ],
)
def test_think_times_follow_their_law_and_depend_on_nothing_else(text: str, law: stats.rv_continuous) -> None:
    think = parse_think(text)

    drawn = [think.draw(5, 0, user, turn) for user in range(20) for turn in range(200)]

    assert stats.kstest(np.asarray(drawn) / NS_PER_S, law.cdf).pvalue > 0.05
    assert drawn[7] == think.draw(5, 0, 0, 7) != think.draw(6, 0, 0, 7)
    assert len({think.draw(5, 0, 1, 1), think.draw(5, 1, 1, 1), think.draw(5, 0, 2, 1)}) == 3
    assert str(think) == text


def test_a_constant_think_time_and_what_is_none() -> None:
    assert parse_think("500ms") == ThinkTime("constant", NS_PER_S // 2) and parse_think("0s").draw(0, 0, 0, 0) == 0
    for text in ("2", "exp:", "exp:-1s", "uniform:3s..1s", "uniform:1s", "lognormal:2s", "lognormal:2s,x", "pareto:1s"):
        with pytest.raises(UsageError):
            parse_think(text)
