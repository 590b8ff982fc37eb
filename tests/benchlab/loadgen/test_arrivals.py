"""Arrival processes: even, exponential or bursty; the same seed gives the same times whatever is asked of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchlab.errors import UsageError
from benchlab.loadgen.arrivals import Arrival, arrival_times, parse_arrival
from benchlab.units import NS_PER_S

POISSON, CONSTANT = Arrival("poisson"), Arrival("constant")


def counted(arrival: Arrival, rate: float, count: int, seed: int = 0) -> np.ndarray:
    return arrival_times(arrival, rate=rate, until_ns=None, count=count, seed=seed)


def timed(arrival: Arrival, rate: float, until_ns: int, seed: int = 0) -> np.ndarray:
    return arrival_times(arrival, rate=rate, until_ns=until_ns, count=None, seed=seed)


@pytest.mark.parametrize(
    ("text", "kind", "cv"),
    [("constant", "constant", 1), ("poisson", "poisson", 1), ("trace", "trace", 1), ("gamma:2", "gamma", 2)],
)
def test_a_process_is_read_by_name(text: str, kind: str, cv: float) -> None:
    arrival = parse_arrival(text)

    assert (kind, cv) == (arrival.kind, arrival.cv)
    assert text == str(arrival)


@pytest.mark.parametrize("text", ["", "gamma", "gamma:", "gamma:0", "gamma:-1", "gamma:nan", "gamma:inf", "poisson:2"])
def test_what_is_no_process_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_arrival(text)


def test_constant_is_truly_even() -> None:
    times = counted(CONSTANT, 3.0, 100_000)

    exact = np.arange(100_001) * (NS_PER_S / 3)
    assert float(np.abs(times - exact).max()) <= 0.5


def test_by_time_all_are_below_it_and_none_is_missing() -> None:
    assert timed(CONSTANT, 4, NS_PER_S).tolist() == [0, 250_000_000, 500_000_000, 750_000_000]
    assert len(timed(CONSTANT, 4, NS_PER_S + 1)) == 5


@pytest.mark.parametrize("arrival", [CONSTANT, POISSON, Arrival("gamma", 3.0)])
def test_a_count_gets_one_instant_more_which_closes_the_window(arrival: Arrival) -> None:
    assert len(counted(arrival, 5, 10)) == 11


@pytest.mark.parametrize(
    ("arrival", "cv"), [(POISSON, 1.0), (Arrival("gamma", 0.3), 0.3), (Arrival("gamma", 1.5), 1.5)]
)
def test_gaps_have_their_mean_and_spread_and_law(arrival: Arrival, cv: float) -> None:
    gaps = np.diff(counted(arrival, 50, 40_000, seed=7)) / NS_PER_S

    assert gaps.mean() * 50 == pytest.approx(1, abs=4 * cv / np.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    law = stats.gamma(1 / cv**2, scale=cv**2 / 50)
    assert stats.kstest(gaps, law.cdf).statistic < 1.63 / np.sqrt(len(gaps))  # the 1% bound


def test_the_first_gap_is_drawn_too() -> None:
    firsts = [counted(POISSON, 1, 1, seed=seed)[0] for seed in range(200)]

    assert np.mean(firsts) / NS_PER_S == pytest.approx(1, abs=0.3)


@given(
    arrival=st.sampled_from([CONSTANT, POISSON, Arrival("gamma", 0.5), Arrival("gamma", 8.0)]),
    few=st.integers(1, 300),
    many=st.integers(300, 3000),
    until_ns=st.integers(1, 20 * NS_PER_S),
    seed=st.integers(0, 2**40),
)
def test_the_same_seed_gives_the_same_first_times(
    arrival: Arrival, few: int, many: int, until_ns: int, seed: int
) -> None:
    short, long, until = (
        counted(arrival, 40, few, seed),
        counted(arrival, 40, many, seed),
        timed(arrival, 40, until_ns, seed),
    )

    assert (short == long[: few + 1]).all()
    shared = min(len(until), len(long))
    assert (until[:shared] == long[:shared]).all()
    assert (np.diff(long) >= 0).all() and (until < until_ns).all()


def test_seed_0_is_a_seed() -> None:
    assert (counted(POISSON, 9, 50, seed=0) == counted(POISSON, 9, 50, seed=0)).all()
    assert (counted(POISSON, 9, 50, seed=0) != counted(POISSON, 9, 50, seed=1)).any()


def test_too_many_are_refused_before_memory_is() -> None:
    with pytest.raises(UsageError, match="too many"):
        counted(POISSON, 1, 10**9)
