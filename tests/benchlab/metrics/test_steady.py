"""The steady span: level series are left whole, ramps are cut, shifts and drifts are named; never by the value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from benchlab.metrics.steady import find_steady, mser, pettitt
from benchlab.metrics.summary import summarise_tables
from benchlab.records.schema import SAMPLES
from tests.made_runs import MadeStage, columns_from, made_manifest, ns, steady, table_of, window


def found(gaps, *, seconds: float = 100.0):
    """The steady span of requests sent evenly over the time, of these TPOTs (s)."""
    step = seconds / len(gaps)
    records = [steady(i * step, ttft=0.1, gap=float(g), tokens=8, request_id=str(i)) for i, g in enumerate(gaps)]
    result = find_steady(columns_from(records), window(0.0, seconds))
    assert result is not None
    return result


def noise(n: int, seed: int, phi: float = 0.0, spread: float = 0.05) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(n + 100) * math.sqrt(1 - phi * phi)
    return np.exp(spread * signal.lfilter([1.0], [1, -phi], values)[100:])


def test_pettitt_against_its_definition():
    values = np.random.default_rng(0).standard_normal(40)
    values[25:] += 2.0
    n = len(values)
    ahead = [sum(np.sign(values[j] - values[i]) for i in range(t) for j in range(t, n)) for t in range(1, n)]
    at, p = pettitt(values)
    assert at == int(np.argmax(np.abs(ahead))) + 1 and abs(at - 25) <= 1
    assert p == pytest.approx(2 * math.exp(-6 * max(map(abs, ahead)) ** 2 / (n**3 + n**2)))
    assert pettitt(np.ones(20))[1] == 1.0


def test_mser_against_its_definition():
    values = np.concatenate([[9.0, 5.0, 3.0], np.random.default_rng(1).standard_normal(40) * 0.1 + 1])
    errors = [values[d:].var() / (len(values) - d) for d in range(len(values) // 2 + 1)]
    assert mser(values) == int(np.argmin(errors)) == 3
    assert mser(np.ones(20)) == 0


def test_a_level_series_is_left_whole():
    result = found(0.02 * noise(600, 1))
    assert result.word == "steady" and result.dropped == 0.0 and result.span == (0, ns(100.0))
    assert result.shift is None and result.drift is None and result.series == "tpot"
    assert result.level == pytest.approx(20.0, rel=0.02) and result.error < 0.01
    assert result.effective_n == pytest.approx(600, rel=0.2)


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_ramp_is_cut_whether_it_is_faster_or_slower(factor):
    """The first fifth runs up (or down) to the level: the cut is the same, since the value has no part in it."""
    ramp = np.concatenate([np.linspace(factor, 1.0, 120), np.ones(480)])
    result = found(0.02 * ramp * noise(600, 2))
    assert result.word == "steady"
    assert 8.0 <= result.span[0] / 1e9 <= 30.0 and result.span[1] == ns(100.0)
    assert result.level == pytest.approx(20.0, rel=0.03)


@pytest.mark.parametrize(("at", "factor"), [(0.7, 1.5), (0.7, 0.6), (0.55, 1.2)])
def test_a_shift_of_the_level_is_named_and_the_longer_part_taken(at, factor):
    n = 600
    level = np.where(np.arange(n) < at * n, 1.0, factor)
    result = found(0.02 * level * noise(n, 3))
    assert result.word == "shifted" and result.shift is not None
    assert result.shift.at_ns / 1e9 == pytest.approx(100 * at, abs=4.0)
    assert result.shift.after / result.shift.before == pytest.approx(factor, rel=0.1)
    assert result.level == pytest.approx(20.0, rel=0.03) and result.dropped == pytest.approx(1 - at, abs=0.05)


def test_a_drift_is_named():
    result = found(0.02 * np.linspace(1.0, 1.5, 600) * noise(600, 4))
    assert result.word in ("drifting", "shifted")
    slow = found(0.02 * np.linspace(1.0, 1.02, 600) * noise(600, 4, spread=0.002))
    assert slow.word == "steady"  # 2% is significant, and of no matter


def test_it_never_reaches_back_into_the_warm_up():
    records = [
        steady(i / 6, ttft=0.1, gap=float(g), tokens=8, request_id=str(i)) for i, g in enumerate(0.02 * noise(600, 8))
    ]
    result = find_steady(columns_from(records), window(20.0, 90.0))
    assert result.span == (ns(20.0), ns(90.0)) and result.n == 420


def test_few_requests_and_none():
    assert found(0.02 * noise(30, 5)).word == "short"
    assert find_steady(columns_from([]), window(0.0, 1.0)) is None


def test_alike_neighbours_are_no_shift():
    """AR(1) of 0.8 among requests: false alarms stay rare, because groups are joined until they are apart."""
    words = [found(0.02 * noise(600, seed, phi=0.8)).word for seed in range(20)]
    assert words.count("steady") >= 17


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8, 0.95])
def test_false_alarms_are_rare(phi):
    words = [found(0.02 * noise(600, seed, phi=phi)).word for seed in range(300)]
    assert words.count("steady") >= 300 * (0.97 if phi < 0.9 else 0.9), {w: words.count(w) for w in set(words)}


def test_the_window_follows_only_when_asked():
    ramp = np.concatenate([np.linspace(3.0, 1.0, 120), np.ones(480)])
    records = [
        steady(i / 6, ttft=0.1, gap=float(g), tokens=8, request_id=str(i))
        for i, g in enumerate(0.02 * ramp * noise(600, 6))
    ]
    stage = MadeStage(records, 0.0, 100.0, offered_rps=6.0)

    def judged(rule):
        made = summarise_tables(
            made_manifest([stage]), table_of(records), SAMPLES.empty_table(), run_id="r", window=rule
        )
        return made["stages"][0]

    told, auto = judged("told"), judged("auto")
    assert told["window_s"] == 100.0 and told["attempted"] == 600
    assert auto["window_s"] < 95.0 and auto["attempted"] < 560
    assert told["steady"] == auto["steady"] and told["steady"]["dropped_share"] > 0.05
    assert auto["metrics"]["tpot"]["mean"] < told["metrics"]["tpot"]["mean"]
    assert auto["completed_rps"] == pytest.approx(6.0, rel=0.05)
