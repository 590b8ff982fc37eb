"""Distributions by their word: what they make, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.workload.draw import Draw
from benchlab.workload.fit_lengths import pair_shares, parse_lengths

SHARES = (np.arange(100_000) + 0.5) / 100_000


@pytest.mark.parametrize(
    ("word", "p50", "p99", "mean"),
    [
        ("512", 512, 512, 512),
        ("uniform:100:300", 200, 298, 200),
        ("normal:1000:100", 1000, 1233, 1000),
        ("lognormal:1000:0.5", 1000, 3200, 1133),
        ("gamma:1000:1", 693, 4605, 1000),
        ("gamma:1000:0.5", 918, 2511, 1000),
        ("quantiles:0=10,0.5=100,0.99=1000,1=2000", 100, 1000, None),
        ("quantiles:0.5=100", 100, 100, 100),
        ("lognormal:1000:0.5@900..1100", 1000, 1100, None),
        ("normal:50:100@1..", 50, 283, None),
    ],
)
def test_a_word_makes_its_distribution(word: str, p50: float, p99: float, mean: float | None) -> None:
    values = parse_lengths(word, where="--isl").at(SHARES)
    assert values.dtype == np.int64
    assert values.min() >= 1
    assert np.percentile(values, 50) == pytest.approx(p50, rel=0.005, abs=0.6)
    assert np.percentile(values, 99) == pytest.approx(p99, rel=0.005, abs=0.6)
    if mean is not None:
        assert values.mean() == pytest.approx(mean, rel=0.005)


def test_an_empirical_one_draws_what_stands_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("7\n7\n100\n3\n")
    values = parse_lengths(f"empirical:{tmp_path}/n.txt", where="--osl").at(SHARES)
    assert dict(zip(*np.unique(values, return_counts=True), strict=True)) == {3: 25_000, 7: 50_000, 100: 25_000}


@pytest.mark.parametrize(
    "word",
    [
        "",
        "0",
        "-3",
        "1.5",
        "nan",
        "inf",
        "99999999999",
        "triangular:1:2",
        "uniform:1",
        "uniform:5:2",
        "uniform:a:2",
        "normal:0:1",
        "lognormal:10:99",
        "gamma:10:0",
        "gamma:10:nan",
        "quantiles:0.5",
        "quantiles:0.9=1,0.5=2",
        "quantiles:0.5=9,0.9=2",
        "quantiles:2=1",
        "empirical:no-such-file",
        "empirical:.",
        "uniform:1:9@5..2",
        "uniform:1:9@x",
        "uniform:1:9@",
    ],
)
def test_what_is_no_distribution_is_refused_by_its_flag(word: str) -> None:
    with pytest.raises(UsageError, match="--isl"):
        parse_lengths(word, where="--isl")


def test_an_empirical_file_of_other_things(tmp_path: Path) -> None:
    for content in ("", "a b", "0 3", "\0"):
        (tmp_path / "n.txt").write_text(content)
        with pytest.raises(UsageError):
            parse_lengths(f"empirical:{tmp_path}/n.txt", where="--isl")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe1")
    with pytest.raises(UsageError, match="cannot be read"):
        parse_lengths(f"empirical:{tmp_path}/b.txt", where="--isl")


@given(st.text(max_size=30) | st.from_regex(r"(uniform|gamma|quantiles|normal):[0-9.:=,@]{0,12}", fullmatch=True))
def test_any_word_is_a_distribution_or_a_refusal(word: str) -> None:
    try:
        values = parse_lengths(word, where="--isl").at(SHARES[::5000])
    except UsageError:
        return
    assert (values >= 1).all()


@pytest.mark.parametrize("correlation", [-1.0, -0.6, 0.0, 0.8, 1.0])
def test_pairs_are_correlated_as_asked_and_spread_evenly(correlation: float) -> None:
    one, two = pair_shares(Draw(0, "p"), 20_000, correlation)
    assert sorted(one) == sorted(two)
    assert np.allclose(np.sort(one), (np.arange(20_000) + 0.5) / 20_000)
    # Spearman's coefficient of a normal pair: 6 / pi * asin(r / 2).
    assert np.corrcoef(one, two)[0, 1] == pytest.approx(6 / np.pi * np.arcsin(correlation / 2), abs=0.02)
