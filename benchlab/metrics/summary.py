"""A run's records become its summary.json: per stage the rates, the latencies with intervals, condition and verdict.

Everything is recomputed from the stored records; nothing is averaged over windows, workers or stages. What cannot be
told is null with its reason. Selection and gates are added by the room above (`selection.judge`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchlab.metrics import run as rates
from benchlab.metrics.certificate import certificate
from benchlab.metrics.columns import Bools, Columns, columns_of, stages_of
from benchlab.metrics.condition import condition_of
from benchlab.metrics.engine import with_engine
from benchlab.metrics.goodput import Good, SloClause, good_requests
from benchlab.metrics.parts import untold
from benchlab.metrics.quantiles import METHOD, interval_ranks, ordered, quantile, quantile_with_interval, wilson
from benchlab.metrics.rule import Rule
from benchlab.metrics.table import METRICS, Metric, Samples, measure
from benchlab.metrics.validity import CI, Limits, merged, run_rules, stage_rules, verdict_of
from benchlab.metrics.window import Window, window_of
from benchlab.records.event import Outcome
from benchlab.records.manifest import finite
from benchlab.records.store import Run

SCHEMA = 1
PERCENTILES: tuple[float, ...] = (50, 90, 95, 99)
_CENSORED = (Outcome.UNFINISHED, Outcome.TIMEOUT)


def label(percentile: float) -> str:
    """99 -> 'p99', 99.9 -> 'p99.9'."""
    return f"p{percentile:g}"


def summarise(
    run: Run,
    *,
    slo: Sequence[SloClause] = (),
    percentiles: Sequence[float] = PERCENTILES,
    limits: Limits = CI,
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
) -> dict[str, Any]:
    """The same from tables that are in memory."""
    found = stages_of(requests)
    entries = {int(entry.get("stage", at)): entry for at, entry in enumerate(manifest.get("stages") or [])}
    empty = columns_of(requests.slice(0, 0))
    stages: list[dict[str, Any]] = []
    rules: list[Rule] = []
    for number in sorted({*found, *entries}):
        entry = {"stage": number, **entries.get(number, {})}
        stage, own = _stage(found.get(number, empty), entry, manifest, slo, percentiles, limits)
        stages.append(stage)
        rules += own
    if not stages:
        rules.append(Rule("complete_records", "fail", 0, None, "the run holds no stage and no request"))
    rules += run_rules(manifest, telemetry, limits)
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
        "verdict": {"state": state, "rules": [rule.as_dict() for rule in rules]},
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
    engine = manifest.get("engine") or {}
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
        "cache": workload.get("cache"),
        "api": endpoint.get("api"),
        "model": endpoint.get("model"),
        "load": loads,
        "sampling": manifest.get("sampling"),
        "engine": engine.get("name"),
        **{key: True for key in _simulated(manifest)},
    }


def _stage(
    c: Columns,
    entry: Mapping[str, Any],
    manifest: Mapping[str, Any],
    slo: Sequence[SloClause],
    percentiles: Sequence[float],
    limits: Limits,
) -> tuple[dict[str, Any], list[Rule]]:
    window = window_of(entry, c)
    inside = window.holds(c.number("intended_ns")) if window is not None else np.zeros(c.n, dtype=np.bool_)
    condition = condition_of(c, window, entry)
    rules = stage_rules(c, window, entry, manifest, limits)
    good = good_requests(c, slo)
    kind = entry.get("kind") or "open"
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
        **_rates(c, window, inside, slo, good),
        "metrics": {
            metric.name: _metric(metric, c, inside, percentiles) for metric in METRICS if metric.function is not None
        },
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
    return {
        "attempted": attempted,
        "outcomes": outcomes,
        "refused": {"limited": int((inside & c.limited).sum()), "shed": int((inside & c.shed).sum())},
        "failed_share": failed / attempted if attempted else None,
        "failed_share_ci95": wilson(failed, attempted),
        "not_sent_share": outcomes["not_sent"] / attempted if attempted else None,
    }


def _rates(c: Columns, window: Window | None, inside: Bools, slo: Sequence[SloClause], good: Good) -> dict[str, Any]:
    figures: dict[str, Any] = {
        metric.name: (metric.figure(c, window) if window is not None and not untold(metric.name, c) else None)
        for metric in METRICS
        if metric.figure is not None and metric.name != "offered_rps"
    }
    figures["intended_rps"] = rates.offered_rps(c, window) if window is not None else None
    attempted, hits = int(inside.sum()), int((inside & good.mask).sum())
    told = bool(slo) and good.unknown is None and attempted > 0 and window is not None
    figures["attainment"] = hits / attempted if told else None
    figures["attainment_ci95"] = wilson(hits, attempted) if told else None
    figures["good_rps"] = (
        float((window.holds(c.done_ns) & good.mask).sum()) / window.seconds if told and window is not None else None
    )
    figures["slo_misses"] = good.misses
    return figures


def _metric(metric: Metric, c: Columns, inside: Bools, percentiles: Sequence[float]) -> dict[str, Any]:
    asked = inside & (c.is_outcome(Outcome.OK) if metric.over == "ok" else ~np.isnan(c.number("dispatched_ns")))
    samples = measure(metric, c, asked)
    block: dict[str, Any] = {
        "unit": metric.unit,
        "better": metric.better,
        "n": len(samples.values),
        "mean": None,
        "min": None,
        "max": None,
        **{label(percentile): None for percentile in percentiles},
        "ci95": {},
        "indicative": [],
        "left_out": sum(samples.left_out.values()),
        "left_out_reasons": samples.left_out,
        "estimated": samples.estimated,
        "gap": samples.gap.reason if samples.gap is not None else None,
    }
    if metric.scope == "gap":
        one = (c.streamed_tokens == c.visible_count) & ~rates.tokens_estimated(c)
        block["between"] = "tokens" if len(samples.rows) and one[samples.rows].all() else "chunks"
    if len(samples.values):
        _describe(block, samples, metric, percentiles)
    if metric.over == "ok":
        _censor(block, samples, metric, c, inside, percentiles)
    return block


def _describe(block: dict[str, Any], samples: Samples, metric: Metric, percentiles: Sequence[float]) -> None:
    values = ordered(samples.values)
    low, high = float(values[0]), float(values[-1])
    # A mean of equal numbers may leave their range by a rounding.
    block |= {"mean": min(max(float(values.mean()), low), high), "min": low, "max": high}
    requests = len(np.unique(samples.rows)) if metric.scope == "gap" else None
    if requests is not None:
        block["interval_n"] = requests  # gaps of one request are not independent: the interval counts requests
    for percentile in percentiles:
        name = label(percentile)
        found = quantile_with_interval(values, percentile / 100, requests)
        block[name] = found.value
        block["ci95"][name] = [found.low, found.high]
        if found.indicative:
            block["indicative"].append(name)


def _censor(
    block: dict[str, Any], samples: Samples, metric: Metric, c: Columns, inside: Bools, percentiles: Sequence[float]
) -> None:
    """Requests that were cut off count against an objective: the percentiles with each of them as longer than all.

    `at_least` holds the same with each at the time it was seen for. Only for latencies of which a request has one.
    """
    if metric.unit != "ms" or metric.scope != "request" or metric.function is None:
        return
    cut = inside & c.is_outcome(*_CENSORED)
    block["censored"] = int(cut.sum())
    if not cut.any():
        return
    if metric.of_engine and samples.gap is not None:
        return  # nothing is known of those that ended either
    early = metric.of_engine or metric.name in ("ttft", "response_ttft", "ttfa")
    known = metric.function(c).values if early else np.full(c.n, np.nan)
    seen = np.fmax(c.number("end_ns"), c.last_content_ns)
    bound = (np.where(np.isnan(seen), c.number("sent_ns"), seen) - c.number("sent_ns")) / 1e6
    told = known[cut][np.isfinite(known[cut])]
    lost = np.nan_to_num(bound[cut][~np.isfinite(known[cut])])
    reached, floor = (
        ordered(np.concatenate([samples.values, told])),
        ordered(np.concatenate([samples.values, told, lost])),
    )
    everyone = len(floor)
    counting: dict[str, Any] = {"n": everyone, "ci95": {}}
    at_least: dict[str, Any] = {}
    for percentile in percentiles:
        share = percentile / 100
        at_least[label(percentile)] = quantile(floor, share)
        # Linear between order statistics, where those who never got there stand above all who did.
        within = share * (everyone - 1) <= len(reached) - 1
        padded = np.concatenate([reached, np.full(len(lost), reached[-1])]) if len(reached) else reached
        counting[label(percentile)] = quantile(padded, share) if within and len(reached) else None
        ranks = interval_ranks(everyone, share)
        bounds = [float(reached[r - 1]) if r is not None and r <= len(reached) else None for r in ranks]
        counting["ci95"][label(percentile)] = bounds
    block["counting_cut_off"] = counting
    block["at_least"] = at_least


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
