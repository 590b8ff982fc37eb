"""Rates and shares of a stage for summary.json, each with the interval of what happened over time.

The one idea: a rate is a sum over a window, and a share is hits among those attempted; how sure either is depends on
how alike neighbours in time are. What a user's limits decide (good, fluid) is worked out here, because only here the
limits are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchlab.metrics import run
from benchlab.metrics.columns import Bools, Columns, Floats
from benchlab.metrics.fluidity import on_time
from benchlab.metrics.goodput import Good, SloClause
from benchlab.metrics.intervals import mean_interval, parts_of, rate_interval, share_intervals, sums_over_time
from benchlab.metrics.parts import untold
from benchlab.metrics.table import METRICS
from benchlab.metrics.window import Window
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_S


def bounds(name: str, hits: Bools) -> dict[str, Any]:
    """`NAME_ci95` (Wilson's) and `NAME_exact95` (never too narrow) of the share of hits, which are in time order."""
    wilson, exact = share_intervals(hits)
    return {f"{name}_ci95": wilson and list(wilson), f"{name}_exact95": exact and list(exact)}


def rate_figures(
    c: Columns, window: Window | None, inside: Bools, slo: Sequence[SloClause], good: Good
) -> dict[str, Any]:
    """Every run-scope metric but the offered rate, which the stage's load tells; None where it cannot be told."""
    figures: dict[str, Any] = {
        metric.name: (metric.figure(c, window) if window is not None and not untold(metric.name, c) else None)
        for metric in METRICS
        if metric.figure is not None and metric.name != "offered_rps"
    }
    figures["intended_rps"] = run.offered_rps(c, window) if window is not None else None
    figures |= _good(c, window, inside, slo, good)
    fluid = _fluid(c, inside, slo)
    figures |= {"fluid_share": None, "fluid_share_ci95": None} if fluid is None else fluid
    if window is not None:
        figures |= {
            f"{name}_ci95": None if figures[name] is None or found is None else list(found)
            for name, found in _intervals(c, window, good, figures["good_rps"] is not None).items()
        }
    return figures


def _good(c: Columns, window: Window | None, inside: Bools, slo: Sequence[SloClause], good: Good) -> dict[str, Any]:
    due = np.flatnonzero(inside)[np.argsort(c.number("intended_ns")[inside], kind="stable")]
    told = bool(slo) and good.unknown is None and len(due) > 0 and window is not None
    found: dict[str, Any] = {"slo_misses": good.misses, "good_rps": None, "good_tps": None, "attainment": None}
    if not told or window is None:
        return found | {"attainment_ci95": None, "attainment_exact95": None}
    found["attainment"] = float(good.mask[due].mean())
    found |= bounds("attainment", good.mask[due])
    found["good_rps"] = float((window.holds(c.done_ns) & good.mask).sum()) / window.seconds
    found["good_tps"] = float(run.token_events(c, window, good.mask)[1].sum()) / window.seconds
    return found


def _fluid(c: Columns, inside: Bools, slo: Sequence[SloClause]) -> dict[str, Any] | None:
    limits = {clause.metric: clause.limit for clause in slo}
    first, each = limits.get("ttft", limits.get("response_ttft")), limits.get("tpot")
    if first is None or each is None:
        return None
    among = inside & c.is_outcome(Outcome.OK)
    if any(
        c.untold(name)[among].any()
        for name in ("chunk_ns", "chunk_kind", "sent_ns", "chunk_ns.last", "chunk_ns.between")
    ):
        return None
    met, came = on_time(c, first, each)
    rows = np.flatnonzero(among & np.isfinite(came))
    rows = rows[np.argsort(c.number("intended_ns")[rows], kind="stable")]
    if not len(rows):
        return None
    interval = mean_interval(met[rows], came[rows])
    if (met[rows] == came[rows]).all():  # resampled, it would be certain: as sure as that no request has a late token
        _, interval = share_intervals(np.ones(len(rows), dtype=np.bool_))
    low_high = None if interval is None else [max(0.0, interval[0]), min(1.0, interval[1])]
    return {"fluid_share": float(met[rows].sum() / came[rows].sum()), "fluid_share_ci95": low_high}


def _intervals(c: Columns, w: Window, good: Good, told: bool) -> dict[str, tuple[float, float] | None]:
    def sums(when_ns: Floats, weights: Floats | None = None, parts: int | None = None) -> Floats | None:
        here = w.holds(when_ns)
        if not here.all():
            when_ns, weights = when_ns[here], None if weights is None else weights[here]
        parts = parts or parts_of(len(when_ns))
        return None if parts is None else sums_over_time((when_ns - w.w0_ns) / NS_PER_S, weights, w.seconds, parts)

    def of(found: Floats | None) -> tuple[float, float] | None:
        return None if found is None else rate_interval(found, w.seconds)

    begun = c.is_outcome(*run.COUNTED)
    prompts = np.where(begun, c.number("prompt_tokens"), np.nan)
    first = np.where(np.isfinite(prompts), c.first_content_ns, np.nan)
    out = sums(*run.token_events(c, w, begun))
    into = None if out is None else sums(first, np.nan_to_num(prompts), len(out))
    found = {
        "achieved_rps": of(sums(c.number("sent_ns"))),
        "completed_rps": of(sums(c.done_ns)),
        "input_tps": of(sums(first, np.nan_to_num(prompts))),
        "output_tps": of(out),
        "total_tps": None if out is None or into is None else of(out + into),
    }
    if told:
        found["good_rps"] = of(sums(np.where(good.mask, c.done_ns, np.nan)))
        found["good_tps"] = of(sums(*run.token_events(c, w, good.mask)))
    return found
