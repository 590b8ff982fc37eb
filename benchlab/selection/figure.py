"""One figure out of a stage of a summary: its value, its interval, and why there is none. Missing stays missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchlab.metrics.table import BY_NAME, METRICS

_OF_ENGINE = tuple(row.name for row in METRICS if row.of_engine)


@dataclass(frozen=True, slots=True)
class Figure:
    """value: in the metric's unit, or None with `why`. low, high: bounds of its 95% interval, None where unbounded."""

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""
    indicative: bool = False


def number(value: Any) -> float | None:
    """A finite number, else None (booleans and words are no numbers)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def load_name(stage: Mapping[str, Any]) -> str:
    """The load of a stage in words, the same for two runs that were asked for the same: '4/s', '16 users'.

    What was asked for, since a Poisson timetable of a few requests seldom holds exactly its mean.
    """
    load = stage.get("load") or {}
    if load.get("kind") == "closed":
        return f"{load.get('concurrency')} users"
    rate = number(load.get("asked_rps"))
    rate = rate if rate is not None else number(load.get("offered_rps"))
    return f"{rate:g}/s" if rate is not None else "rate not known"


def figure(stage: Mapping[str, Any], metric: str, statistic: str | None) -> Figure:
    """A figure of a stage, as `--objective` and the gates name it."""
    if statistic is None:
        return _rate(stage, metric)
    block = (stage.get("metrics") or {}).get(metric)
    if not isinstance(block, Mapping):
        return Figure(None, why=f"{metric} is missing")
    value = number(block.get(statistic))
    if value is None:
        return Figure(None, why=str(block.get("gap") or f"{metric}.{statistic} is missing"))
    low, high = (block.get("ci95") or {}).get(statistic) or (None, None)
    if statistic in ("min", "max"):
        low = high = value
    marked = statistic in (block.get("indicative") or ())
    cut = block.get("counting_cut_off")
    if isinstance(cut, Mapping) and statistic[0] == "p":
        # Who was cut off counts as slower than all: an objective may not profit from leaving them out.
        reached = number(cut.get(statistic))
        if reached is None:
            return Figure(None, why=f"not reached: {block.get('censored')} requests were cut off before it")
        value = reached
        low, high = (cut.get("ci95") or {}).get(statistic) or (None, None)
    return Figure(value, number(low), number(high), "", marked)


def _rate(stage: Mapping[str, Any], metric: str) -> Figure:
    source = stage.get("load") or {} if metric == "offered_rps" else stage
    value = number(source.get(metric))
    # what is proved by a share is proved by the interval that is never too narrow
    low, high = stage.get(f"{metric}_exact95") or stage.get(f"{metric}_ci95") or (None, None)
    return Figure(value, number(low), number(high), "" if value is not None else f"{metric} is not known")


def plausible(metric: str, statistic: str | None, value: float, stage: Mapping[str, Any]) -> str:
    """'' for a value that can be; else why not: a latency or speed of zero or below means that nothing was measured."""
    row = BY_NAME[metric]
    if statistic is not None:
        block = (stage.get("metrics") or {}).get(metric) or {}
        if number(block.get("n")) == 0:
            return f"{metric} has no samples"
    may_be_zero = (
        metric in ("dispatch_lag", "held", "connect", "itl", "stall", "cached_tokens", *_OF_ENGINE)
        or row.unit == "share"
    )
    if value < 0 or (value == 0 and not may_be_zero and metric != "wasted_tps"):
        return f"{value:g} {row.unit} is not plausible"
    if row.unit == "share" and value > 1:
        return f"a share of {value:g} is not plausible"
    return ""
