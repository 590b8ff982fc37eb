"""How many samples a claim needs: MLPerf's numbers, the binomial calculation, and how long a run must go on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchlab.metrics.needed import in_words, proof, proves, samples_to_prove, samples_to_report
from benchlab.metrics.proofs import Limit, proofs
from benchlab.records.event import Outcome
from tests.made_runs import columns_from, failed, steady, window


@pytest.mark.parametrize(
    ("share", "report", "prove"),
    [(0.5, 11, 7), (0.9, 64, 44), (0.95, 130, 90), (0.99, 662, 459), (0.999, 6636, 4603)],
)
def test_mlperfs_numbers(share, report, prove):
    assert samples_to_report(share) == report and samples_to_prove(share) == prove


def test_loadgens_published_counts():
    """Its rule for p99 at 0.5% tolerance of the figure is another; with t misses and none spare it is this table."""
    for misses in (2, 5, 10):
        n = samples_to_prove(0.99, misses)
        assert stats.binom.cdf(misses, n, 0.01) <= 0.01 < stats.binom.cdf(misses, n - 1, 0.01)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.integers(1, 4000), st.integers(0, 60))
def test_a_proof_is_the_binomial_calculation(share, n, misses):
    misses = min(misses, n)
    assert proves(n, misses, share) == (stats.binom.cdf(misses, n, 1 - share) <= 0.01)
    found = proof(n, misses, share)
    if found.proven:
        assert found.longer_s(1.0) == 0.0
    elif found.needed is None:
        assert misses / n >= 1 - share - 1e-9 or n * (1 - share) - misses < 1
        assert found.longer_s(1.0) is None
    else:
        assert found.needed > n and proof(found.needed, misses / n * found.needed, share).proven
        assert found.longer_s(2.0) == pytest.approx((found.needed - n) / 2)


def test_a_false_claim_is_proved_at_most_once_in_a_hundred():
    """The p99 lies just over the limit: whatever n, the chance that the rule calls it proved is at most 1%."""
    for n in (459, 662, 1000, 5000):
        most = next(t for t in range(n, -1, -1) if t == 0 or proves(n, t, 0.99))
        assert stats.binom.cdf(most, n, 0.01) <= 0.01


def test_lengths_of_time_in_words():
    assert [in_words(s) for s in (0.2, 59.2, 552, 3600, 7500, 60, 7201)] == [
        "1 s", "1 min", "9 min 12 s", "1 h", "2 h 5 min", "1 min", "2 h 1 min",
    ]  # fmt: skip


def entry(records, limit: Limit, seconds: float):
    c = columns_from(records)
    return proofs(c, window(0.0, seconds), np.ones(c.n, dtype=bool), [limit])[0]


P99 = Limit("ttft", 0.99, 400.0, "ttft.p99<=400ms")


def test_run_longer_to_prove_it():
    records = [steady(i / 2, ttft=0.1, gap=0.01, tokens=4, request_id=str(i)) for i in range(200)]
    found = entry(records, P99, 100.0)
    assert (found["n"], found["misses"], found["proven"], found["needed"]) == (200, 0, False, 459)
    assert found["longer_s"] == pytest.approx(129.5)
    assert found["say"].startswith("run 2 min 10 s longer to prove p99: ttft.p99<=400ms, 459 samples at 2/s")

    slow = [steady(i / 2, ttft=0.1 if i % 20 else 0.5, gap=0.01, tokens=4, request_id=str(i)) for i in range(200)]
    found = entry(slow, P99, 100.0)
    assert found["longer_s"] is None and "no length of run" in found["say"] and found["misses"] == 10

    many = [steady(i / 20, ttft=0.1, gap=0.01, tokens=4, request_id=str(i)) for i in range(500)]
    found = entry(many, P99, 25.0)
    assert found["proven"] and found["longer_s"] == 0.0 and "proved by 500" in found["say"]


def test_who_was_cut_off_missed_it_and_who_failed_has_no_part():
    records = [steady(i / 20, ttft=0.1, gap=0.01, tokens=4, request_id=str(i)) for i in range(500)]
    records += [failed(3.0 + 9 * i, outcome=Outcome.UNFINISHED, request_id=f"u{i}") for i in range(3)]
    records += [failed(24.0, outcome=Outcome.ERROR_HTTP, request_id=f"e{i}") for i in range(9)]
    found = entry(records, P99, 25.0)
    assert found["misses"] == pytest.approx(3.0) and not found["proven"]
    assert entry(records[-9:], P99, 25.0)["n"] == 0


def test_neighbours_that_are_alike_prove_less():
    apart = [steady(i / 20, ttft=0.1 if i % 50 else 0.5, gap=0.01, tokens=4, request_id=str(i)) for i in range(2000)]
    bunched = [steady(i / 20, ttft=0.5 if i < 40 else 0.1, gap=0.01, tokens=4, request_id=str(i)) for i in range(2000)]
    limit = Limit("ttft", 0.95, 400.0, "ttft.p95<=400ms")
    assert entry(apart, limit, 100.0)["proven"]
    found = entry(bunched, limit, 100.0)
    assert not found["proven"] and found["n"] < 300


def test_gaps_of_a_request_are_one_sample():
    records = [steady(i / 5, ttft=0.1, gap=0.01, tokens=200, request_id=str(i)) for i in range(30)]
    found = entry(records, Limit("itl", 0.99, 20.0, "itl.p99<=20ms"), 10.0)
    assert found["n"] == 30 and not found["proven"] and math.isclose(found["longer_s"], (459 - 30) / 3)
