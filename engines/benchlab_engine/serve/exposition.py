"""Prometheus text: names, kinds, labels, lines.

The one idea: a page is a list of families; whoever has the numbers says what they are called. It must not know the
engine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

Labels = Mapping[str, str]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0)


class Histogram:
    """Counts of values by upper bound."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Page:
    """An exposition under one prefix. labels: on every series."""

    def __init__(self, prefix: str, labels: Labels) -> None:
        self._prefix = prefix
        self._labels = dict(labels)
        self.lines: list[str] = []

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """One gauge."""
        self._family(name, "gauge", [("", labels, value)])

    def counter(self, name: str, value: float) -> None:
        """One counter; `name` ends in _total."""
        self._family(name, "counter", [("", {}, value)])

    def gauges(self, name: str, label: str, values: Mapping[str, float]) -> None:
        """One gauge for each value of a label."""
        self._family(name, "gauge", [("", {label: key}, value) for key, value in values.items()])

    def counters(self, name: str, label: str, values: Mapping[str, float]) -> None:
        """One counter for each value of a label."""
        self._family(name, "counter", [("", {label: key}, value) for key, value in sorted(values.items())])

    def histogram(self, name: str, histogram: Histogram) -> None:
        """Buckets, sum and count."""
        so_far = list(accumulate(histogram.counts))
        bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
        buckets = [("_bucket", {"le": bound}, float(count)) for bound, count in zip(bounds, so_far, strict=True)]
        self._family(name, "histogram", [*buckets, ("_sum", {}, histogram.total), ("_count", {}, so_far[-1])])

    def _family(self, name: str, kind: str, series: Iterable[tuple[str, Labels, float]]) -> None:
        self.lines.append(f"# TYPE {self._prefix}{name} {kind}")
        for suffix, labels, value in series:
            told = ",".join(f'{key}="{_escape(each)}"' for key, each in {**self._labels, **labels}.items())
            shown = int(value) if float(value).is_integer() else value
            self.lines.append(
                f"{self._prefix}{name}{suffix}{{{told}}} {shown}" if told else f"{self._prefix}{name}{suffix} {shown}"
            )


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
