"""The table of metrics in words: what `benchlab metrics` prints and what the page `METRICS.md` holds.

The one idea: there is one table (`metrics.table`), and whatever tells of it is made from it. It must not compute.
"""

from __future__ import annotations

from typing import Any

from benchlab.metrics.table import METRICS, Metric

BETTER = {"lower": "lower is better", "higher": "higher is better", "neither": "neither is better"}
SCOPES = {
    "request": "one value a request",
    "gap": "one value a gap, pooled over requests",
    "session": "one value a session",
    "run": "one value a stage",
}
COLUMNS = ("name", "unit", "better", "of", "needs", "meaning")


def needs_of(metric: Metric) -> str:
    """What a record must know for it, in words."""
    if metric.of_engine:
        return "the engine's own times"
    return ", ".join(metric.needs) or "all records of the stage"


def rows() -> list[dict[str, Any]]:
    """One row a metric, in the order of the table."""
    return [
        {
            "name": metric.name,
            "unit": metric.unit,
            "better": metric.better,
            "of": metric.scope,
            "needs": needs_of(metric),
            "meaning": metric.sentence,
        }
        for metric in METRICS
    ]


def text(name: str | None = None) -> str:
    """The table for a terminal of 80 columns; with a name, that metric alone."""
    import textwrap

    out: list[str] = []
    for metric in METRICS:
        if name not in (None, metric.name):
            continue
        out.append(f"{metric.name}  [{metric.unit}]  {BETTER[metric.better]}; {SCOPES[metric.scope]}")
        out += textwrap.wrap(metric.sentence, 76, initial_indent="    ", subsequent_indent="    ")
        out += textwrap.wrap(f"needs: {needs_of(metric)}", 76, initial_indent="    ", subsequent_indent="           ")
    return "\n".join(out) + "\n"


def markdown() -> str:
    """The page of all metrics."""
    out = [
        "# Metrics\n",
        "Made by `benchlab metrics --format md` from the table that computes them; the same names stand in",
        "`summary.json`, in the CSV header, in `--objective`, `--assert` and `--slo`.",
        "",
        "A metric whose need a source could not tell is a gap with its reason, never a guess. Percentiles are exact,",
        "linear between order statistics; each has a 95% interval from as many samples as are independent of each",
        "other. Times of requests count for requests that ended ok and were due inside the measured window, unless the",
        "row says otherwise; rates count what happened inside it.",
        "",
        "| name | unit | better | one value a | meaning | needs |",
        "|---|---|---|---|---|---|",
    ]
    for metric in METRICS:
        needs = ", ".join(f"`{need}`" for need in metric.needs) or needs_of(metric)
        scope = "stage" if metric.scope == "run" else metric.scope
        cells = (f"`{metric.name}`", metric.unit, metric.better, scope, metric.sentence, needs)
        out.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(out) + "\n"
