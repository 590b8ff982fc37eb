"""From a page of somebody's metric names to readings under ours, by the rows of `engine_metrics.toml`.

An engine is a few words in that table. Series of one page are joined into one value (data-parallel engines are
summed), so that a reader of `telemetry.parquet` meets one line a metric and not one a label set.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from benchlab.errors import UsageError
from benchlab.telemetry.prometheus import Exposition, ScrapeError, Series, parse_exposition

Join = Literal["sum", "mean", "max"]
_KINDS = ("gauge", "counter", "histogram")
_JOINS = ("sum", "mean", "max")


@dataclass(frozen=True, slots=True)
class Selector:
    """A foreign name, and labels that its series must have."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    def pick(self, series: Sequence[Series], suffix: str = "") -> list[Series]:
        """The series that fit."""
        wanted = set(self.labels)
        return [each for each in series if each.name == self.name + suffix and wanted <= set(each.labels)]


@dataclass(frozen=True, slots=True)
class Row:
    """One of our metrics: how it is read from a page."""

    metric: str
    kind: str
    unit: str
    selectors: tuple[Selector, ...]
    join: Join = "sum"
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One value under our name. labels: "" but for a histogram's buckets (le="0.5")."""

    metric: str
    value: float
    counter: bool
    labels: str = ""


def rows_from(table: Mapping[str, Any], where: str) -> tuple[Row, ...]:
    """Rows from a table as TOML gives it. Raises UsageError naming the row that is wrong."""
    rows = []
    for metric, row in table.items():
        place = f"{where}: [{metric}]"
        unknown = set(row) - {"kind", "unit", "join", "scale", "names"} if isinstance(row, Mapping) else {"the row"}
        if unknown:
            raise UsageError(f"unknown: {', '.join(sorted(unknown))}", where=place)
        if row.get("kind") not in _KINDS:
            raise UsageError(f"kind is none of {', '.join(_KINDS)}", where=place)
        if row.get("join", "sum") not in _JOINS:
            raise UsageError(f"join is none of {', '.join(_JOINS)}", where=place)
        names = row.get("names")
        if not isinstance(names, list) or not names:
            raise UsageError("names is not a list of names", where=place)
        try:
            # a selector is written as Prometheus writes a series, so it is read as one
            parsed = [parse_exposition(f"{name} 0").series[0] for name in names]
        except (ScrapeError, IndexError):
            raise UsageError(f"names holds something that is no metric's name: {names}", where=place) from None
        selectors = tuple(Selector(series.name, series.labels) for series in parsed)
        scale = float(row.get("scale", 1.0))
        rows.append(Row(metric, row["kind"], str(row.get("unit", "")), selectors, row.get("join", "sum"), scale))
    return tuple(rows)


@cache
def shipped_rows() -> tuple[Row, ...]:
    """The rows of the table that ships with benchlab."""
    path = Path(__file__).with_name("engine_metrics.toml")
    return rows_from(tomllib.loads(path.read_text(encoding="utf-8")), path.name)


def _joined(series: Sequence[Series], row: Row) -> float | None:
    """One value from all series; None where a value is missing (NaN, Inf): a sum without it would look whole."""
    values = [each.value for each in series]
    if not all(math.isfinite(value) for value in values):
        return None
    total = max(values) if row.join == "max" else math.fsum(values)
    return (total / len(values) if row.join == "mean" else total) * row.scale


def _histogram(row: Row, page: Mapping[str, list[Series]], selector: Selector) -> list[Reading]:
    readings = []
    for suffix in ("_sum", "_count"):
        series = selector.pick(page.get(selector.name + suffix, ()), suffix)
        value = _joined(series, row) if series else None
        if value is not None:
            readings.append(Reading(row.metric + suffix, value, counter=True))
    bounds: dict[str, list[Series]] = {}
    for series_ in selector.pick(page.get(selector.name + "_bucket", ()), "_bucket"):
        bounds.setdefault(series_.label("le") or "", []).append(series_)
    for bound, members in bounds.items():
        value = _joined(members, row)
        if value is not None and bound:
            readings.append(Reading(f"{row.metric}_bucket", value, counter=True, labels=f'le="{bound}"'))
    return readings


def translate(page: Exposition, rows: Sequence[Row] | None = None) -> list[Reading]:
    """What a page says, under our names. Names that the table does not know are left out."""
    by_name: dict[str, list[Series]] = {}
    for series in page.series:
        by_name.setdefault(series.name, []).append(series)
    readings: list[Reading] = []
    for row in shipped_rows() if rows is None else rows:
        for selector in row.selectors:
            if row.kind == "histogram":
                found = _histogram(row, by_name, selector)
                if found:
                    readings.extend(found)
                    break
                continue
            series_ = selector.pick(by_name.get(selector.name, ()))
            if series_:
                value = _joined(series_, row)
                if value is not None:
                    readings.append(Reading(row.metric, value, row.kind == "counter"))
                break
    return readings


def known_series(page: Exposition, rows: Sequence[Row] | None = None) -> list[Series]:
    """The series of a page that the table knows (a histogram by its count only)."""
    names: set[str] = set()
    for row in shipped_rows() if rows is None else rows:
        suffix = "_count" if row.kind == "histogram" else ""
        names.update(selector.name + suffix for selector in row.selectors)
    return [series for series in page.series if series.name in names]
