"""A gate that cannot fail is no gate: missing, null, collapsed and INVALID never pass."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchlab.errors import Exit, NotComparableError
from benchlab.records.event import Outcome
from benchlab.selection.gate import assertions, exit_code, regressions
from benchlab.selection.judge import judge
from benchlab.selection.slo import parse_assertion, parse_regression
from tests.made_runs import MadeStage, failed, open_run, open_stage, steady


def summary(*, ttft=200.0, output_tps=900.0, n=500, condition="stable", verdict="VALID", **more):
    stage = {
        "stage": 0,
        "condition": condition,
        "load": {"kind": "open", "offered_rps": 5.0, "concurrency": None},
        "output_tps": output_tps,
        "failed_share": 0.0,
        "metrics": {"ttft": {"n": n, "p99": ttft, "ci95": {}}},
    }
    return {"verdict": {"state": verdict}, "stages": [stage | more], "selection": None}


BASELINE = summary()
LIMITS = [parse_regression("ttft.p99=10%"), parse_regression("output_tps=10%")]


def outcome(candidate) -> list[bool]:
    return [row.passed for row in regressions(candidate, BASELINE, LIMITS)]


def test_c92_zero_is_not_plausible():
    rows = regressions(summary(ttft=0.0, output_tps=0.0), BASELINE, LIMITS)

    assert [row.passed for row in rows] == [False, False]
    assert all("not plausible" in row.why for row in rows)


def test_c92_missing_and_null_fail():
    missing = {
        "verdict": {"state": "VALID"},
        "stages": [{"stage": 0, "condition": "stable", "load": {"kind": "open", "offered_rps": 5.0}}],
    }

    assert outcome(missing) == [False, False]
    assert outcome({"verdict": {"state": "VALID"}}) == [False, False]
    assert outcome({}) == [False, False]
    assert outcome(summary(ttft=None)) == [False, True]
    assert outcome(summary(ttft=float("nan"))) == [False, True]


def test_c92_direction_comes_from_the_metric():
    assert outcome(summary(ttft=190.0, output_tps=700.0)) == [True, False]
    row = regressions(summary(ttft=190.0, output_tps=700.0), BASELINE, LIMITS)[1]
    assert row.value == pytest.approx(0.222, abs=0.001) and "22.2% worse" in row.why
    assert outcome(summary(ttft=230.0, output_tps=1100.0)) == [False, True]
    assert outcome(summary(ttft=219.0, output_tps=811.0)) == [True, True]


def test_c92_no_samples_fail():
    assert outcome(summary(n=0)) == [False, True]


def test_no_baseline_is_not_comparable():
    with pytest.raises(NotComparableError):
        regressions(summary(), None, LIMITS)
    assert regressions(summary(), None, []) == []


def test_a_baseline_under_another_load_is_no_baseline():
    other = summary()
    other["stages"][0]["load"]["offered_rps"] = 9.0

    assert [row.passed for row in regressions(summary(), other, LIMITS)] == [False, False]


def test_two_draws_of_the_same_load_are_the_same_load():
    one, two = summary(), summary()
    one["stages"][0]["load"] |= {"asked_rps": 5.0, "offered_rps": 4.8}
    two["stages"][0]["load"] |= {"asked_rps": 5.0, "offered_rps": 5.3}

    assert [row.passed for row in regressions(one, two, LIMITS)] == [True, True]


def test_c91_one_failure_in_ten_breaks_a_limit_of_one_percent(tmp_path):
    records = [steady(i / 5, ttft=0.1, gap=0.01, tokens=12, request_id=str(i)) for i in range(45)]
    records += [failed(9 + i / 10, outcome=Outcome.ERROR_HTTP, request_id=f"b{i}") for i in range(5)]
    run = open_run(tmp_path / "run", [MadeStage(records, 0, 10, offered_rps=5.0)])
    found = judge(run, gates=[parse_assertion("failed_share<=1%"), parse_assertion("ttft.p50<=1s")])

    assert found["gates"][0]["passed"] is False and found["gates"][0]["value"] == pytest.approx(0.10)
    assert found["gates"][1]["passed"] is False  # no stable stage: survivors look fast
    assert exit_code(found, gates=found["gates"]) == Exit.GATE


def test_a_gate_on_an_invalid_measurement_is_never_green():
    clause = [parse_assertion("ttft.p99<=1s")]

    assert assertions(summary(), clause)[0].passed is True
    for verdict in ("INVALID", None):
        row = assertions(summary(verdict=verdict), clause)[0]
        assert row.passed is False and row.value == 200.0
    assert regressions(summary(verdict="INVALID"), BASELINE, LIMITS)[0].passed is False
    assert exit_code(summary(verdict="INVALID"), gates=[row]) == Exit.INVALID


def test_the_worst_stage_decides_and_an_overloaded_one_is_kept_out():
    both = summary()
    worse = summary(ttft=900.0)["stages"][0] | {"stage": 1}
    drowned = summary(ttft=9000.0, condition="overloaded")["stages"][0] | {"stage": 2}
    both["stages"] += [worse, drowned]
    row = assertions(both, [parse_assertion("ttft.p99<=1s")])[0]

    assert row.passed and row.value == 900.0 and row.stage == 1
    row = assertions(both, [parse_assertion("ttft.p99<=500ms")])[0]
    assert not row.passed and row.value == 900.0


def test_the_selected_stage_is_the_one_that_is_gated():
    both = summary()
    both["stages"].append(summary(ttft=900.0)["stages"][0] | {"stage": 1})
    both["selection"] = {"selected_stage": 0}

    assert assertions(both, [parse_assertion("ttft.p99<=500ms")])[0].passed


def test_rows_have_the_agreed_keys(tmp_path):
    found = judge(open_run(tmp_path / "run", [open_stage(2, 0.0)]), gates=[parse_assertion("tpot.p95<40ms")])

    assert {"name", "passed", "value", "limit"} <= set(found["gates"][0])
    assert found["gates"][0]["name"] == "tpot.p95<40ms" and found["gates"][0]["passed"] is True
    json.dumps(found, allow_nan=False)


def test_exit_codes_and_their_precedence():
    bad = [{"name": "x", "passed": False}]
    invalid = summary(verdict="INVALID")

    assert exit_code(summary()) == Exit.OK
    assert exit_code(summary(), gates=bad) == Exit.GATE
    assert exit_code(summary(), gates=[{"name": "x"}]) == Exit.GATE  # no word that it passed
    assert exit_code(summary(), inconclusive=True) == Exit.INCONCLUSIVE
    assert exit_code(summary(), gates=bad, inconclusive=True) == Exit.GATE
    assert exit_code(summary(), gates=bad, comparable=False) == Exit.NOT_COMPARABLE
    assert exit_code(invalid, gates=bad, comparable=False) == Exit.INVALID
    assert exit_code(invalid, aborted=True) == Exit.ABORTED
    assert exit_code(invalid, aborted=True, raised=[Exit.INTERNAL]) == Exit.INTERNAL
    assert exit_code(invalid, raised=[Exit.USAGE, Exit.UNREACHABLE]) == Exit.USAGE
    assert exit_code(invalid, interrupted=Exit.INTERRUPTED, raised=[Exit.USAGE]) == Exit.INTERRUPTED
    assert exit_code(interrupted=Exit.TERMINATED) == Exit.TERMINATED


def test_judging_loads_no_client():
    code = (
        "import sys, benchlab.selection.judge, benchlab.selection.compare\n"
        "bad = {'httpx', 'aiohttp', 'scipy', 'pandas', 'benchlab.clients', 'benchlab.loadgen', 'benchlab.workload'}\n"
        "sys.exit(str(bad & set(sys.modules)) if bad & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
