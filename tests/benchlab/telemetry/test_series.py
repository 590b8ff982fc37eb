"""Counters and buckets over a window."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.telemetry.series import (
    bucket_increase,
    bucket_percentile,
    count_mismatch,
    increase,
    parse_edge,
)


def test_c79_a_counter_that_goes_down_is_a_lower_bound_and_never_negative():
    grown = increase([100, 160, 20, 50])

    assert (grown.value, grown.resets, grown.lower_bound) == (110, 1, True)


def test_a_counter_without_a_reset_is_exact_and_holes_are_passed_over():
    assert increase([1, None, 4, math.nan, 6]) == increase([1, 6])
    assert not increase([1, 6]).lower_bound
    assert increase([5]).value is None and increase([]).value is None


@given(st.lists(st.floats(0, 1e9), min_size=2))
def test_an_increase_is_never_below_zero(readings):
    assert increase(readings).value >= 0


BUCKETS = {0.5: 60, 1: 90, 10: 97, math.inf: 100}


def test_c83_a_rank_in_the_open_bucket_is_a_bound():
    p99 = bucket_percentile(BUCKETS, 0.99)

    assert (p99.value, p99.low, p99.high) == (None, 10, None)
    assert "above 10" in p99.reason


def test_c83_a_rank_inside_is_an_estimate_with_its_edges():
    p95 = bucket_percentile(BUCKETS, 0.95)

    assert p95.value == pytest.approx(7.43, abs=0.005)
    assert (p95.low, p95.high) == (1, 10)
    assert "estimate" in p95.reason


def test_buckets_that_say_nothing():
    assert bucket_percentile({}, 0.5).value is None
    assert bucket_percentile({1: 3}, 0.5).reason == "the histogram has no +Inf bucket"
    assert bucket_percentile({1: 0, math.inf: 0}, 0.5).reason == "no observations"
    assert bucket_percentile({1: 5, 2: 3, math.inf: 9}, 0.5).reason == "the buckets are not cumulative"
    assert bucket_percentile({1: 0, math.inf: 4}, 0.5).low == 1
    assert bucket_percentile({1: 2, 2: 2, 4: 4, math.inf: 4}, 0.5).value == 1  # an empty bucket holds no rank


def test_buckets_of_a_window_and_a_reset_inside_it():
    assert bucket_increase({1: 2, math.inf: 3}, {1: 5, math.inf: 9}) == ({1: 3, math.inf: 6}, False)
    assert bucket_increase({1: 2, math.inf: 3}, {1: 1, math.inf: 2}) == ({1: 1, math.inf: 2}, True)


def test_edges_from_labels():
    assert parse_edge('le="0.5"') == 0.5 and parse_edge('le="+Inf"') == math.inf
    assert parse_edge("") is None and parse_edge('le="x"') is None


def test_c82_server_and_client_counts_that_do_not_fit():
    assert "exactly 2 times" in count_mismatch(400, 200)
    assert count_mismatch(200, 200) is None
    assert count_mismatch(205, 200, tolerance=0.05) is None
    assert count_mismatch(230, 200) == "the server counts 230 requests, the client sent 200"
    assert count_mismatch(3, 0) is not None
