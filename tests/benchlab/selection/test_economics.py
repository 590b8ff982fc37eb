"""Worked example 9: cost and energy over what was really done; what is not known costs nothing, never 0."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.records.sample import Sample
from benchlab.records.store import Run
from benchlab.selection.economics import (
    Split,
    economics,
    per_million_tokens,
    per_request,
    per_success,
    replicas,
    successes_per_dollar,
)
from benchlab.selection.judge import judge
from benchlab.selection.slo import parse_objective
from tests.made_runs import MadeStage, made_run, ns, steady

WORK = Split(prefill_s=0.16, decode_s=0.1875, input_tokens=2000, output_tokens=300)


def test_four_dollars_an_hour_at_2_88_requests_a_second():
    assert 4.0 / per_request(4.0, 2.88) == pytest.approx(10_360, abs=10)
    assert per_request(4.0, 2.88) == pytest.approx(0.000386, abs=5e-7)
    assert 4.0 / per_request(4.0, 2.88, 0.4) == pytest.approx(4_144, abs=5)
    assert per_request(4.0, 2.88, 0.4) == pytest.approx(0.00097, abs=6e-6)


def test_the_same_request_token_by_token():
    assert 1000 * WORK.input_s == pytest.approx(0.08)
    assert 1000 * WORK.output_s == pytest.approx(0.625)
    assert WORK.output_s / WORK.input_s == pytest.approx(7.8, abs=0.02)
    assert WORK.input_token_share == pytest.approx(0.87, abs=0.001)
    assert WORK.input_time_share == pytest.approx(0.46, abs=0.001)
    each = per_request(4.0, 2.88)
    into, out = WORK.per_million(each)
    assert (into * 2000 + out * 300) / 1e6 == pytest.approx(each)


def test_formulas():
    assert per_million_tokens(4.0, 1000.0) == pytest.approx(4.0 / (3600 * 1000) * 1e6)
    assert per_success(4.0, 1000.0, 0.8) == pytest.approx(4.0 / 800)
    assert successes_per_dollar(4.0, 1000.0, 0.8) == pytest.approx(200.0)


def test_replicas():
    # 12/s of 0.3475 s of work each, on devices that are to be 70% busy
    assert replicas(12, 0.3475, 1.0, 0.7) == 6
    assert replicas(2.0, 0.35, 1.0, 0.7) == 1 and replicas(0, 1.0, 1.0, 0.5) == 0
    assert replicas(3, 0.1, 1.0, 0.1) == 3  # an exact fit is no replica more, whatever floats say
    with pytest.raises(UsageError):
        replicas(1, 1, 1, 0)


STAGE = {
    "window_s": 60.0,
    "completed_rps": 2.88,
    "good_rps": 2.0,
    "output_tps": 864.0,
    "good_tps": 600.0,
    "total_tps": 6624.0,
    "energy": {"joules": 18_000.0, "idle_joules": 6_000.0, "lower_bound": False, "why": ""},
}


def test_a_stage_with_everything():
    found = economics(STAGE, price_per_hour=4.0, utilisation=0.4, passed=0.9, split=WORK)
    assert found["per_1k_requests"] == pytest.approx(0.9645, abs=1e-3)
    assert found["per_1m_input_tokens"] / found["per_1m_output_tokens"] == pytest.approx(0.128)
    assert found["per_1m_tokens_blended"] == pytest.approx(4 / (3600 * 6624 * 0.4) * 1e6)
    assert found["per_1m_output_tokens_all_cost"] == pytest.approx(4 / (3600 * 864 * 0.4) * 1e6)
    assert found["per_1k_good_requests"] == pytest.approx(found["per_1k_requests"] * 2.88 / 2.0)
    assert found["successful_tasks_per_dollar"] == pytest.approx(2.88 * 3600 * 0.4 * 0.9 / 4)
    assert found["per_successful_task"] == pytest.approx(1 / found["successful_tasks_per_dollar"])
    assert found["joules_per_output_token"] == pytest.approx(18_000 / (864 * 60))
    assert found["joules_per_good_token"] == pytest.approx(18_000 / (600 * 60))
    assert found["joules_per_request"] == pytest.approx(18_000 / (2.88 * 60))
    assert found["idle_share"] == pytest.approx(1 / 3)
    assert found["joules_per_output_token_above_idle"] == pytest.approx(12_000 / (864 * 60))
    assert found["why"] == {}


def test_no_price_no_cost():
    found = economics({**STAGE, "energy": None, "good_rps": None, "good_tps": None})
    assert all(found[name] is None for name in found if name.startswith(("per_", "joules", "successful")))
    assert "--price-per-hour" in found["why"]["cost"] and "no energy" in found["why"]["energy"]
    blended = economics(STAGE, price_per_hour=4.0)
    assert blended["per_1m_input_tokens"] is None and "blended" in blended["why"]["per_1m_input_tokens"]
    assert blended["per_successful_task"] is None and "graded" in blended["why"]["per_successful_task"]


def test_nothing_done_has_no_cost_and_no_success_no_price():
    idle = {**STAGE, "completed_rps": 0.0, "output_tps": 0.0, "total_tps": 0.0, "good_rps": 0.0, "good_tps": 0.0}
    found = economics(idle, price_per_hour=4.0, passed=0.5)
    assert found["per_1k_requests"] is None and found["why"]["cost"] == "nothing was completed"
    assert found["joules_per_output_token"] is None and found["why"]["joules_per_good_token"] == "no token was good"
    none = economics(STAGE, price_per_hour=4.0, passed=0.0)
    assert none["per_successful_task"] is None and none["successful_tasks_per_dollar"] == 0.0


@pytest.mark.parametrize(
    "wrong",
    [{"price_per_hour": 0.0}, {"price_per_hour": float("nan")}, {"utilisation": 0.0}, {"utilisation": 40.0},
     {"passed": 1.5}],
)  # fmt: skip
def test_what_cannot_be_is_an_error(wrong):
    with pytest.raises(UsageError):
        economics(STAGE, **{"price_per_hour": 4.0, **wrong})


@given(st.dictionaries(st.sampled_from(sorted(STAGE)), st.one_of(st.none(), st.just(0.0), st.floats(0, 1e9))))
def test_any_hole_is_null_and_never_infinite(holes):
    holes.pop("energy", None)
    json.dumps(economics({**STAGE, **holes}, price_per_hour=4.0, passed=0.5), allow_nan=False)


def test_a_judged_run_has_costs_and_joules(tmp_path):
    """300 W under load from 10 s on, 100 W at rest before; two requests a second of ten tokens."""
    records = [steady(10 + i / 2, ttft=0.1, gap=0.02, tokens=10, request_id=str(i)) for i in range(120)]
    stage = MadeStage(records, 10.0, 70.0, offered_rps=2.0, cut=75.0)
    power = [Sample(ns(t / 2), "nvml", "GPU-a", "power_w", 100.0 if t < 20 else 300.0) for t in range(170)]
    path = made_run(tmp_path / "run", [stage], samples=power)
    plain = judge(Run(path))["stages"][0]
    assert plain["economics"]["per_1k_requests"] is None
    assert plain["energy"]["joules"] == pytest.approx(18_000, rel=0.01)
    assert plain["energy"]["idle_watts"] == pytest.approx(105, rel=0.05)
    assert plain["economics"]["joules_per_output_token"] == pytest.approx(15.0, rel=0.02)

    priced = judge(Run(path), price_per_hour=3.6)["stages"][0]["economics"]
    assert priced["per_1k_requests"] == pytest.approx(1000 * 3.6 / 7200, rel=0.02)
    assert priced["joules_per_output_token_above_idle"] == pytest.approx(9.75, rel=0.05)


def test_objectives_of_a_judged_run_say_whether_they_are_proved(tmp_path):
    records = [steady(i / 2, ttft=0.1, gap=0.02, tokens=10, request_id=str(i)) for i in range(120)]
    path = made_run(tmp_path / "run", [MadeStage(records, 0.0, 60.0, offered_rps=2.0, cut=70.0)],
                    objectives=["ttft.p95<=400ms", "ttft.p99<=400ms", "completed_rps>=1"])  # fmt: skip
    p95, p99 = judge(Run(path))["stages"][0]["proofs"]
    assert p95["proven"] and not p99["proven"]
    assert p99["say"].startswith("run 2 min 50 s longer to prove p99")


def test_a_share_is_proved_by_the_exact_interval_and_not_by_wilsons(tmp_path):
    """30 of 30: Wilson's interval begins at 88.6%, the exact one at 88.4%; an objective of 88.5% is not proved."""
    records = [steady(i / 2, ttft=0.1, gap=0.02, tokens=10, request_id=str(i)) for i in range(30)]
    path = made_run(tmp_path / "run", [MadeStage(records, 0.0, 15.0, offered_rps=2.0, cut=20.0)],
                    slo={"clauses": ["ttft=400ms"], "target": None})  # fmt: skip
    judged = judge(Run(path), objectives=[parse_objective("attainment>=88.5%")], mode="proved")
    stage = judged["stages"][0]
    assert stage["attainment_exact95"][0] < 0.885 < stage["attainment_ci95"][0]
    assert judged["selection"]["selected_stage"] is None
    assert (
        judge(Run(path), objectives=[parse_objective("attainment>=88%")], mode="proved")["selection"]["selected_stage"]
        == 0
    )


def test_the_preset_of_a_run_is_kept(tmp_path):
    records = [steady(i / 2, ttft=0.1, gap=0.02, tokens=10, request_id=str(i)) for i in range(120)]
    path = made_run(tmp_path / "run", [MadeStage(records, 0.0, 60.0, offered_rps=2.0, cut=70.0)], preset="publish")
    assert judge(Run(path))["preset"] == "publish" and judge(Run(path))["verdict"]["state"] == "WARN"
