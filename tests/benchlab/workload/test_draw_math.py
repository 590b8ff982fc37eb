"""Exact maths against the machine's own, and the same bits wherever it runs."""

from __future__ import annotations

import hashlib
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.workload import draw_math
from benchlab.workload.draw import Draw, exponential, ranked, values_at, weibull


@given(st.floats(1e-300, 1e300))
def test_log(value: float) -> None:
    assert float(draw_math.log(value)) == pytest.approx(math.log(value), rel=1e-15, abs=1e-15)


@given(st.floats(-699, 699))
def test_exp(value: float) -> None:
    assert float(draw_math.exp(value)) == pytest.approx(math.exp(value), rel=1e-15)


@given(st.floats(1e-12, 1 - 1e-12))
def test_normal(share: float) -> None:
    assert float(draw_math.normal(share)) == pytest.approx(NormalDist().inv_cdf(share), abs=2e-8)


@pytest.mark.parametrize("shape", [0.07, 0.5, 1.0, 3.0, 25.0, 900.0])
def test_gamma_has_its_moments(shape: float) -> None:
    shares = (np.arange(200_000) + 0.5) / 200_000
    values = draw_math.gamma(shares, shape)
    assert values.mean() == pytest.approx(1, rel=0.005)
    assert values.std() == pytest.approx(shape**-0.5, rel=0.01)
    assert (np.diff(values) >= 0).all()


def test_gamma_of_shape_one_is_the_exponential() -> None:
    shares = (np.arange(1000) + 0.5) / 1000
    assert draw_math.gamma(shares, 1.0) == pytest.approx(exponential(shares), rel=1e-3)


def test_weibull_has_its_cv() -> None:
    values = weibull((np.arange(200_000) + 0.5) / 200_000, 0.919)
    assert values.mean() == pytest.approx(math.gamma(1 + 1 / 0.919), rel=1e-3)
    assert values.std() / values.mean() == pytest.approx(1.09, rel=0.005)


def test_the_bits_are_the_same_everywhere() -> None:
    shares = (np.arange(10_000) + 0.5) / 10_000
    found = [
        draw_math.log(shares),
        draw_math.exp(shares * 50 - 25),
        draw_math.normal(shares),
        draw_math.gamma(shares, 0.4),
    ]
    digest = hashlib.sha256(b"".join(values.astype("<f8").tobytes() for values in found)).hexdigest()[:16]
    assert digest == "f6957c2aead7441e"


def test_ranks_keep_the_order_and_spread_evenly() -> None:
    assert ranked(np.array([5.0, 1.0, 9.0, 1.0])).tolist() == [0.625, 0.125, 0.875, 0.375]


def test_zipf_by_its_weights() -> None:
    places = Draw(0, "z").zipf(60_000, 3, 1.0)
    counts = np.bincount(places, minlength=3) / 60_000
    assert counts == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.01)
    flat = np.bincount(Draw(0, "z").zipf(60_000, 3, 0.0)) / 60_000
    assert flat == pytest.approx([1 / 3] * 3, abs=0.01)


def test_values_between_known_points_lie_on_a_line_in_the_logarithm() -> None:
    assert values_at(((0, 10), (0.5, 100), (1, 1000)), np.array([0, 0.25, 0.5, 0.75, 1])) == pytest.approx(
        [10, 31.6228, 100, 316.228, 1000], rel=1e-4
    )
