"""Rates by event inside the window, against worked numbers of faults that other tools had."""

from __future__ import annotations

import numpy as np
import pytest

from benchlab.metrics import run
from benchlab.metrics.window import window_of
from benchlab.records.event import Outcome
from tests.made_runs import columns_from, failed, ns, steady, stream, window


def test_c34_peak_counts_tokens_not_events():
    c = columns_from([stream(chunks=[0.20, 0.26, 0.32, 0.38], chunk_tokens=[1, 4, 3, 4], tokens=12)])

    assert run.peak_tps(c, window(0, 1)) == pytest.approx(12.0)


def test_peak_is_never_below_the_mean():
    generator = np.random.default_rng(0)
    for i in range(60):
        length = float(generator.uniform(0.2, 9))
        times = sorted(generator.uniform(0, length * 0.999, size=12))
        c = columns_from([stream(0.0, times, request_id=str(i))])
        w = window(0, length)

        assert run.peak_tps(c, w) >= run.output_tps(c, w) - 1e-9


def test_tokens_are_spread_over_the_chunks_that_told_none():
    c = columns_from(
        [stream(chunks=[0.5, 1.5], tokens=10), stream(chunks=[0.5, 1.5], chunk_tokens=[3, None], tokens=10)]
    )

    assert run.output_tps(c, window(0, 1)) == pytest.approx(5 + 3)
    assert run.output_tps(c, window(1, 2)) == pytest.approx(5 + 7)


def test_c50_the_last_requests_time_counts():
    c = columns_from([stream(0.0, np.linspace(0.1, 0.999, 10)), stream(1.0, np.linspace(1.1, 1.999, 10))])

    assert run.output_tps(c, window(0, 2)) == pytest.approx(10.0)


def test_c52_refused_requests_are_no_completions():
    c = columns_from([failed(i / 48, outcome=Outcome.ERROR_CONNECT, request_id=str(i)) for i in range(24)])
    w = window(0, 0.5)

    assert run.completed_rps(c, w) == 0
    assert run.offered_rps(c, w) == pytest.approx(48.0)
    assert run.achieved_rps(c, w) == 0


def test_c100_a_failure_does_not_drag_the_span():
    records = [
        stream(1000.0, [1003.0], request_id="a"),
        stream(1001.0, [1005.0], request_id="b"),
        failed(1002.0, outcome=Outcome.ERROR_CONNECT, request_id="c"),
    ]
    c = columns_from(records)
    w = window_of({}, c)

    assert w is not None and w.assumed
    assert (w.w0_ns, w.seconds) == (ns(1000), pytest.approx(5.0))
    assert run.completed_rps(c, w) == pytest.approx(0.4)


def test_c103_tokens_of_what_was_cut_off_count():
    done = [steady(float(i), ttft=0.1, gap=0.1, tokens=9, request_id=f"a{i}") for i in range(10)]
    held = stream(0.0, [0.05 + 0.1 * i for i in range(100)], tokens=None, outcome=Outcome.UNFINISHED, request_id="b")
    c = columns_from([*done, held])
    w = window(0, 10)

    assert run.completed_rps(c, w) == pytest.approx(1.0)
    assert run.output_tps(c, w) == pytest.approx((90 + 100) / 10)


def test_c104_an_event_belongs_where_it_happens():
    first = stream(1.0, [4.0 + 0.5 * i for i in range(7)], request_id="R1")
    second = stream(4.5, [5.5, 5.75, 6.0, 6.25, 6.5], request_id="R2", intended=5.0)
    c = columns_from([first, second])
    w = window(5.0, 8.0)

    assert run.output_tps(c, w) * 3 == pytest.approx(5 + 5)  # [5, 8): of R1 those at 5.0, 5.5, 6.0, 6.5, 7.0
    assert run.output_tps(c, window(5.001, 8.0)) * 2.999 == pytest.approx(4 + 5)
    assert run.offered_rps(c, w) * 3 == pytest.approx(1)
    assert run.completed_rps(c, w) * 3 == pytest.approx(2)


def test_c109_rate_times_duration_is_the_count():
    late = [4.998 if i % 20 == 0 else i / 1000 for i in range(5000)]
    c = columns_from([stream(at, [at + 0.0009], request_id=str(i)) for i, at in enumerate(late)])
    w = window(0, 5)

    assert run.completed_rps(c, w) == pytest.approx(1000.0)
    assert run.output_tps(columns_from([stream(chunks=[0.499])]), window(0, 0.5)) == pytest.approx(2.0)


def test_the_window_is_half_open():
    c = columns_from([stream(1.0, [2.0], request_id="a"), stream(2.0, [3.0], request_id="b")])

    assert run.offered_rps(c, window(1, 2)) == 1.0
    assert run.completed_rps(c, window(1, 2)) == 0.0
    assert run.completed_rps(c, window(2, 3)) == 1.0


def test_input_rate_is_not_known_when_a_count_is_missing():
    told = stream(chunks=[0.5], prompt_tokens=30)
    silent = stream(chunks=[0.5], prompt_tokens=None)

    assert run.input_tps(columns_from([told]), window(0, 1)) == 30
    assert run.input_tps(columns_from([told, silent]), window(0, 1)) is None
    assert run.total_tps(columns_from([told, silent]), window(0, 1)) is None


def test_c94_partial_tokens_of_failures_are_counted_apart():
    bad = stream(chunks=[0.1, 0.2, 0.3], tokens=None, outcome=Outcome.ERROR_STREAM)
    c = columns_from([bad, stream(chunks=[0.4])])

    assert run.output_tps(c, window(0, 1)) == 1
    assert run.wasted_tps(c, window(0, 1)) == 3


def test_littles_law_holds_exactly_where_nothing_crosses_the_edges():
    c = columns_from([stream(i + 0.1, [i + 0.7], request_id=str(i)) for i in range(30)])
    found = run.little(c, window(0, 30))

    assert found is not None and found.long_enough
    assert found.in_flight == pytest.approx(0.6)
    assert found.disagreement == pytest.approx(0.0, abs=1e-6)


def test_in_flight_at_counts_the_cut_off():
    c = columns_from([stream(0.0, [1.0]), failed(0.5, outcome=Outcome.UNFINISHED, request_id="u")])

    assert list(run.in_flight_at(c, window(0, 2, 3), np.array([0.25, 0.75, 1.5, 3.5]) * 1e9)) == [1, 2, 1, 0]
