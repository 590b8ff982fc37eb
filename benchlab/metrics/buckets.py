"""The same figures by kind of request: input x output length, tenant, task, turn.

The one idea: a figure over a mixture hides which part of it suffers, and a change of the mixture looks like a change of
the server; so each part is shown with its own n, and nothing is averaged over parts. Requests of
a part that follow each other are as alike as any, and count for fewer in its intervals. It must not know rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchlab.metrics.block import label
from benchlab.metrics.columns import Bools, Columns, Floats
from benchlab.metrics.goodput import Good
from benchlab.metrics.intervals import effective_n, share_intervals
from benchlab.metrics.quantiles import ordered, quantile, quantile_with_interval
from benchlab.metrics.table import BY_NAME, measure
from benchlab.records.event import Outcome

MOST = 40
"""Rows of a table; the smallest parts above it are one row, `others`."""
FIGURES = ("ttft", "tpot", "e2e", "stall")
_OTHERS = "others"
_NOT_TOLD = "not told"


def tables(
    c: Columns, inside: Bools, good: Good | None, percentiles: Sequence[float]
) -> dict[str, list[dict[str, Any]]]:
    """A table for each way in which the requests of the window differ: rows by falling number of requests.

    good: where limits were given. percentiles: of each figure, with its interval.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    values = _values(c)
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(c.number("intended_ns")[rows], kind="stable")]
    for name, words in _parts(c).items():
        kinds, place = np.unique(words[rows].astype(object).astype(str), return_inverse=True)
        if len(kinds) < 2:
            continue
        sizes = np.bincount(place)
        order = np.argsort(-sizes, kind="stable")
        shown = [(str(kinds[k]), rows[place == k]) for k in order[: MOST - 1 if len(kinds) > MOST else MOST]]
        if len(kinds) > MOST:
            rest = rows[np.isin(place, order[MOST - 1 :])]
            shown.append((f"{_OTHERS} ({len(kinds) - MOST + 1})", rest))
        found[name] = [_row(word, of, c, values, good, percentiles) for word, of in shown]
    return found


def _values(c: Columns) -> Mapping[str, Floats]:
    """One value a request of each figure, NaN where it has none."""
    ok = c.is_outcome(Outcome.OK)
    result = {}
    for name in FIGURES:
        samples = measure(BY_NAME[name], c, ok)
        result[name] = np.full(c.n, np.nan)
        result[name][samples.rows] = samples.values
    return result


def _row(
    word: str, rows: Any, c: Columns, values: Mapping[str, Floats], good: Good | None, percentiles: Sequence[float]
) -> dict[str, Any]:
    """rows: the requests of this part, in the order in which they were due."""
    ok = int(c.is_outcome(Outcome.OK)[rows].sum())
    cancelled = int(c.is_outcome(Outcome.CANCELLED)[rows].sum())
    row: dict[str, Any] = {
        "key": word,
        "attempted": len(rows),
        "ok": ok,
        "failed_share": (len(rows) - ok - cancelled) / len(rows),
        "prompt_tokens_mean": _mean(c.number("prompt_tokens")[rows]),
        "output_tokens_mean": _mean(c.streamed_tokens[rows]),
    }
    if good is not None:
        hits = good.mask[rows]
        row |= {"attainment": float(hits.mean()), "attainment_ci95": share_intervals(hits)[0]}
    for name in FIGURES:
        mine = values[name][rows]
        mine = mine[np.isfinite(mine)]
        rising = ordered(mine)
        block: dict[str, Any] = {"n": len(mine), "ci95": {}, "indicative": []}
        for percentile in percentiles:
            if not len(mine):
                block[label(percentile)] = None
                continue
            below = mine <= quantile(rising, percentile / 100)
            enough = max(1, int(effective_n(below.astype(np.float64))))
            found = quantile_with_interval(rising, percentile / 100, enough)
            block[label(percentile)] = found.value
            block["ci95"][label(percentile)] = [found.low, found.high]
            if found.indicative:
                block["indicative"].append(label(percentile))
        row[name] = block
    return row


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _parts(c: Columns) -> dict[str, Any]:
    """The word of each request in each way of parting them."""
    prompt = _lengths(c.number("prompt_tokens"))
    asked = c.number("requested_tokens")
    output = _lengths(np.where(np.isnan(asked), c.streamed_tokens, asked))
    both = np.array([f"{a} in, {b} out" for a, b in zip(prompt, output, strict=True)], dtype=object)
    return {
        "length": both,
        "tenant": _words(c.table.column("tenant")),
        "task": _first_tag(c.table.column("tags")),
        "turn": _turns(c),
    }


def _lengths(tokens: Floats) -> list[str]:
    """'129-256' for 200: powers of two, so that rows mean the same in every run."""
    known = np.isfinite(tokens) & (tokens >= 1)
    power = np.where(known, np.ceil(np.log2(np.where(known, np.maximum(tokens, 1), 1))), -1).astype(np.int64)
    names = {-1: _NOT_TOLD, 0: "1"}
    for p in np.unique(power[power > 0]).tolist():
        names[p] = f"{2 ** (p - 1) + 1}-{2**p}"
    return [names[p] for p in power.tolist()]


def _words(column: pa.ChunkedArray) -> Any:
    return np.array(pc.fill_null(column, _NOT_TOLD).to_pylist(), dtype=object)


def _first_tag(column: pa.ChunkedArray) -> Any:
    """A request's task is its first tag; the others say more of it."""
    return np.array([tags[0] if tags else _NOT_TOLD for tags in column.to_pylist()], dtype=object)


def _turns(c: Columns) -> Any:
    if c.table.column("session_id").null_count == c.n:
        return np.full(c.n, _NOT_TOLD, dtype=object)
    turn = c.number("turn")
    names = {number: f"{number:.0f}" for number in np.unique(turn[np.isfinite(turn)]).tolist()}
    return np.array([names.get(number, _NOT_TOLD) for number in turn.tolist()], dtype=object)
