"""Quantiles against sorted lists and numpy; intervals against the binomial distribution, exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from benchlab.metrics.quantiles import (
    interval_ranks,
    quantile,
    quantile_with_interval,
    samples_needed,
    wilson,
)

samples = st.lists(st.floats(0, 1e6, allow_nan=False, allow_infinity=False), min_size=1, max_size=60)
shares = st.floats(0.001, 0.999)


@given(samples, shares)
def test_linear_between_order_statistics(xs, share):
    ordered = np.sort(np.array(xs))
    found = quantile(ordered, share)

    assert found == pytest.approx(float(np.quantile(ordered, share, method="linear")), rel=1e-9, abs=1e-9)
    assert min(xs) <= found <= max(xs)


@settings(max_examples=200)
@given(st.integers(1, 3000), shares)
def test_the_interval_covers_at_least_95_percent_and_is_the_tightest(n, share):
    low, high = interval_ranks(n, share)
    # P(quantile below the low bound) = P(fewer than `low` samples below it), and so on: exact for any distribution.
    missed_below = binom.cdf(low - 1, n, share) if low is not None else 0.0
    missed_above = binom.sf(high - 1, n, share) if high is not None else 0.0

    assert missed_below <= 0.025 + 1e-9 and missed_above <= 0.025 + 1e-9
    assert binom.cdf(low or 0, n, share) > 0.025 - 1e-9
    assert high is None or high == 1 or binom.sf(high - 2, n, share) > 0.025 - 1e-9


def test_samples_needed_to_bound_a_percentile():
    assert samples_needed(0.5) == 6
    assert samples_needed(0.99) == 368
    assert interval_ranks(367, 0.99)[1] is None


def test_too_few_samples_are_indicative():
    found = quantile_with_interval(np.arange(360.0), 0.99)

    assert found.high is None and found.low is not None and found.indicative
    assert not quantile_with_interval(np.arange(368.0), 0.99).indicative


def test_gaps_of_few_requests_give_a_wide_interval():
    gaps = np.sort(np.random.default_rng(0).exponential(size=4000))
    alone, clustered = quantile_with_interval(gaps, 0.5), quantile_with_interval(gaps, 0.5, independent=40)

    assert alone.value == clustered.value
    assert clustered.low < alone.low and alone.high < clustered.high
    assert quantile_with_interval(gaps, 0.99, independent=40).high is None


@given(samples, shares, st.integers(1, 60))
def test_bounds_embrace_the_value(xs, share, independent):
    found = quantile_with_interval(np.sort(np.array(xs)), share, independent)

    assert found.low is None or found.low <= found.value
    assert found.high is None or found.value <= found.high


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(pair):
    hits, n = pair
    theirs = binomtest(hits, n).proportion_ci(0.95, method="wilson")

    assert wilson(hits, n) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_wilson_of_nothing_is_not_known():
    assert wilson(0, 0) is None


def test_c106_no_percentile_above_the_maximum():
    xs = np.sort(np.array([5951.0] * 20 + [5962.0]))

    assert quantile(xs, 0.5) == 5951.0
    assert quantile(xs, 0.99) <= 5962.0


def test_c107_pooled_not_averaged():
    pooled = np.sort(np.array([0.1] * 900 + [1.0] * 50 + [5.0] * 50))

    # Rank 950.05 of 1000 lies between 1.0 and 5.0 by a twentieth: the pooled samples, no mean of two percentiles.
    assert quantile(pooled, 0.95) == pytest.approx(1.0 + 0.05 * 4.0)
    assert math.floor(quantile(pooled, 0.95)) == 1
