"""What summary.json says of one metric in one stage: figures, intervals, who was left out and who was cut off.

The one idea: a percentile comes with the interval that so many *independent* samples would give; samples that follow
each other are alike, and count for fewer. It must not know stages or rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchlab.metrics.columns import Bools, Columns, Floats
from benchlab.metrics.intervals import effective_n, mean_interval
from benchlab.metrics.quantiles import interval_ranks, ordered, quantile, quantile_with_interval
from benchlab.metrics.run import tokens_estimated
from benchlab.metrics.table import Metric, Samples, measure
from benchlab.records.event import Outcome

_CENSORED = (Outcome.UNFINISHED, Outcome.TIMEOUT)
_KNOWN_EARLY = ("ttft", "response_ttft", "ttfa")


def label(percentile: float) -> str:
    """99 -> 'p99', 99.9 -> 'p99.9'."""
    return f"p{percentile:g}"


def metric_block(metric: Metric, c: Columns, inside: Bools, percentiles: Sequence[float]) -> dict[str, Any]:
    """The block of a request, gap or session metric over the requests of the window `inside`."""
    asked = inside & (c.is_outcome(Outcome.OK) if metric.over == "ok" else ~np.isnan(c.number("dispatched_ns")))
    samples = measure(metric, c, inside if metric.scope == "session" else asked)
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
        one = (c.streamed_tokens == c.visible_count) & ~tokens_estimated(c)
        block["between"] = "tokens" if len(samples.rows) and one[samples.rows].all() else "chunks"
    if len(samples.values):
        _describe(block, samples, metric, c, percentiles)
    if metric.over == "ok":
        _censor(block, samples, metric, c, inside, percentiles)
    return block


def _describe(
    block: dict[str, Any], samples: Samples, metric: Metric, c: Columns, percentiles: Sequence[float]
) -> None:
    values = ordered(samples.values)
    low, high = float(values[0]), float(values[-1])
    # A mean of equal numbers may leave their range by a rounding.
    block |= {"mean": min(max(float(values.mean()), low), high), "min": low, "max": high}
    series = _Series(samples, metric, c)
    if metric.scope == "gap":
        block["interval_n"] = series.n  # gaps of one request are not independent: the interval counts requests
    fewer: dict[str, float] = {}
    for percentile in percentiles:
        name = label(percentile)
        value = quantile(values, percentile / 100)
        enough = series.independent(value)
        if enough < series.n:
            fewer[name] = enough
        found = quantile_with_interval(values, percentile / 100, max(1, int(enough)))
        block[name] = found.value
        block["ci95"][name] = [found.low, found.high]
        if found.indicative:
            block["indicative"].append(name)
    if fewer:
        block["effective_n"] = fewer
    mean = series.mean_interval()
    if mean is not None:
        block["ci95"]["mean"] = list(mean)


class _Series:
    """The samples request by request, in the order in which the requests were due."""

    def __init__(self, samples: Samples, metric: Metric, c: Columns) -> None:
        due = c.number("intended_ns")
        self._values, self._pooled = samples.values, metric.scope == "gap"
        if self._pooled:
            counts = np.bincount(samples.rows, minlength=c.n).astype(np.float64)
            rows = np.flatnonzero(counts)
            self._order = rows[np.argsort(due[rows], kind="stable")]
            self._rows, self._counts, self._n = samples.rows, counts[self._order], c.n
        else:
            self._order = np.argsort(due[samples.rows], kind="stable")
            self._counts = np.ones(len(self._order))
        self.n = len(self._order)

    def _sums(self, values: Floats) -> Floats:
        if self._pooled:
            return np.asarray(np.bincount(self._rows, weights=values, minlength=self._n)[self._order])
        return np.asarray(values[self._order], dtype=np.float64)

    def independent(self, value: float) -> float:
        """How many independent requests say as much of the share that is at most `value`."""
        if self.n < 2:
            return float(self.n)
        return effective_n(self._sums((self._values <= value).astype(np.float64)) / self._counts)

    def mean_interval(self) -> tuple[float, float] | None:
        """Of the mean of all samples."""
        return mean_interval(self._sums(self._values), self._counts)


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
    if not cut.any() or (metric.of_engine and samples.gap is not None):
        return
    early = metric.of_engine or metric.name in _KNOWN_EARLY
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
    alike = {name: enough / block["n"] for name, enough in block.get("effective_n", {}).items()}
    counting: dict[str, Any] = {"n": everyone, "ci95": {}}
    at_least: dict[str, Any] = {}
    for percentile in percentiles:
        share, name = percentile / 100, label(percentile)
        at_least[name] = quantile(floor, share)
        # Linear between order statistics, where those who never got there stand above all who did.
        within = share * (everyone - 1) <= len(reached) - 1
        padded = np.concatenate([reached, np.full(len(lost), reached[-1])]) if len(reached) else reached
        counting[name] = quantile(padded, share) if within and len(reached) else None
        low, high = _ranks(everyone, share, alike.get(name, 1.0))
        counting["ci95"][name] = [
            float(reached[r - 1]) if r is not None and r <= len(reached) else None for r in (low, high)
        ]
    block["counting_cut_off"] = counting
    block["at_least"] = at_least


def _ranks(n: int, share: float, alike: float) -> tuple[int | None, int | None]:
    """Ranks among n that bound the quantile when only n x alike of them are independent."""
    m = max(1, int(n * alike))
    low, high = interval_ranks(m, share)
    wide = n / m
    return (
        None if low is None else int((low - 1) * wide) + 1,
        None if high is None else min(n, int(-(-high * wide // 1))),
    )
