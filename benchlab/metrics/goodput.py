"""Good requests: ended ok, and within every per-request limit (`--slo`). The denominator is what was attempted.

A limit that has no meaning for a request (TPOT of an answer of one token) is not held against it, and counted; a
limit that can be told for no request at all makes attainment unknown instead of perfect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchlab.metrics.columns import Bools, Columns
from benchlab.metrics.table import BY_NAME, measure
from benchlab.records.event import Outcome


@dataclass(frozen=True, slots=True)
class SloClause:
    """One per-request limit: a request-scope metric and its greatest value (least, where higher is better).

    limit: in the metric's own unit. text: as the user wrote it.
    """

    metric: str
    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class Good:
    """Which requests are good; misses: how many ok ones broke each clause; not_evaluated: clauses without a value."""

    mask: Bools
    misses: dict[str, int]
    not_evaluated: dict[str, int]
    unknown: str | None


def good_requests(c: Columns, slo: Sequence[SloClause]) -> Good:
    """Judge every request of the stage against every clause."""
    ok = c.is_outcome(Outcome.OK)
    mask = ok.copy()
    misses: dict[str, int] = {}
    skipped: dict[str, int] = {}
    unknown: str | None = None
    for clause in slo:
        metric = BY_NAME[clause.metric]
        samples = measure(metric, c, ok)
        if samples.gap is not None and ok.any():
            unknown = f"{clause.metric}: {samples.gap.reason}"
        values = np.full(c.n, np.nan)
        values[samples.rows] = samples.values
        broken = values < clause.limit if metric.better == "higher" else values > clause.limit
        misses[clause.text] = int((ok & broken).sum())
        skipped[clause.text] = int((ok & np.isnan(values)).sum())
        mask &= ~broken
    return Good(mask, misses, skipped, unknown)
