"""A run's records become its summary.json: per stage the rates, the latencies with intervals, condition and verdict.

Everything is recomputed from the stored records; nothing is averaged over windows, workers or stages. What cannot be
told is null with its reason. Selection and gates are added by the room above (`selection.judge`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from benchlab.metrics import buckets
from benchlab.metrics import run as rates
from benchlab.metrics.block import label, metric_block
from benchlab.metrics.certificate import certificate
from benchlab.metrics.claims import claims, run_claim_rules, stage_claim_rules
from benchlab.metrics.columns import Bools, Columns, columns_of, stages_of
from benchlab.metrics.condition import condition_of
from benchlab.metrics.energy import EnergyReadings
from benchlab.metrics.engine import with_engine
from benchlab.metrics.figures import bounds, rate_figures
from benchlab.metrics.goodput import Good, SloClause, good_requests
from benchlab.metrics.level import in_flight
from benchlab.metrics.parts import untold
from benchlab.metrics.proofs import Limit, proofs
from benchlab.metrics.quantiles import METHOD
from benchlab.metrics.rule import Rule
from benchlab.metrics.session import session_counts
from benchlab.metrics.steady import find_steady
from benchlab.metrics.table import METRICS
from benchlab.metrics.validity import CI, Limits, merged, run_rules, stage_rules, verdict_of
from benchlab.metrics.window import Window, window_of
from benchlab.records.event import Outcome
from benchlab.records.manifest import finite
from benchlab.records.store import Run

__all__ = ["PERCENTILES", "fingerprint", "label", "summarise", "summarise_tables"]

SCHEMA = 1
WindowRule = Literal["told", "auto"]
PERCENTILES: tuple[float, ...] = (50, 90, 95, 99)
BUCKET_PERCENTILES = (50, 95)
"""Of the tables by kind of request."""


def summarise(
    run: Run,
    *,
    slo: Sequence[SloClause] = (),
    percentiles: Sequence[float] = PERCENTILES,
    limits: Limits = CI,
    bounds: Sequence[Limit] = (),
    window: WindowRule = "told",
) -> dict[str, Any]:
    """The summary of a stored run in the schema of INTERFACES.md, with `selection` null and `gates` empty."""
    return summarise_tables(
        run.manifest,
        with_engine(run.requests(), run.engine()),
        run.telemetry(),
        run_id=run.run_id,
        slo=slo,
        percentiles=percentiles,
        limits=limits,
        bounds=bounds,
        window=window,
    )


def summarise_tables(
    manifest: Mapping[str, Any],
    requests: pa.Table,
    telemetry: pa.Table,
    *,
    run_id: str,
    slo: Sequence[SloClause] = (),
    percentiles: Sequence[float] = PERCENTILES,
    limits: Limits = CI,
    bounds: Sequence[Limit] = (),
    window: WindowRule = "told",
) -> dict[str, Any]:
    """The same from tables that are in memory.

    bounds: limits on percentiles of which is said whether they are proved. window: 'told' is the manifest's, 'auto'
    the steady span of each stage, where it has one.
    """
    asked = _Asked(manifest, slo, percentiles, limits, bounds, window, EnergyReadings(telemetry, manifest))
    found = stages_of(requests)
    entries = {int(entry.get("stage", at)): entry for at, entry in enumerate(manifest.get("stages") or [])}
    empty = columns_of(requests.slice(0, 0))
    stages: list[dict[str, Any]] = []
    rules: list[Rule] = []
    for number in sorted({*found, *entries}):
        entry = {"stage": number, **entries.get(number, {})}
        stage, own = _stage(found.get(number, empty), entry, asked)
        stages.append(stage)
        rules += own
    if not stages:
        rules.append(Rule("complete_records", "fail", 0, None, "the run holds no stage and no request"))
    rules += run_rules(manifest, telemetry, limits)
    extra = run_claim_rules(manifest, stages)
    for stage in stages:
        judged_on = stage["condition"] in ("stable", "short")
        extra += stage_claim_rules(stage, limits, percentiles, judged_on=judged_on)
    rules += extra if limits.claims_count else []
    state = verdict_of(rules)
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": run_id,
        "created": manifest.get("created"),
        "percentile_method": METHOD,
        "fingerprint": fingerprint(manifest),
        **_simulated(manifest),
        "slo": {"clauses": [clause.text for clause in slo], "target": (manifest.get("slo") or {}).get("target")},
        "objectives": [],
        "preset": limits.name,
        "window": window,
        "verdict": {"state": state, "rules": [rule.as_dict() for rule in rules]},
        "claims": claims(rules if limits.claims_count else [*rules, *extra]),
        "stages": stages,
        "selection": None,
        "gates": [],
    }
    clean: dict[str, Any] = finite(summary)
    return clean


def _simulated(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a simulation, so that no reader takes it for a measurement; nothing for a measured run."""
    facts = manifest.get("simulated")
    return {"simulated": facts if isinstance(facts, Mapping) else {}} if facts else {}


def fingerprint(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs must share to be compared: workload, api, model, load, sampling, engine."""
    endpoint, workload = manifest.get("endpoint") or {}, manifest.get("workload") or {}
    engine, lock = manifest.get("engine") or {}, workload.get("lock") or {}
    loads = [
        {
            "kind": entry.get("kind"),
            "rps": entry.get("asked_rps") if entry.get("asked_rps") is not None else entry.get("offered_rps"),
            "concurrency": entry.get("concurrency"),
            "arrival": entry.get("arrival"),
        }
        for entry in manifest.get("stages") or []
    ]
    return {
        "workload_sha256": workload.get("sha256"),
        "workload_items": (lock.get("items") or {}).get("sha256"),
        "arrivals": lock.get("arrivals"),
        "tokenizer": lock.get("tokenizer"),
        "seeds": lock.get("seeds"),
        "cache": workload.get("cache"),
        "api": endpoint.get("api"),
        "model": endpoint.get("model"),
        "load": loads,
        "sampling": manifest.get("sampling"),
        "engine": engine.get("name"),
        **{key: True for key in _simulated(manifest)},
    }


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of every stage alike."""

    manifest: Mapping[str, Any]
    slo: Sequence[SloClause]
    percentiles: Sequence[float]
    limits: Limits
    bounds: Sequence[Limit]
    window: WindowRule
    energy: EnergyReadings


def _stage(c: Columns, entry: Mapping[str, Any], asked: _Asked) -> tuple[dict[str, Any], list[Rule]]:
    manifest, slo, percentiles, limits = asked.manifest, asked.slo, asked.percentiles, asked.limits
    told = window_of(entry, c)
    steady = find_steady(c, told) if told is not None else None
    window = told
    if asked.window == "auto" and told is not None and steady is not None and steady.word != "short":
        window = replace(told, w0_ns=steady.span[0], w1_ns=steady.span[1])
    inside = window.holds(c.number("intended_ns")) if window is not None else np.zeros(c.n, dtype=np.bool_)
    condition = condition_of(c, window, entry)
    rules = stage_rules(c, window, entry, manifest, limits)
    good = good_requests(c, slo)
    kind = entry.get("kind") or "open"
    sessions = session_counts(c, inside)
    stage: dict[str, Any] = {
        "stage": entry["stage"],
        "name": entry.get("name") or f"stage {entry['stage']}",
        "condition": condition.word,
        "load": {
            "kind": kind,
            "offered_rps": _offered(c, window, entry, kind),
            "asked_rps": entry.get("asked_rps"),
            "concurrency": entry.get("concurrency"),
            "arrival": entry.get("arrival"),
        },
        "window_s": window.seconds if window is not None else None,
        **_counts(c, inside),
        **rate_figures(c, window, inside, slo, good),
        "metrics": {
            metric.name: metric_block(metric, c, inside, percentiles)
            for metric in METRICS
            if metric.function is not None and (metric.scope != "session" or sessions is not None)
        },
        "in_flight": in_flight(c, window) if window is not None and not untold("in_flight_peak", c) else None,
        "sessions": sessions,
        "steady": steady.as_dict(told) if steady is not None and told is not None else None,
        "energy": asked.energy.of(window) if not manifest.get("simulated") else None,
        "proofs": proofs(c, window, inside, asked.bounds),
        "by": buckets.tables(c, inside, good if slo and good.unknown is None else None, BUCKET_PERCENTILES),
        "client": certificate(c, inside, entry)
        if not (manifest.get("simulated") or manifest.get("imported"))
        else None,
        "verdict": {"state": verdict_of(rules), "rules": [rule.as_dict() for rule in rules]},
        "rules": [rule.as_dict() for rule in condition.rules],
        "notes": _notes(c, window, inside, slo, good, manifest),
    }
    return stage, rules


def _offered(c: Columns, window: Window | None, entry: Mapping[str, Any], kind: str) -> float | None:
    """The rate that was asked for; where none is told, the arrivals that were intended. A closed loop offers none."""
    if kind != "open":
        return None
    if entry.get("offered_rps") is not None:
        return float(entry["offered_rps"])
    return rates.offered_rps(c, window) if window is not None else None


def _counts(c: Columns, inside: Bools) -> dict[str, Any]:
    attempted = int(inside.sum())
    outcomes = {outcome.value: int((inside & c.is_outcome(outcome)).sum()) for outcome in Outcome}
    failed = attempted - outcomes["ok"] - outcomes["cancelled"]
    bad = ~c.is_outcome(Outcome.OK, Outcome.CANCELLED)
    due = np.flatnonzero(inside)[np.argsort(c.number("intended_ns")[inside], kind="stable")]
    return {
        "attempted": attempted,
        "outcomes": outcomes,
        "refused": {"limited": int((inside & c.limited).sum()), "shed": int((inside & c.shed).sum())},
        "failed_share": failed / attempted if attempted else None,
        **bounds("failed_share", bad[due]),
        "not_sent_share": outcomes["not_sent"] / attempted if attempted else None,
        **bounds("not_sent_share", c.is_outcome(Outcome.NOT_SENT)[due]),
    }


def _notes(
    c: Columns,
    window: Window | None,
    inside: Bools,
    slo: Sequence[SloClause],
    good: Good,
    manifest: Mapping[str, Any],
) -> list[str]:
    notes: list[str] = []
    if window is not None and window.assumed:
        notes.append("the measured window is not told; it is the span of the records")
    estimated = int((inside & rates.tokens_estimated(c)).sum())
    if estimated:
        notes.append(f"output tokens of {estimated} requests are an estimate: one a text chunk")
    shared = merged(c)
    if shared is not None and shared[0] > 0.5:
        notes.append(f"{shared[0]:.0%} of text events shared a read: gaps, ITL, TPOT and stream speed are not usable")
    cut = int((inside & c.is_outcome(Outcome.TIMEOUT)).sum())
    if cut:
        total = (manifest.get("timeouts") or {}).get("total_ns")
        at = f" after {total / 1e9:g} s" if total else ""
        notes.append(f"{cut} requests were given up by the client{at}: percentiles of the others are cut there")
    if slo and good.unknown is not None:
        notes.append(f"attainment is not known: {good.unknown}")
    for text, many in good.not_evaluated.items():
        if many and good.unknown is None:
            notes.append(f"{text}: {many} answers have no such value and are not held against it")
    if not slo:
        notes.append("no --slo was given, so no request can be called good")
    partial = rates.wasted_tps(c, window) if window is not None else None
    if partial:
        notes.append(f"{partial:.3g} tokens/s went to requests that failed; they are in no other figure")
    return notes
