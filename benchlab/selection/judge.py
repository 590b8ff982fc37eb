"""A run judged whole: summary, selection and gates in one dictionary, ready to be written as summary.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchlab.metrics.goodput import SloClause
from benchlab.metrics.limits import CI, PRESETS, Limits
from benchlab.metrics.proofs import Limit
from benchlab.metrics.summary import PERCENTILES, WindowRule, summarise
from benchlab.metrics.table import BY_NAME
from benchlab.records.manifest import finite
from benchlab.records.store import Run
from benchlab.selection.economics import economics
from benchlab.selection.figure import number
from benchlab.selection.gate import assertions, regressions
from benchlab.selection.pick import Mode, pick
from benchlab.selection.slo import Clause, Regression, parse_objective, parse_slo, percentiles_with


def judge(
    run: Run,
    *,
    slo: Sequence[SloClause] | None = None,
    slo_target: float | None = None,
    objectives: Sequence[Clause] | None = None,
    mode: Mode = "point",
    percentiles: Sequence[float] | None = None,
    gates: Sequence[Clause] = (),
    max_regression: Sequence[Regression] = (),
    baseline: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    window: WindowRule = "told",
    price_per_hour: float | None = None,
    utilisation: float = 1.0,
) -> dict[str, Any]:
    """The whole summary of a stored run. What is None is taken from the run's manifest, as it was asked for then.

    slo_target: the share of attempted requests that must be good (`--slo-target`); it is one more objective.
    limits: of the verdict; by default those of the preset in the manifest, else the everyday ones. window: 'auto'
    judges the steady span of each stage instead of the window asked for. price_per_hour: of the deployment, dollars.
    """
    manifest = run.manifest
    if slo is None:
        slo = [parse_slo(str(text)) for text in (manifest.get("slo") or {}).get("clauses") or []]
    if objectives is None:
        objectives = [parse_objective(str(text)) for text in manifest.get("objectives") or []]
    if slo_target is None:
        slo_target = (manifest.get("slo") or {}).get("target")
    if slo and slo_target is not None and not any(clause.metric == "attainment" for clause in objectives):
        objectives = [*objectives, Clause("attainment", None, ">=", float(slo_target), f"attainment>={slo_target:.4g}")]
    if percentiles is None:
        percentiles = [float(p) for p in manifest.get("percentiles") or PERCENTILES]
    wanted = percentiles_with(percentiles, [*objectives, *gates, *max_regression])
    limits = limits or PRESETS.get(str(manifest.get("preset")), CI)
    summary = summarise(run, slo=slo, percentiles=wanted, limits=limits, bounds=_bounds(objectives), window=window)
    price = price_per_hour if price_per_hour is not None else number(manifest.get("price_per_hour"))
    for stage in summary["stages"]:
        stage["economics"] = economics(stage, price_per_hour=price, utilisation=utilisation)
    summary["slo"]["target"] = slo_target
    summary["objectives"] = [clause.text for clause in objectives]
    summary["selection"] = pick(summary["stages"], objectives, mode=mode).as_dict()
    rows = assertions(summary, gates) + regressions(summary, baseline, max_regression)
    summary["gates"] = [row.as_dict() for row in rows]
    clean: dict[str, Any] = finite(summary)
    return clean


def _bounds(objectives: Sequence[Clause]) -> list[Limit]:
    """The objectives that hold a percentile of requests or gaps down: of those can be said whether they are proved."""
    return [
        Limit(clause.metric, float(clause.statistic[1:]) / 100, clause.limit, clause.text)
        for clause in objectives
        if clause.statistic is not None
        and clause.statistic[0] == "p"
        and clause.upper
        and BY_NAME[clause.metric].scope in ("request", "gap")
        and BY_NAME[clause.metric].over == "ok"
    ]
