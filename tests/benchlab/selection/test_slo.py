"""What the user may ask for, and what is refused with a way out."""

from __future__ import annotations

import pytest

from benchlab.errors import UsageError
from benchlab.selection.slo import (
    parse_assertion,
    parse_objective,
    parse_regression,
    parse_slo,
    parse_slos,
    percentiles_with,
)


@pytest.mark.parametrize(
    ("text", "metric", "limit"),
    [
        ("ttft=500ms", "ttft", 500.0),
        ("ttft=0.5s", "ttft", 500.0),
        ("tpot<=40ms", "tpot", 40.0),
        ("time_to_first_token:500ms", "ttft", 500.0),
        ("inter_token_latency=40ms", "tpot", 40.0),
        ("e2el=2s", "e2e", 2000.0),
        ("stream_speed=20tok/s", "stream_speed", 20.0),
    ],
)
def test_slo(text, metric, limit):
    clause = parse_slo(text)

    assert (clause.metric, clause.limit) == (metric, pytest.approx(limit))


def test_several_in_one_argument_as_peers_write_them():
    assert [c.metric for c in parse_slos(["ttft=500ms tpot=40ms", "stall=1s,e2e=9s"])] == [
        "ttft",
        "tpot",
        "stall",
        "e2e",
    ]


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "operator", "limit"),
    [
        ("ttft.p99<=400ms", "ttft", "p99", "<=", 400.0),
        (" tpot.p95 < 0.04s ", "tpot", "p95", "<", 40.0),
        ("inter_token_latency.p99.9<=1s", "itl", "p99.9", "<=", 1000.0),
        ("e2e.median<=2s", "e2e", "p50", "<=", 2000.0),
        ("e2e.avg<=2s", "e2e", "mean", "<=", 2000.0),
        ("completed_rps>=10", "completed_rps", None, ">=", 10.0),
        ("request_throughput>=600/min", "completed_rps", None, ">=", 10.0),
        ("output_tps>=900 tok/s", "output_tps", None, ">=", 900.0),
        ("attainment>=95%", "attainment", None, ">=", 0.95),
        ("failed_share<=0.01", "failed_share", None, "<=", 0.01),
        ("output_tokens.mean>=100", "output_tokens", "mean", ">=", 100.0),
        ("held.max<=0ms", "held", "max", "<=", 0.0),
        ("wasted_tps<=0", "wasted_tps", None, "<=", 0.0),
    ],
)
def test_objective(text, metric, statistic, operator, limit):
    clause = parse_objective(text)

    assert (clause.metric, clause.statistic, clause.operator) == (metric, statistic, operator)
    assert clause.limit == pytest.approx(limit)


def test_c53_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(UsageError) as raised:
        parse_slo("ttfx=200ms")

    assert raised.value.exit_code == 2
    assert "did you mean ttft" in raised.value.hint and "tpot" in raised.value.hint


def test_c53_a_bare_number_is_an_error_that_shows_both_readings():
    with pytest.raises(UsageError) as raised:
        parse_slo("ttft=0.2")

    assert "0.2ms" in raised.value.hint and "0.2s" in raised.value.hint
    with pytest.raises(UsageError):
        parse_objective("ttft.p99<=400")


@pytest.mark.parametrize(
    ("parse", "text", "hint"),
    [
        (parse_objective, "ttft<=400ms", "ttft.p95"),
        (parse_objective, "ttft.p100<=400ms", "known"),
        (parse_objective, "ttft.p9x<=400ms", "did you mean"),
        (parse_objective, "completed_rps.p50>=1", "completed_rps"),
        (parse_objective, "ttft.p99=400ms", "ttft.p99<=400ms"),
        (parse_assertion, "attainment>=95ms", "95%"),
        (parse_slo, "ttft.p99=400ms", "--objective 'ttft.p99<=400ms'"),
        (parse_slo, "itl=40ms", "tpot"),
        (parse_slo, "completed_rps=10", "--objective"),
        (parse_slo, "nonsense", "ttft=500ms"),
        (parse_slo, "output_tokens=3", "limit"),
        (parse_regression, "tpot.p95=5", "5%"),
        (parse_regression, "tpot=5%", "tpot.p95"),
        (parse_regression, "prompt_tokens.mean=5%", "--assert"),
        (parse_regression, "=5%", "tpot.p95=5%"),
    ],
)
def test_refused_with_a_way_out(parse, text, hint):
    with pytest.raises(UsageError) as raised:
        parse(text)

    assert raised.value.exit_code == 2
    assert hint in raised.value.hint


def test_regression():
    found = parse_regression("time_per_output_token.p95=5%")

    assert (found.key, found.share) == ("tpot.p95", pytest.approx(0.05))


def test_percentiles_that_a_clause_needs_are_computed():
    clauses = [parse_objective("ttft.p99.9<=1s"), parse_objective("ttft.mean<=1s"), parse_objective("attainment>=1%")]

    assert percentiles_with((50, 99), clauses) == (50.0, 99.0, 99.9)
