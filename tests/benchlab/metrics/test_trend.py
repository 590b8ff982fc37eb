"""Mann-Kendall and Sen against scipy, and against a series that does not rise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, theilslopes

from benchlab.metrics.trend import rising


def test_against_scipy():
    generator = np.random.default_rng(0)
    x = np.arange(80.0)
    y = 0.05 * x + generator.normal(size=80)
    found = rising(x, y)

    assert found is not None
    assert found.slope == pytest.approx(theilslopes(y, x).slope)
    expected = kendalltau(x, y, method="asymptotic", alternative="greater").pvalue
    assert found.p == pytest.approx(expected, rel=0.15)  # ours has the continuity correction


def test_its_level_is_kept_and_a_rise_is_seen():
    generator = np.random.default_rng(1)
    x = np.arange(30.0)
    flat = [rising(x, generator.normal(size=30)) for _ in range(1000)]

    assert sum(t.p < 0.01 for t in flat if t) <= 20
    assert rising(x, x + generator.normal(size=30)).p < 1e-6


def test_what_never_came_counts_as_the_longest():
    x = np.arange(20.0)
    y = np.where(x > 12, np.inf, 1.0 + 0.001 * (x % 3))
    found = rising(x, y)

    assert found is not None and found.p < 0.01


def test_too_little_to_tell():
    assert rising(np.arange(4.0), np.arange(4.0)) is None
    assert rising(np.arange(9.0), np.ones(9)) is None


def test_long_series_are_thinned():
    x = np.arange(100_000.0)
    found = rising(x, x)

    assert found is not None and found.n == 200 and found.slope == pytest.approx(1.0)
