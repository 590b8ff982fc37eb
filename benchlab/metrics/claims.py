"""What the measurement supports, claim by claim: latency, capacity, energy, comparison.

The one idea: a run may be good enough for one claim and not for another; each claim rests on the validity rules that
bear on it, and on what only claims need: a long enough window, enough samples for the percentiles that are reported,
few failures, a steady level. Those never fail a run, but under the publish preset they warn. It must not compute
figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from benchlab.metrics.limits import Limits
from benchlab.metrics.needed import in_words, samples_to_report
from benchlab.metrics.rule import Rule, worst

Claim = Literal["latency", "capacity", "energy", "comparison"]

_RECORDS: frozenset[str] = frozenset(
    (
        "complete_records",
        "impossible_numbers",
        "output_lengths",
        "cold_cache_hits",
        "prompts_sent_before",
        "hosts_lost",
        "simulated",
        "imported",
    )
)
_CLIENT = frozenset(
    ("client_cpu_share", "client_headroom", "client_faults", "inflight_cap", "rate_held", "whole_sessions")
)
_TIMES = frozenset(
    (
        "dispatch_lag_p99_ms",
        "loop_lag_p99_ms",
        "stamp_error_p99_ms",
        "merged_chunk_share",
        "token_counts",
        "wall_clock_steps",
        "client_cpu_share",
        "inflight_cap",
    )
)
RESTS_ON: dict[Claim, frozenset[str]] = {
    "latency": _RECORDS | _TIMES | {"window_s", "percentile_samples", "failed_share", "steady"},
    "capacity": _RECORDS | _CLIENT | {"dispatch_lag_p99_ms", "window_s", "steady"},
    "energy": _RECORDS | {"telemetry_gap_s", "window_s", "energy_known"},
    "comparison": _RECORDS | _CLIENT | {"same_server", "hosts_clock_ms", "window_s", "workload_known", "failed_share"},
}
"""The rules that bear on each claim."""


def stage_claim_rules(
    stage: Mapping[str, Any], limits: Limits, percentiles: Sequence[float], *, judged_on: bool
) -> list[Rule]:
    """The rules that only claims need, of a stage as summary.json has it.

    judged_on: whether figures of this stage carry a claim (a stage that was overloaded on purpose carries none).
    """
    number = int(stage.get("stage") or 0)
    if not judged_on:
        return []
    rules = [_window(stage, limits, number), _samples(stage, percentiles, number), _failed(stage, limits, number)]
    return [*rules, _steady(stage, number)]


def _rate(stage: Mapping[str, Any]) -> float:
    window = stage.get("window_s") or 0.0
    return float((stage.get("attempted") or 0) / window) if window else 0.0


def _window(stage: Mapping[str, Any], limits: Limits, number: int) -> Rule:
    length = stage.get("window_s")
    if length is None:
        return Rule("window_s", "not checked", None, limits.window_s, "no measured window", number)
    if length >= limits.window_s:
        return Rule("window_s", "pass", length, limits.window_s, "", number)
    hint = f"run {in_words(limits.window_s - length)} longer: --duration {limits.window_s:g}s"
    return Rule("window_s", "warn", length, limits.window_s, hint, number)


def _samples(stage: Mapping[str, Any], percentiles: Sequence[float], number: int) -> Rule:
    """MLPerf's count for the highest percentile that is reported, of answers that ended well."""
    have = int((stage.get("outcomes") or {}).get("ok") or 0)
    highest = max(percentiles, default=50.0)
    need = samples_to_report(highest / 100)
    if have >= need:
        return Rule("percentile_samples", "pass", have, need, "", number)
    rate = _rate(stage)
    longer = f"run {in_words((need - have) / rate)} longer to report p{highest:g}: {need} samples" if rate else ""
    held = [p for p in sorted(percentiles) if samples_to_report(p / 100) <= have]
    enough = f"; p{held[-1]:g} has enough" if held else ""
    hint = f"{longer} at {rate:.3g}/s, {have} so far{enough}" if longer else "nothing was attempted"
    return Rule("percentile_samples", "warn", have, need, hint, number)


def _failed(stage: Mapping[str, Any], limits: Limits, number: int) -> Rule:
    share = stage.get("failed_share")
    if share is None:
        return Rule("failed_share", "not checked", None, limits.failed_share, "nothing was attempted", number)
    bad = share > limits.failed_share
    hint = "latencies are those of who got through; see outcomes" if bad else ""
    return Rule("failed_share", "warn" if bad else "pass", share, limits.failed_share, hint, number)


def _steady(stage: Mapping[str, Any], number: int) -> Rule:
    found = stage.get("steady")
    if not found or found["state"] == "short":
        return Rule("steady", "not checked", None, None, "too few answers to tell a level from chance", number)
    if found["state"] == "steady":
        return Rule("steady", "pass", "steady", None, "", number)
    name = str(found["series"]).upper() if found["series"] == "tpot" else "end-to-end time"
    if found["state"] == "drifting":
        hint = f"{name} moved by {found['drift_share']:+.0%} over the span: warm up longer, or look for what fills up"
    else:
        shift = found["shift"]
        hint = (
            f"{name} went from {shift['before']:.4g} to {shift['after']:.4g} ms at {shift['at_s']:.0f} s: "
            "two loads in one figure; --window auto judges the longer part"
        )
    return Rule("steady", "warn", str(found["state"]), None, hint, number)


def run_claim_rules(manifest: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """The rules of claims that are of the whole run: is the workload known, and the energy?"""
    workload = manifest.get("workload") or {}
    known = bool(workload.get("sha256"))
    hint = "" if known else "without the workload's hash nobody can tell whether another run did the same"
    energies = [stage.get("energy") or {} for stage in stages]
    told = [energy for energy in energies if energy.get("joules") is not None]
    if not told:
        why = next((str(e["why"]) for e in energies if e.get("why")), "no energy or power was sampled")
        energy = Rule("energy_known", "not checked", None, None, why)
    else:
        bound = [e for e in told if e.get("lower_bound")]
        words = "; ".join(dict.fromkeys(reason for e in bound for reason in e.get("reasons", ())))
        energy = Rule("energy_known", "warn" if bound else "pass", len(told), None, words)
    return [Rule("workload_known", "pass" if known else "warn", workload.get("sha256"), None, hint), energy]


def claims(rules: Sequence[Rule]) -> dict[str, Any]:
    """Each claim: 'supported', 'with reservations', 'not supported' or 'not measured', and the rules that say so."""
    found: dict[str, Any] = {}
    for claim, names in RESTS_ON.items():
        mine = [rule for rule in rules if rule.name in names]
        state = worst(mine)
        word = {"fail": "not supported", "warn": "with reservations"}.get(state, "supported")
        no_energy = claim == "energy" and not any(r.name == "energy_known" and r.state != "not checked" for r in mine)
        if no_energy or any(rule.name == "simulated" for rule in mine):
            word = "not measured"
        against = [rule for rule in mine if rule.state in ("fail", "warn")]
        if word == "not measured":
            against = [rule for rule in mine if rule.name in ("energy_known", "simulated")]
        found[claim] = {"state": word, "rules": [rule.as_dict() for rule in against]}
    return found
