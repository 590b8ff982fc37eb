"""Raw points for scatter, timeline and percentile plots: one a request or one a chunk, by the formulas of `metrics`.

Figures and tables take their numbers from the Summary; only what a summary cannot hold comes from here, and it is not
computed anew: the same functions that fill the table give the points. It must not know what is drawn with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchlab.metrics import request
from benchlab.metrics.columns import OUTCOMES, Bools, Columns, Floats, Ints, columns_of
from benchlab.report.view import items, mapping, number, whole
from benchlab.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class Span:
    """Where one stage lies, in seconds from t0; the warm-up is [start, w0), the drain [w1, end)."""

    stage: int
    start: float
    w0: float
    w1: float
    end: float


@dataclass(frozen=True, slots=True)
class Points:
    """One entry a request; times in seconds from t0, durations in ms, NaN where there is none."""

    stage: Ints
    outcome: list[str]
    ok: Bools
    intended: Floats
    sent: Floats
    end: Floats
    values: Mapping[str, Floats]
    """By metric: ttft, tpot, e2e, dispatch_lag; latencies also of requests that failed after their first text."""
    measured: Bools
    token_times: Floats
    """Arrival of every visible chunk, seconds."""
    token_weights: Floats
    """Tokens that each of them carried."""
    spans: list[Span]

    def sample(self, metric: str, stage: int) -> tuple[Floats, int]:
        """Sorted values of the requests of a stage that ended ok in the window, and how many were attempted there."""
        mine = self.measured & (self.stage == stage)
        values = self.values[metric][mine & self.ok]
        return np.sort(values[np.isfinite(values)]), int(mine.sum())


def spans_of(manifest: Mapping[str, Any]) -> list[Span]:
    """The stages' spans; a stage whose times are missing is left out."""
    found = []
    for place, raw in enumerate(map(mapping, items(manifest.get("stages")))):
        w0, w1 = raw.get("w0_ns"), raw.get("w1_ns")
        times = [raw.get("start_ns", w0), w0, w1, w1 if raw.get("drain_end_ns") is None else raw.get("drain_end_ns")]
        if all(number(ns) is not None for ns in times):
            start, w0, w1, end = (float(ns) / NS_PER_S for ns in times)
            index = whole(raw.get("stage"))
            found.append(Span(place if index is None else index, start, w0, w1, end))
    return found


def _measured(columns: Columns, stage: Ints, spans: list[Span]) -> Bools:
    """In its stage's window by its intended time; every request where the manifest tells no window."""
    if not spans:
        return np.ones(columns.n, dtype=np.bool_)
    at, inside = columns.number("intended_ns") / NS_PER_S, np.zeros(columns.n, dtype=np.bool_)
    for span in spans:
        inside |= (stage == span.stage) & (at >= span.w0) & (at < span.w1)
    return inside


def _outcomes(columns: Columns) -> list[str]:
    """The outcome of each request in a word; refusals told apart from other HTTP errors."""
    found = [OUTCOMES[code] if code >= 0 else "unknown" for code in columns.outcome.tolist()]
    for word, mask in (("limited", columns.limited), ("shed", columns.shed)):
        for place in np.flatnonzero(mask & (columns.outcome == OUTCOMES.index("error_http"))):
            found[place] = word
    return found


def points_of(table: pa.Table, manifest: Mapping[str, Any]) -> Points:
    """The columns that the charts need, from `requests.parquet`."""
    columns, spans = columns_of(table), spans_of(manifest)
    stage = columns.number("stage").astype(np.int64)
    return Points(
        stage=stage,
        outcome=_outcomes(columns),
        ok=np.asarray(columns.outcome == OUTCOMES.index("ok")),
        intended=columns.number("intended_ns") / NS_PER_S,
        sent=columns.number("sent_ns") / NS_PER_S,
        end=columns.number("end_ns") / NS_PER_S,
        values={
            "ttft": request.ttft(columns).values,
            "tpot": request.tpot(columns).values,
            "e2e": request.e2e(columns).values,
            "dispatch_lag": request.dispatch_lag(columns).values,
        },
        measured=_measured(columns, stage, spans),
        token_times=columns.chunk_ns[columns.visible] / NS_PER_S,
        token_weights=columns.visible_tokens,
        spans=spans,
    )


def thin(score: Floats, cap: int) -> Ints:
    """Indices of at most `cap` points: the highest quarter by score, and an even sample of the rest, in order."""
    if len(score) <= cap:
        return np.arange(len(score), dtype=np.int64)
    order = np.argsort(-np.nan_to_num(score, nan=-np.inf), kind="stable")
    top, rest = order[: cap // 4], np.sort(order[cap // 4 :])
    even = rest[np.linspace(0, len(rest) - 1, cap - cap // 4).astype(np.int64)]
    return np.sort(np.concatenate([top, even])).astype(np.int64)
