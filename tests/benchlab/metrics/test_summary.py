"""summary.json: its schema, no NaN whatever happens, every mixture of outcomes adds up, and what peers got wrong."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.metrics.goodput import SloClause
from benchlab.metrics.summary import summarise, summarise_tables
from benchlab.records.event import Outcome
from benchlab.records.schema import SAMPLES
from tests.made_runs import (
    MadeStage,
    failed,
    made_manifest,
    made_sweep,
    ns,
    open_run,
    steady,
    stream,
    table_of,
)

SLO = (SloClause("ttft", 500.0, "ttft=500ms"), SloClause("tpot", 40.0, "tpot=40ms"))


def stage_of(records, *, length=10.0, cut=None, slo=(), percentiles=(50, 90, 95, 99), **entry):
    stage = MadeStage(records, 0.0, length, offered_rps=len(records) / length, cut=cut, entry=entry)
    summary = summarise_tables(
        made_manifest([stage]), table_of(records), SAMPLES.empty_table(), run_id="r", slo=slo, percentiles=percentiles
    )
    json.dumps(summary, allow_nan=False)
    return summary["stages"][0]


def test_the_schema_others_rely_on(tmp_path):
    summary = summarise(open_run(tmp_path / "run"), slo=SLO)

    assert {"schema", "run_id", "verdict", "stages", "selection", "gates"} <= set(summary)
    assert summary["schema"] == 1 and summary["run_id"] == "run"
    assert summary["percentile_method"] == "linear" and summary["created"]
    assert summary["verdict"]["state"] == "VALID"
    for rule in summary["verdict"]["rules"]:
        assert {"name", "state", "value", "limit", "hint"} <= set(rule)
        assert rule["state"] in ("pass", "warn", "fail", "not checked")
    for stage in summary["stages"]:
        assert {"stage", "condition", "load", "achieved_rps", "completed_rps", "good_rps", "attainment"} <= set(stage)
        assert {"input_tps", "output_tps", "total_tps", "outcomes", "metrics", "verdict", "notes"} <= set(stage)
        assert set(stage["load"]) >= {"kind", "offered_rps", "concurrency"}
        for name in ("ttft", "itl", "tpot", "e2e", "dispatch_lag", "stall"):
            block = stage["metrics"][name]
            assert {"unit", "n", "mean", "p50", "p90", "p95", "p99", "ci95", "left_out"} <= set(block)
            assert {"min", "max", "indicative", "gap", "better", "left_out_reasons"} <= set(block)
    assert [stage["condition"] for stage in summary["stages"]] == [
        "stable",
        "stable",
        "overloaded",
        "errored",
        "stable",
    ]


def test_the_conditions_of_a_sweep_do_not_make_it_invalid(tmp_path):
    summary = summarise(open_run(tmp_path / "run", made_sweep()[:3]))

    assert summary["verdict"]["state"] == "VALID"
    assert summary["stages"][2]["condition"] == "overloaded"


def test_c101_all_refused_is_a_full_report():
    records = [failed(i, outcome=Outcome.ERROR_HTTP, http_status=503, request_id=str(i)) for i in range(3)]
    stage = stage_of(records, slo=SLO)

    assert stage["completed_rps"] == 0 and stage["outcomes"]["error_http"] == 3
    assert stage["refused"] == {"limited": 0, "shed": 3}
    assert stage["failed_share"] == 1.0 and stage["attainment"] == 0.0
    assert stage["condition"] == "errored"
    for name in ("ttft", "itl", "tpot", "e2e", "stall"):
        block = stage["metrics"][name]
        assert block["n"] == 0 and block["p50"] is None and block["p99"] is None and block["mean"] is None
        assert block["gap"]


def test_c86_nothing_at_all_is_still_json():
    stage_of([])
    empty = summarise_tables({}, table_of([]), SAMPLES.empty_table(), run_id="x")

    json.dumps(empty, allow_nan=False)
    assert empty["verdict"]["state"] == "INVALID"


def test_c91_c94_the_share_of_failures_is_of_what_was_attempted():
    good = [steady(i / 5, ttft=0.1, gap=0.01, tokens=12, request_id=str(i)) for i in range(45)]
    bad = [
        stream(9 + i / 10, [9.05 + i / 10], tokens=None, outcome=Outcome.ERROR_STREAM, request_id=f"b{i}")
        for i in range(5)
    ]
    stage = stage_of(good + bad)

    assert stage["failed_share"] == pytest.approx(0.10)
    assert stage["metrics"]["ttft"]["n"] == 45  # partial answers are in no latency of the successes
    assert any("requests that failed" in note for note in stage["notes"])


def test_c97_a_timeout_of_the_client_is_said_beside_the_percentiles():
    took = [4.0, 4.5, 5.0, 5.5, 6.0]
    done = [stream(i / 10, [i / 10 + t], request_id=str(i)) for i, t in enumerate(took)]
    lost = [
        failed(0.5 + i / 10, outcome=Outcome.TIMEOUT, after=6.5, error_kind="total", request_id=f"t{i}")
        for i in range(3)
    ]
    stage = stage_of(done + lost)

    assert stage["outcomes"]["timeout"] == 3 and stage["outcomes"]["ok"] == 5
    assert any("given up by the client" in note for note in stage["notes"])
    assert stage["metrics"]["e2e"]["counting_cut_off"]["p90"] is None  # not reached


def test_c103_what_was_cut_off_is_a_lower_bound():
    done = [stream(float(i), [i + 1.0 - 1e-6], request_id=f"a{i}") for i in range(10)]
    held = stream(0.0, [0.1 * i + 0.05 for i in range(100)], tokens=None, outcome=Outcome.UNFINISHED, request_id="b")
    stage = stage_of([*done, held], cut=10.0)
    e2e = stage["metrics"]["e2e"]

    assert e2e["n"] == 10 and e2e["censored"] == 1
    assert e2e["p99"] == pytest.approx(1000.0, rel=1e-3)
    assert e2e["counting_cut_off"]["n"] == 11 and e2e["counting_cut_off"]["p99"] is None
    assert e2e["at_least"]["p99"] > 9000 and e2e["counting_cut_off"]["p50"] == pytest.approx(1000.0, rel=1e-3)


def test_c107_percentiles_come_from_the_pooled_samples_of_all_workers():
    a = [stream(i / 200, [i / 200 + 0.1], worker=0, request_id=f"a{i}") for i in range(900)]
    b = [stream(i / 200, [i / 200 + (1.0 if i < 50 else 5.0)], worker=1, request_id=f"b{i}") for i in range(100)]
    stage = stage_of(a + b)

    assert stage["metrics"]["ttft"]["p95"] == pytest.approx(1200.0)  # linear between the 950th and the 951st


def test_warm_up_is_in_no_latency_and_its_late_tokens_are_in_the_throughput():
    early = stream(-2.0, [-1.0, 0.5], request_id="w")
    later = stream(1.0, [1.1, 1.2], request_id="m")
    stage = stage_of([early, later])

    assert stage["attempted"] == 1 and stage["metrics"]["ttft"]["n"] == 1
    assert stage["output_tps"] == pytest.approx(0.3)


def test_good_requests_are_those_that_met_every_limit():
    fast = [steady(float(i), ttft=0.1, gap=0.01, tokens=10, request_id=f"f{i}") for i in range(6)]
    slow = [steady(6.0 + i, ttft=0.7, gap=0.01, tokens=10, request_id=f"s{i}") for i in range(2)]
    single = stream(8.5, [8.6], request_id="one")
    bad = failed(9.0, outcome=Outcome.ERROR_HTTP, request_id="x")
    stage = stage_of([*fast, *slow, single, bad], slo=SLO)

    assert stage["attainment"] == pytest.approx(7 / 10)
    assert stage["good_rps"] == pytest.approx(0.7)
    assert stage["slo_misses"] == {"ttft=500ms": 2, "tpot=40ms": 0}
    assert any("not held against it" in note for note in stage["notes"])


def test_a_limit_that_nothing_can_be_held_to_makes_attainment_unknown():
    stage = stage_of([stream(float(i), [i + 0.2], tokens=5, request_id=str(i)) for i in range(8)], slo=SLO)

    assert stage["attainment"] is None and stage["good_rps"] is None
    assert any("attainment is not known" in note for note in stage["notes"])


def test_c49_the_number_of_single_events_is_in_the_summary():
    stage = stage_of([stream(float(i), [i + 0.2], tokens=5, request_id=str(i)) for i in range(8)])

    assert stage["metrics"]["tpot"]["left_out_reasons"] == {"single text event": 8}
    assert stage["metrics"]["tpot"]["gap"] == "single text event"
    assert stage["output_tps"] == pytest.approx(4.0)


def test_a_run_that_lacks_its_window_says_so():
    stage = stage_of([stream(1.0, [2.0])], w0_ns=None, w1_ns=None, drain_end_ns=None)

    assert any("span of the records" in note for note in stage["notes"])


OUTCOMES = list(Outcome)


@st.composite
def mixtures(draw):
    records = []
    for i in range(draw(st.integers(0, 25))):
        at = draw(st.floats(-2, 12))
        outcome = draw(st.sampled_from(OUTCOMES))
        if outcome is Outcome.OK:
            gaps = draw(st.lists(st.floats(0, 0.5), min_size=0, max_size=6))
            times = [at + 0.1 + sum(gaps[: k + 1]) for k in range(len(gaps))]
            tokens = draw(st.sampled_from([None, -1, 1, 40]))
            records.append(stream(at, times, tokens=tokens, request_id=f"r{i}"))
        else:
            records.append(failed(at, outcome=outcome, request_id=f"r{i}"))
    return records


def numbers(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, float):
        yield value


@settings(max_examples=60, deadline=None)
@given(mixtures(), st.sampled_from(["open", "closed"]))
def test_any_mixture_adds_up_and_holds_no_nan(records, kind):
    stage = stage_of(records, kind=kind, slo=SLO, cut=20.0)

    assert all(math.isfinite(value) for value in numbers(stage))
    assert sum(stage["outcomes"].values()) == stage["attempted"]
    assert set(stage["outcomes"]) == {outcome.value for outcome in Outcome}
    assert stage["attempted"] == sum(0 <= record.intended_ns < ns(10) for record in records)
    for name, block in stage["metrics"].items():
        if block["n"]:
            assert block["min"] <= block["p50"] <= block["p99"] <= block["max"], name
        if block["unit"] == "ms" and name not in ("itl", "dispatch_lag", "held", "connect"):
            assert block["n"] + block["left_out"] == stage["outcomes"]["ok"], name
    if stage["peak_tps"] is not None:
        assert stage["peak_tps"] >= stage["output_tps"] - 1e-9


def test_itl_says_whether_its_gaps_are_between_tokens():
    one = [steady(float(i), ttft=0.1, gap=0.05, tokens=5, request_id=str(i)) for i in range(8)]
    many = [stream(float(i), [i + 0.1, i + 0.2], tokens=9, request_id=str(i)) for i in range(8)]

    assert stage_of(one)["metrics"]["itl"]["between"] == "tokens"
    assert stage_of(many)["metrics"]["itl"]["between"] == "chunks"
    assert stage_of(one)["metrics"]["itl"]["interval_n"] == 8
