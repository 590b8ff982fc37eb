"""Worked example 3 as the literal table, and every way in which a pick could be wrong."""

from __future__ import annotations

import pytest

from benchlab.metrics.quantiles import interval_ranks
from benchlab.selection.judge import judge
from benchlab.selection.pick import pick
from benchlab.selection.slo import parse_objective
from tests.made_runs import made_sweep, open_run, open_stage

OBJECTIVES = [parse_objective("ttft.p99<=400ms"), parse_objective("tpot.p95<=40ms")]

# run, offered/s, successes in 60 s, completed/s, p99 TTFT ms, p95 TPOT ms, condition, decision
TABLE = [
    ("L2", 2, 120, 2, 80, 12, "stable", "qualifies"),
    ("L4", 4, 240, 4, 140, 20, "stable", "qualifies"),
    ("L6", 6, 360, 6, 260, 32, "stable", "selected"),
    ("L8", 8, 480, 8, 520, 48, "stable", "misses an objective"),
    ("L10", 10, 540, 9, 1000, 68, "overloaded", "invalid run"),
    ("L12", 12, 660, 11, 1400, 90, "errored", "invalid run"),
    ("L14", 14, None, None, None, None, "incomplete", "invalid run"),
]


def block(statistic: str, value, n):
    if value is None:
        return {"n": 0, statistic: None, "ci95": {}, "indicative": [], "gap": "unavailable"}
    low, high = interval_ranks(n, float(statistic[1:]) / 100)
    bounds = [value * 0.9 if low else None, value * 1.1 if high else None]
    return {"n": n, statistic: value, "ci95": {statistic: bounds}, "indicative": [] if low and high else [statistic]}


def stage(name, offered, n, completed, ttft, tpot, condition, *_):
    return {
        "id": name,
        "stage": name,
        "condition": condition,
        "load": {"kind": "open", "offered_rps": offered, "concurrency": None},
        "completed_rps": completed,
        "metrics": {"ttft": block("p99", ttft, n), "tpot": block("p95", tpot, n)},
    }


STAGES = [stage(*row) for row in TABLE]


def test_worked_example_3():
    found = pick(STAGES, OBJECTIVES)

    assert found.selected is not None and found.selected.id == "L6"
    assert found.bracket == (6, 8)
    assert found.selected.marks == ("ttft.p99",)
    qualifies = {decision.id: decision.qualifies for decision in found.decisions}
    assert qualifies == {row[0]: row[-1] in ("qualifies", "selected") for row in TABLE}
    why = {decision.id: decision.why for decision in found.decisions}
    assert why["L8"].startswith("ttft.p99<=400ms")
    assert (why["L10"], why["L12"], why["L14"]) == ("overloaded", "errored", "incomplete")
    assert found.as_dict()["selected_stage"] == "L6" and found.as_dict()["bracket_rps"] == [6, 8]
    assert "indicative" in found.reason


@pytest.mark.parametrize(("ttft", "tpot"), [(260, 32), (519, 47), (300, 40)])
def test_worked_example_3_any_limits_between_select_the_same(ttft, tpot):
    limits = [parse_objective(f"ttft.p99<={ttft}ms"), parse_objective(f"tpot.p95<={tpot}ms")]

    assert pick(STAGES, limits).selected.id == "L6"


def test_worked_example_3_in_mode_proved_selects_nothing():
    found = pick(STAGES, OBJECTIVES, mode="proved")

    assert found.selected is None and found.as_dict()["selected_stage"] is None
    assert all(not decision.qualifies for decision in found.decisions)
    assert "not proved" in found.reason


def test_proved_with_enough_samples():
    big = [stage("A", 5, 4000, 5, 300, 30, "stable"), stage("B", 6, 4000, 6, 390, 30, "stable")]

    assert pick(big, OBJECTIVES).selected.id == "B"
    assert pick(big, OBJECTIVES, mode="proved").selected.id == "A"  # B's interval reaches 429 ms


def test_a_tie_goes_to_the_lower_load_then_to_the_smaller_id():
    a, b, c = (stage(name, load, 500, 6, 100, 10, "stable") for name, load in (("x", 8), ("b", 7), ("a", 7)))

    assert pick([a, b, c], OBJECTIVES).selected.id == "a"
    assert pick([a, b], OBJECTIVES).selected.id == "b"


def test_an_unavailable_figure_qualifies_nothing_and_proves_nothing():
    gap = stage("G", 20, None, 20, None, None, "stable")
    lost = stage("H", 20, 500, None, 100, 10, "stable")

    assert not any(decision.qualifies for decision in pick([gap, lost], OBJECTIVES).decisions)
    found = pick([STAGES[2], STAGES[6]], OBJECTIVES)
    assert found.bracket == (6, None)  # an incomplete stage is no evidence against its load


def test_open_and_closed_loops_are_never_mixed():
    closed = stage("C", None, 500, 50, 100, 10, "stable")
    closed["load"] = {"kind": "closed", "offered_rps": None, "concurrency": 16}
    found = pick([*STAGES, closed], OBJECTIVES)

    assert found.selected.id == "L6" and "Closed-loop" in found.reason
    alone = pick([closed], OBJECTIVES)
    assert alone.selected.id == "C" and alone.kind == "closed"
    assert alone.as_dict()["bracket_concurrency"] == [16, None] and alone.as_dict()["bracket_rps"] == [None, None]


def test_objectives_that_hold_nowhere_select_nothing_with_the_reason():
    found = pick(STAGES, [parse_objective("ttft.p99<=1ms")])

    assert found.selected is None and found.bracket == (None, 2)
    assert "L2: ttft.p99<=1ms: it is 80" in found.reason


def test_without_objectives_or_stages_nothing_is_selected():
    assert pick(STAGES, []).selected is None
    assert pick([], OBJECTIVES).selected is None
    assert "no --objective" in pick(STAGES, []).reason


def test_a_limit_that_is_not_clean_is_said():
    dip = stage("L3", 3, 180, 3, 900, 12, "stable")
    found = pick([*STAGES, dip], OBJECTIVES)

    assert found.selected.id == "L6" and found.bracket == (6, 8)
    assert "a lower load (3/s offered) failed too" in found.reason


def test_what_was_cut_off_counts_against_an_objective():
    cut = stage("A", 5, 500, 5, 300, 30, "stable")
    cut["metrics"]["ttft"] |= {"censored": 6, "counting_cut_off": {"n": 506, "p99": None, "ci95": {}}}

    found = pick([cut], OBJECTIVES)
    assert found.selected is None and "not reached" in found.reason


def test_a_real_sweep_is_judged_whole(tmp_path):
    summary = judge(
        open_run(tmp_path / "run", made_sweep()),
        objectives=[parse_objective("ttft.p90<=1s")],
    )

    assert summary["selection"]["selected_stage"] == 1
    assert summary["selection"]["bracket_rps"] == [5.0, 20.0]
    assert summary["objectives"] == ["ttft.p90<=1s"]


def test_what_was_asked_for_is_taken_from_the_manifest(tmp_path):
    run = open_run(
        tmp_path / "run",
        [open_stage(2, 0.0)],
        slo={"clauses": ["ttft=500ms"], "target": 0.95},
        objectives=["ttft.p75<=1s"],
    )
    summary = judge(run)

    assert summary["stages"][0]["attainment"] == 1.0
    assert summary["stages"][0]["metrics"]["ttft"]["p75"] is not None
    assert summary["selection"]["selected_stage"] == 0
    assert summary["slo"] == {"clauses": ["ttft=500ms"], "target": 0.95}
    assert summary["objectives"] == ["ttft.p75<=1s", "attainment>=0.95"]
