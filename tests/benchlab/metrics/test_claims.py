"""Presets, and what a measurement supports claim by claim: the rules that bear on it, and what would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchlab.metrics.claims import RESTS_ON, stage_claim_rules
from benchlab.metrics.limits import CI, PRESETS, PUBLISH
from benchlab.metrics.summary import summarise
from benchlab.records.sample import Sample
from tests.made_runs import MadeStage, made_samples, ns, open_run, open_stage, poisson, served


def long_stage(rate: float = 1.2, seconds: float = 60.0) -> MadeStage:
    records = served(poisson(rate, 0.0, seconds, seed=1), work=lambda _: 0.2, servers=4, tokens=8, gap=0.02)
    return MadeStage(records, 0.0, seconds, offered_rps=rate, cut=seconds + 10)


def claims_of(tmp_path, stages, **more):
    return summarise(open_run(tmp_path / "run", stages), **more)


def rule(claim, name):
    return next((r for r in claim["rules"] if r["name"] == name), None)


def test_everyday_limits_keep_what_claims_lack_out_of_the_verdict(tmp_path):
    made = claims_of(tmp_path, [open_stage(5, 0.0, seed=2)])
    assert made["verdict"]["state"] == "VALID" and made["preset"] == "ci"
    latency = made["claims"]["latency"]
    assert latency["state"] == "with reservations"
    assert rule(latency, "window_s")["value"] == 30.0 and "run 30 s longer" in rule(latency, "window_s")["hint"]
    samples = rule(latency, "percentile_samples")
    assert (samples["value"], samples["limit"]) == (150, 662)
    # (662 - 150) / 5 = 102.4 s
    assert samples["hint"].startswith("run 1 min 43 s longer to report p99: 662 samples at 5/s, 150 so far; p95 has")
    assert made["claims"]["energy"]["state"] == "with reservations"  # the window is short for it, too


def test_run_9_min_12_s_longer():
    """UX: 662 samples at 1.2 a second are 551.7 s of load; a run that has none yet lacks them all."""
    stage = {"stage": 0, "window_s": 10.0, "attempted": 12, "outcomes": {"ok": 0}, "failed_share": 0.0}
    found = next(r for r in stage_claim_rules(stage, CI, (50, 99), judged_on=True) if r.name == "percentile_samples")
    assert found.hint.startswith("run 9 min 12 s longer to report p99: 662 samples at 1.2/s, 0 so far")


def test_publishing_asks_for_more_and_says_so_in_the_verdict(tmp_path):
    stages = [open_stage(5, 0.0, seed=2)]
    made = claims_of(tmp_path, stages, limits=PUBLISH)
    assert made["verdict"]["state"] == "WARN" and made["preset"] == "publish"
    names = {r["name"] for r in made["verdict"]["rules"] if r["state"] == "warn"}
    assert {"window_s", "percentile_samples"} <= names
    for r in made["verdict"]["rules"]:
        assert r["hint"] or r["state"] == "pass" or r["name"] in ("steady", "energy_known")


def test_a_long_healthy_run_supports_its_claims(tmp_path):
    made = claims_of(tmp_path, [long_stage(rate=12.0)])
    found = {claim: entry["state"] for claim, entry in made["claims"].items()}
    assert found == dict.fromkeys(("latency", "capacity", "energy", "comparison"), "supported"), made["claims"]


def test_without_readings_there_is_no_claim_of_energy(tmp_path):
    host_only = [Sample(ns(i / 2), "host", "host", "cpu_share", 0.2) for i in range(160)]
    made = summarise(open_run(tmp_path / "run", [long_stage()], samples=host_only))
    assert made["claims"]["energy"]["state"] == "not measured"
    assert "no energy or power" in made["claims"]["energy"]["rules"][0]["hint"]
    assert made["stages"][0]["energy"] == {"joules": None, "why": "no energy or power of a GPU was sampled"}


def test_an_overloaded_stage_carries_no_claim_and_spoils_none(tmp_path):
    made = claims_of(tmp_path, [long_stage(rate=12.0), open_stage(20, 100.0, seed=3)])
    assert made["stages"][1]["condition"] == "overloaded"
    assert made["claims"]["latency"]["state"] == "supported"


def test_an_invalid_measurement_supports_nothing_that_rests_on_it(tmp_path):
    stage = long_stage(rate=12.0)
    lost = replace(stage, records=stage.records[:-5], entry={"planned": len(stage.records)})
    made = claims_of(tmp_path, [lost])
    assert made["verdict"]["state"] == "INVALID"
    assert {entry["state"] for entry in made["claims"].values()} == {"not supported"}


def test_a_run_of_an_unknown_workload_compares_with_nothing(tmp_path):
    made = summarise(open_run(tmp_path / "run", [long_stage(rate=12.0)], workload={"path": "x", "cache": "unknown"}))
    assert made["claims"]["comparison"]["state"] == "with reservations"
    assert made["claims"]["latency"]["state"] == "supported"


def test_a_simulation_measured_nothing(tmp_path):
    made = summarise(open_run(tmp_path / "run", [long_stage(rate=12.0)], simulated={"profile": "made"}))
    assert {entry["state"] for entry in made["claims"].values()} == {"not measured"}
    assert "cost model" in made["claims"]["latency"]["rules"][0]["hint"]


def test_presets_by_name_and_publish_is_nowhere_laxer():
    assert PRESETS == {"ci": CI, "publish": PUBLISH}
    for name in ("missed_share", "lag_ms", "cpu_share", "merged_share", "cached_share", "token_count_share",
                 "failed_share", "held_share"):  # fmt: skip
        assert getattr(PUBLISH, name) <= getattr(CI, name)
    assert PUBLISH.headroom >= CI.headroom and PUBLISH.window_s == 600 and CI.window_s == 60


@pytest.mark.parametrize("preset", ["ci", "publish"])
def test_holes_in_telemetry_warn_or_fail(tmp_path, preset):
    taken = [s for s in made_samples(80.0) if not ns(20) < s.t_ns < ns(30)]
    made = summarise(open_run(tmp_path / "run", [long_stage(rate=12.0)], samples=taken), limits=PRESETS[preset])
    found = next(r for r in made["verdict"]["rules"] if r["name"] == "telemetry_gap_s")
    assert found["state"] == {"ci": "warn", "publish": "fail"}[preset]


def test_every_rule_that_a_claim_rests_on_exists(tmp_path):
    """A name that no rule has would never speak against the claim."""
    made = claims_of(tmp_path, [long_stage()], limits=PUBLISH)
    known = {r["name"] for r in made["verdict"]["rules"]} | {"simulated", "imported", "hosts_lost", "hosts_clock_ms"}
    assert set().union(*RESTS_ON.values()) <= known
