"""A run's figures for github-action-benchmark: a list of name, unit, value, range and extra.

The one idea: that tool compares each name with its past, so names must not hold what changes from run to run, and one
list holds only figures of one direction. The range is half the 95% interval; a figure that is not known is left out.
It must not compute a number: they are the summary's.
"""

from __future__ import annotations

from typing import Any, Literal

from benchlab.report.view import Metric, Stage, Summary, metric_names, stages_of, stats_of
from benchlab.units import format_number

Better = Literal["smaller", "bigger"]
_LATENCIES = ("ttft", "response_ttft", "tpot", "itl", "e2e", "response_e2e", "stall")
_RATES = (("completed_rps", "1/s"), ("good_rps", "1/s"), ("output_tps", "tokens/s"), ("attainment", "share"))


def run_as_action(summary: Summary, better: Better) -> list[dict[str, Any]]:
    """`customSmallerIsBetter` (latencies, failures) or `customBiggerIsBetter` (rates, attainment) of every stage."""
    stages = stages_of(summary)
    verdict = str((summary.get("verdict") or {}).get("state"))
    rows: list[dict[str, Any]] = []
    for stage, raw in zip(stages, summary.get("stages") or [], strict=True):
        prefix = f"{stage.name or stage.label} / " if len(stages) > 1 else ""
        extra = f"condition {stage.condition}, verdict {verdict}, run {summary.get('run_id')}"
        rows += _smaller(stage, raw, prefix, extra, stages) if better == "smaller" else _bigger(raw, prefix, extra)
    return rows


def _smaller(stage: Stage, raw: Any, prefix: str, extra: str, stages: list[Stage]) -> list[dict[str, Any]]:
    rows = []
    for name in metric_names(stages):
        metric = stage.metrics.get(name)
        if name not in _LATENCIES or metric is None:
            continue
        for stat in stats_of(stages):
            value = metric.value(stat)
            if value is not None:
                note = " (indicative: too few samples for an interval)" if stat in metric.indicative else ""
                rows.append(_row(f"{prefix}{name}.{stat}", metric.unit, value, _half(metric, stat), extra + note))
    share = raw.get("failed_share")
    if share is not None:
        rows.append(_row(f"{prefix}failed_share", "share", share, _of_pair(raw.get("failed_share_ci95")), extra))
    return rows


def _bigger(raw: Any, prefix: str, extra: str) -> list[dict[str, Any]]:
    return [
        _row(f"{prefix}{name}", unit, raw[name], _of_pair(raw.get(f"{name}_ci95")), extra)
        for name, unit in _RATES
        if raw.get(name) is not None
    ]


def _row(name: str, unit: str, value: float, half: float | None, extra: str) -> dict[str, Any]:
    spread = {} if half is None else {"range": f"± {format_number(half)}"}
    return {"name": name, "unit": unit, "value": value, **spread, "extra": extra}


def _half(metric: Metric, stat: str) -> float | None:
    pair = metric.intervals.get(stat)
    return _of_pair(list(pair) if pair is not None else None)


def _of_pair(pair: Any) -> float | None:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or None in pair:
        return None
    return float(pair[1] - pair[0]) / 2
