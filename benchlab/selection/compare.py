"""Stored runs side by side: first what they did differently, then each figure with its interval and the difference.

A word (better, worse) only where the two 95% intervals do not overlap; else "not known". Runs that did different
things still stand beside each other, but then no word is said at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchlab.errors import UsageError
from benchlab.metrics.table import BY_NAME
from benchlab.selection.figure import Figure, figure, load_name

FIGURES: tuple[tuple[str, str | None], ...] = (
    ("completed_rps", None),
    ("output_tps", None),
    ("attainment", None),
    ("failed_share", None),
    *((name, statistic) for name in ("ttft", "itl", "tpot", "e2e") for statistic in ("p50", "p95", "p99")),
)
"""What is compared when nothing else is asked for."""

_BINDING = ("workload_sha256", "workload_items", "arrivals", "tokenizer", "cache", "api", "sampling", "simulated")
"""Seeds are told where they differ, and do not bind: repeats of a load differ by nothing else."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure under one load, a value a run; change (share against the first run) and a word for each later run."""

    load: str
    metric: str
    statistic: str | None
    unit: str
    values: tuple[Figure, ...]
    change: tuple[float | None, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """differences: fingerprint keys that are not the same in all runs. comparable: none of them changes the work."""

    runs: tuple[str, ...]
    differences: dict[str, tuple[Any, ...]]
    comparable: bool
    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """The comparison as `--format json` prints it."""
        return {
            "runs": list(self.runs),
            "comparable": self.comparable,
            "differences": {key: list(values) for key, values in self.differences.items()},
            "rows": [
                {
                    "load": row.load,
                    "metric": row.metric,
                    "statistic": row.statistic,
                    "unit": row.unit,
                    "values": [{"value": f.value, "ci95": [f.low, f.high], "why": f.why} for f in row.values],
                    "change": list(row.change),
                    "words": list(row.words),
                }
                for row in self.rows
            ],
        }


def compare(summaries: Sequence[Mapping[str, Any]], figures: Sequence[tuple[str, str | None]] = FIGURES) -> Comparison:
    """Two or more summaries side by side, the first as the base. Raises UsageError for fewer than two."""
    if len(summaries) < 2:
        raise UsageError("one run cannot be compared", hint="give two or more run directories")
    prints = [dict(summary.get("fingerprint") or {}) for summary in summaries]
    keys = sorted({key for each in prints for key in each})
    values = {key: tuple(each.get(key) for each in prints) for key in keys}
    differences = {key: found for key, found in values.items() if any(value != found[0] for value in found)}
    if "workload_items" not in differences and values.get("workload_items", (None,))[0] is not None:
        differences.pop("workload_sha256", None)  # the same items from another file, or in another format
    comparable = not any(key in differences for key in _BINDING)
    valid = all((summary.get("verdict") or {}).get("state") in ("VALID", "WARN") for summary in summaries)
    rows: list[Row] = []
    for load in _loads(summaries):
        stages = [_under(summary, load) for summary in summaries]
        rows += [_row(load, metric, statistic, stages, comparable and valid) for metric, statistic in figures]
    return Comparison(tuple(str(s.get("run_id")) for s in summaries), differences, comparable, tuple(rows))


def _loads(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    seen: dict[str, None] = {}
    for summary in summaries:
        for stage in summary.get("stages") or []:
            seen.setdefault(load_name(stage))
    return list(seen)


def _under(summary: Mapping[str, Any], load: str) -> Mapping[str, Any] | None:
    return next((stage for stage in summary.get("stages") or [] if load_name(stage) == load), None)


def _row(
    load: str, metric: str, statistic: str | None, stages: Sequence[Mapping[str, Any] | None], judging: bool
) -> Row:
    found = tuple(
        figure(stage, metric, statistic) if stage is not None else Figure(None, why="no stage under this load")
        for stage in stages
    )
    base = found[0]
    change = tuple(
        (other.value - base.value) / base.value if other.value is not None and base.value else None
        for other in found[1:]
    )
    healthy = [stage is not None and stage.get("condition") == "stable" for stage in stages]
    # A latency of an errored or overloaded stage is that of the survivors: no word on it.
    fit = [judging and (BY_NAME[metric].scope == "run" or (healthy[0] and own)) for own in healthy[1:]]
    words = tuple(_word(metric, base, other) if ok else "not known" for other, ok in zip(found[1:], fit, strict=True))
    return Row(load, metric, statistic, BY_NAME[metric].unit, found, change, words)


def _word(metric: str, base: Figure, other: Figure) -> str:
    better = BY_NAME[metric].better
    if better == "neither" or base.value is None or other.value is None:
        return "not known"
    if base.high is not None and other.low is not None and other.low > base.high:
        return "better" if better == "higher" else "worse"
    if base.low is not None and other.high is not None and other.high < base.low:
        return "better" if better == "lower" else "worse"
    return "not known"
