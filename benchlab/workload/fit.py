"""How near made items come to published figures.

The one idea: a target is a metric's name and a figure; the metric is computed from the items as they are written, never
from what the recipe meant. It must not know any recipe.

Names: `rate_rps`, `cv`, `idc.60s`; `input.p50`, `output.p99`; `hit_ratio`; `turns.p50` (items a session), `wait.p50`
(seconds before a later turn); `tenants.top1`, `tenants.top10` (shares of the items), `tenants.cv` (CV of the gaps of
each tenant, weighted by its items); `tag:NAME.share`, `tag:NAME.input.p50` for the items of one tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchlab.units import format_number
from benchlab.workload.inspect import facts
from benchlab.workload.item import WorkloadItem
from benchlab.workload.recipe import Recipe

_FEWEST = 30
"""A tenant's CV counts from so many arrivals on."""


def nearness(recipe: Recipe, items: Sequence[WorkloadItem], told: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Rows of metric, published, made (None where the items do not tell) and off (a share of published)."""
    told = facts(items) if told is None else told
    rows = []
    for metric, published in recipe.targets.items():
        made = measure(metric, items, told)
        off = None if made is None or not published else made / published - 1
        rows.append({"metric": metric, "published": published, "made": made, "off": off})
    return rows


def measure(metric: str, items: Sequence[WorkloadItem], told: dict[str, Any]) -> float | None:
    """One metric of the items; `told`: their facts. None where they do not tell it. KeyError for an unknown name."""
    group, _, key = metric.partition(".")
    if group.startswith("tag:"):
        return _of_tag([item for item in items if group[4:] in item.tags], key, len(items))
    if group == "wait":
        return _percentile([item.wait_s for item in items], key)
    if group == "tenants":
        return _own_cv(_by_tenant(items)) if key == "cv" else _top(_by_tenant(items), int(key.removeprefix("top")))
    return _fact(group, key, told)


def _fact(group: str, key: str, told: dict[str, Any]) -> float | None:
    if group in ("rate_rps", "cv", "idc"):
        found = told["arrivals"] if group != "idc" else told["arrivals"] and told["arrivals"]["idc"]
        name = key or group
    elif group == "hit_ratio":
        found, name = told["prefix"], "token_hit_ratio"
    elif group == "turns":
        found, name = told["sessions"] and told["sessions"]["items_per_session"], key
    else:
        found, name = told[f"{group}_tokens"], key
    return None if found is None else found[name]


def _of_tag(chosen: list[WorkloadItem], name: str, of: int) -> float | None:
    if name == "share":
        return len(chosen) / of
    side, _, share = name.partition(".")
    return _percentile([item.input_tokens if side == "input" else item.output_tokens for item in chosen], share)


def _percentile(values: Sequence[float | None], name: str) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.percentile(known, float(name.removeprefix("p")))) if known else None


def _by_tenant(items: Sequence[WorkloadItem]) -> list[list[float | None]]:
    """The arrival times of each tenant, the busiest first."""
    times: dict[str, list[float | None]] = {}
    for item in items:
        if item.tenant is not None:
            times.setdefault(item.tenant, []).append(item.arrival_s)
    return sorted(times.values(), key=len, reverse=True)


def _top(tenants: list[list[float | None]], most: int) -> float | None:
    counts = [len(times) for times in tenants]
    return sum(counts[:most]) / sum(counts) if counts else None


def _own_cv(tenants: list[list[float | None]]) -> float | None:
    found = []
    for times in tenants:
        gaps = np.diff([when for when in times if when is not None])
        if len(gaps) >= _FEWEST and gaps.mean() > 0:
            found.append((len(times), float(gaps.std() / gaps.mean())))
    return sum(count * cv for count, cv in found) / sum(count for count, _ in found) if found else None


def as_lines(rows: Sequence[dict[str, Any]], of: str = "published") -> list[str]:
    """The rows for the console; `of`: what the figures are."""
    lines = [f"{'figure':<28}{of:>12}{'here':>12}{'off':>9}"] if rows else []
    for row in rows:
        off = "—" if row["off"] is None else f"{row['off']:+.1%}"
        made = "—" if row["made"] is None else format_number(row["made"], 4)
        lines.append(f"{row['metric']:<28}{format_number(row['published'], 4):>12}{made:>12}{off:>9}")
    return lines
