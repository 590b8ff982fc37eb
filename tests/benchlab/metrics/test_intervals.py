"""Intervals: equal to scipy's and the binomial calculation, wider where neighbours are alike, coverage simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

from benchlab.metrics.block import metric_block
from benchlab.metrics.intervals import (
    autocorrelation,
    clopper_pearson,
    effective_n,
    mean_interval,
    parts_of,
    rate_interval,
    share_intervals,
    sums_over_time,
)
from benchlab.metrics.quantiles import quantile_with_interval, wilson
from benchlab.metrics.table import BY_NAME
from tests.made_runs import columns_from, steady


def ar1(n: int, phi: float, generator: np.random.Generator) -> np.ndarray:
    """A stationary series of variance 1 whose neighbours have correlation phi."""
    noise = generator.standard_normal(n + 300)
    return signal.lfilter([math.sqrt(1 - phi * phi)], [1, -phi], noise)[300:]


def rate_of(when_s: np.ndarray, window_s: float):
    """The interval of the rate of these events."""
    return rate_interval(sums_over_time(when_s, None, window_s, parts_of(len(when_s))), window_s)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_share_intervals_are_scipys(pair):
    hits, n = pair
    reference = stats.binomtest(hits, n)
    exact, score = reference.proportion_ci(method="exact"), reference.proportion_ci(method="wilson")
    assert clopper_pearson(hits, n) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert wilson(hits, n) == pytest.approx((score.low, score.high), abs=1e-9)


def test_the_exact_interval_covers_what_the_binomial_calculation_says():
    """For each true share: the chance that a sample's interval holds it, summed over all samples; never below 95%."""
    n = 40
    bounds = [clopper_pearson(hits, n) for hits in range(n + 1)]
    covers = {"wilson": [wilson(hits, n) for hits in range(n + 1)], "exact": bounds}
    for share in np.linspace(0.02, 0.98, 49):
        chance = stats.binom.pmf(np.arange(n + 1), n, share)
        held = {name: sum(c for c, (a, b) in zip(chance, found, strict=True) if a <= share <= b)
                for name, found in covers.items()}  # fmt: skip
        assert held["exact"] >= 0.95 - 1e-12
        if 0.2 <= share <= 0.8:  # n p of 8 and more
            assert 0.92 <= held["wilson"] <= 0.98


def test_effective_n_of_independent_and_of_alike_series():
    generator = np.random.default_rng(1)
    assert effective_n(np.ones(500)) == 500
    assert effective_n(np.arange(8.0)) == 8
    independent = [effective_n(generator.standard_normal(1000)) for _ in range(40)]
    assert np.mean([found == 1000 for found in independent]) >= 0.9
    for phi in (0.5, 0.8, 0.9):
        found = np.median([effective_n(ar1(4000, phi, generator)) for _ in range(15)])
        assert found == pytest.approx(4000 * (1 - phi) / (1 + phi), rel=0.2)
    assert 2 <= effective_n(np.repeat([0.0, 1.0], 200)) < 20  # one change of level says next to nothing


@pytest.mark.parametrize("phi", [0.3, 0.5, 0.8, 0.9])
def test_effective_n_of_short_series_of_zeros_and_ones(phi):
    """139 zeros and ones, correlation phi^k at lag k: the variance that n_eff gives is right on average, to 20%."""
    generator, n = np.random.default_rng(9), 139
    changes = generator.random((600, n)) < (1 - phi) / 2
    found = np.array([effective_n(series.astype(float)) for series in np.cumsum(changes, axis=1) % 2])
    k = np.arange(1, n)
    truth = n / (1 + 2 * float(np.sum((1 - k / n) * phi**k)))
    assert 1 / np.mean(1 / found) == pytest.approx(truth, rel=0.2)
    assert np.median(found) >= truth * 0.9  # a single series is as often told for too many as for too few


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=300), st.integers(1, 5))
def test_effective_n_is_a_number_of_samples(values, scale):
    found = effective_n(np.array(values) * scale)
    assert 1 <= found <= len(values)
    assert autocorrelation(np.array(values), 3)[0] in (pytest.approx(1.0), 1.0)


def test_intervals_of_means_and_rates():
    generator = np.random.default_rng(3)
    values = generator.exponential(20.0, 5000)
    low, high = mean_interval(values)
    half = 1.96 * values.std() / math.sqrt(5000)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.35 * half)
    assert mean_interval(values) == (low, high)  # the same records, the same interval
    alike = np.repeat(values[:500], 10)
    assert np.diff(mean_interval(alike))[0] > 2 * np.diff((low, high))[0]
    assert mean_interval(values[:9]) is None and mean_interval(np.zeros(0)) is None
    assert mean_interval(np.full(50, 3.0)) == (3.0, 3.0)

    when = np.sort(generator.uniform(0, 60, 600))
    low, high = rate_of(when, 60.0)
    assert low < 10 < high and high - low == pytest.approx(2 * 1.96 * math.sqrt(600) / 60, rel=0.4)
    paced = rate_of(np.arange(600) / 10, 60.0)
    assert paced[1] - paced[0] < 0.7 * (high - low)
    assert parts_of(9) is None and parts_of(10) == 10 and parts_of(10**6) == 500
    assert rate_interval(np.zeros(0), 0.0) is None


def test_a_pooled_mean_is_of_all_gaps_and_not_of_requests():
    counts = np.array([1.0, 99.0] * 50)
    sums = counts * np.array([100.0, 10.0] * 50)
    low, high = mean_interval(sums, counts)
    assert low <= (100 + 990) / 100 <= high and high < 55


def test_nothing_and_everything():
    assert share_intervals(np.zeros(0, bool)) == (None, None)
    score, exact = share_intervals(np.ones(20, bool))
    assert score[1] == exact[1] == 1.0 and 0.8 < exact[0] < score[0] + 0.1
    assert clopper_pearson(0, 0) is None and clopper_pearson(0, 10)[0] == 0.0


def test_a_summary_counts_alike_requests_for_fewer():
    """The same TTFTs in two orders: shuffled, they say more than in the order in which they rose and fell."""
    generator = np.random.default_rng(4)
    alike = 0.1 * np.exp(0.3 * ar1(600, 0.9, generator))

    def block(values):
        records = [steady(i / 10, ttft=float(t), gap=0.01, tokens=4, request_id=str(i)) for i, t in enumerate(values)]
        c = columns_from(records)
        return metric_block(BY_NAME["ttft"], c, np.ones(c.n, dtype=bool), (50, 99))

    in_order, shuffled = block(alike), block(generator.permutation(alike))
    assert in_order["p50"] == shuffled["p50"] and "effective_n" not in shuffled
    assert in_order["effective_n"]["p50"] < 150
    width = {name: np.diff(found["ci95"]["p50"])[0] for name, found in (("o", in_order), ("s", shuffled))}
    assert width["o"] > 1.8 * width["s"]
    assert np.diff(in_order["ci95"]["mean"])[0] > 1.8 * np.diff(shuffled["ci95"]["mean"])[0]
    # too few independent ones to bound p99, though 600 would do
    assert in_order["indicative"] == ["p99"] and shuffled["indicative"] == []
    assert in_order["ci95"]["p99"][1] is None


# -- coverage, by simulation


RUNS = 1500


def covered(phi: float, n: int, seed: int) -> dict[str, float]:
    """How often each interval of a log-normal AR(1) series of n holds the truth."""
    generator = np.random.default_rng(seed)
    hits = dict.fromkeys(("mean", "p50", "p90", "wilson", "exact"), 0)
    truth = {"mean": math.exp(0.125), "p50": 1.0, "p90": math.exp(0.5 * float(stats.norm.ppf(0.9)))}
    limit = math.exp(0.5 * float(stats.norm.ppf(0.8)))
    for _ in range(RUNS):
        values = np.exp(0.5 * ar1(n, phi, generator))
        low, high = mean_interval(values, draws=299)
        hits["mean"] += low <= truth["mean"] <= high
        ordered = np.sort(values)
        for name, share in (("p50", 0.5), ("p90", 0.9)):
            enough = effective_n((values <= np.quantile(values, share)).astype(float))
            found = quantile_with_interval(ordered, share, max(1, int(enough)))
            above = found.low is None or found.low <= truth[name]
            hits[name] += above and (found.high is None or truth[name] <= found.high)
        for name, found in zip(("wilson", "exact"), share_intervals(values > limit), strict=True):
            hits[name] += found[0] <= 0.2 <= found[1]
    return {name: many / RUNS for name, many in hits.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "n"), [(0.0, 100), (0.0, 1000), (0.5, 500), (0.5, 2000), (0.8, 2000)])
def test_coverage(phi, n):
    """95% intervals hold the truth in 92.5 to 98% of simulated series, AR(1) ones too, once n_eff is 150 or so."""
    found = covered(phi, n, seed=7)
    assert 0.925 <= found["mean"] <= 0.98, found
    assert 0.93 <= found["wilson"] <= 0.98, found
    assert found["exact"] >= 0.935, found
    assert found["p50"] >= 0.935 and found["p90"] >= 0.935, found


@pytest.mark.slow
@pytest.mark.parametrize("burst", [1, 8])
def test_coverage_of_rates(burst):
    """Poisson events, alone and in bursts of eight: the true rate is inside 92.5 to 98% of the time."""
    generator = np.random.default_rng(11)
    held = 0
    for _ in range(RUNS):
        begun = np.sort(generator.uniform(-5, 60, generator.poisson(65 * 16 / burst)))
        when = np.repeat(begun, burst) + generator.exponential(0.3, len(begun) * burst) * (burst > 1)
        low, high = rate_of(when[(when >= 0) & (when < 60)], 60.0)
        held += low <= 16 <= high
    assert 0.925 <= held / RUNS <= 0.98, held / RUNS


@pytest.mark.slow
def test_coverage_without_n_eff_would_be_far_off():
    """What the same series give when they are taken for independent: why n_eff is there."""
    generator = np.random.default_rng(2)
    held = 0
    for _ in range(RUNS):
        found = quantile_with_interval(np.sort(ar1(1000, 0.8, generator)), 0.5)
        held += found.low <= 0 <= found.high
    assert held / RUNS < 0.7
