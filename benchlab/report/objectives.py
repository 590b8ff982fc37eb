"""Objectives as the report shows them: which percentile they speak of, their limit, and which stages miss it.

The decision itself is the selection's; this only says the same in words. It must not know how anything is drawn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchlab.errors import UsageError
from benchlab.report.view import (
    STAT,
    Stage,
    Summary,
    exact_latency,
    items,
    latency,
    mapping,
    metric_word,
    number,
    stats_of,
)
from benchlab.units import NS_PER_MS, parse_duration_ns

_OBJECTIVE = re.compile(r"\s*([a-z_0-9]+)\s*\.\s*([a-z]+[\d.]*)\s*(<=|<|>=|>)\s*(\S.*?)\s*\Z")


@dataclass(frozen=True, slots=True)
class Objective:
    """'ttft.p99<=400ms' taken apart; `limit` in the metric's unit (ms for times), None when it is not a time."""

    text: str
    metric: str
    stat: str
    limit: float | None

    @property
    def short(self) -> str:
        """The part after the metric: 'p90 ≤ 400 ms'."""
        found = _OBJECTIVE.match(self.text)
        sign = {"<=": "≤", ">=": "≥"}.get(found.group(3), found.group(3)) if found else ""
        limit = exact_latency(self.limit) if self.limit is not None else found.group(4) if found else ""
        return f"{self.stat} {sign} {limit}"

    @property
    def pretty(self) -> str:
        """'TTFT p90 ≤ 400 ms', as people write it."""
        return f"{metric_word(self.metric)} {self.short}"

    def figure(self, stage: Stage) -> float | None:
        """What the objective is compared with; infinite when cut-off requests stand at that percentile."""
        metric = stage.metrics.get(self.metric)
        if metric is None or metric.value(self.stat) is None:
            return None
        if metric.judged is None or self.stat not in metric.judged:
            return metric.value(self.stat)
        counted = metric.judged[self.stat]
        return math.inf if counted is None else counted

    def missed_by(self, stage: Stage) -> bool | None:
        """Whether the stage's figure is beyond the limit, those cut off counted; None where there is no figure."""
        value = self.figure(stage)
        if value is None or self.limit is None:
            return None
        return value < self.limit if ">" in self.text else value > self.limit


def _limit(text: Any) -> float | None:
    if number(text) is not None:
        return number(text)
    try:
        return parse_duration_ns(str(text)) / NS_PER_MS
    except UsageError:
        return None


def _objective(raw: Any) -> Objective | None:
    if isinstance(raw, Mapping):
        text = raw.get("text") or raw.get("objective")
        if not text:
            stat = raw.get("stat") or raw.get("percentile") or ""
            metric, limit = str(raw.get("metric", "")), raw.get("limit_ms", raw.get("limit"))
            shown = latency(number(limit)) if number(limit) is not None else str(limit)
            return Objective(
                f"{metric}.{stat}{raw.get('op', '<=')}{shown}".replace(" ", ""), metric, str(stat), _limit(limit)
            )
        raw = text
    found = _OBJECTIVE.match(str(raw))
    if not found:
        return None
    metric, stat, _, limit = found.groups()
    return Objective("".join(str(raw).split()), metric, stat, _limit(limit))


def objectives_of(summary: Summary) -> list[Objective]:
    """The objectives that were asked for, from the summary or from its selection."""
    raw = items(summary.get("objectives")) or items(mapping(summary.get("selection")).get("objectives"))
    return [found for found in map(_objective, raw) if found is not None]


def two_stats(stages: list[Stage], objectives: list[Objective], metric: str) -> tuple[str, str]:
    """(the other, the main) percentile to show: p50 beside the main one; where that is p50, a tail beside it."""
    main = main_stat(stages, objectives, metric)
    return ("p50", main) if main != "p50" else (main_stat(stages, [], metric), main)


def main_stat(stages: list[Stage], objectives: list[Objective], metric: str) -> str:
    """The percentile to show beside p50: the objective's own, else the highest that most stages can carry."""
    for objective in objectives:
        if objective.metric == metric and STAT.match(objective.stat):
            return objective.stat
    present = [stage.metrics[metric] for stage in stages if metric in stage.metrics and stage.metrics[metric].n]
    stats = [stat for stat in stats_of(stages) if stat != "p50"]
    for stat in reversed(stats):
        if present and 2 * sum(stat in m.indicative or m.value(stat) is None for m in present) <= len(present):
            return stat
    return "p90" if "p90" in stats else stats[0] if stats else "p50"
