"""A Summary as typed values: what text, figures and page all read, so that no two of them read it differently.

Nothing is computed here beyond choosing and labelling; a missing or ill-typed entry is None, never 0. It must not know
how anything is drawn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchlab.report.words import METRIC_NAMES, STATES, VERDICTS
from benchlab.units import format_number

Summary = Mapping[str, Any]

STAT = re.compile(r"p\d{1,2}(?:\.\d+)?\Z")
_DEFAULT_STATS = ("p50", "p90", "p95", "p99")


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole(value: Any) -> int | None:
    """A whole number, or None."""
    found = number(value)
    return None if found is None else int(found)


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _pair(value: Any) -> tuple[float | None, float | None] | None:
    pair = items(value)
    return (number(pair[0]), number(pair[1])) if len(pair) == 2 else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of validity or condition, with the value it saw."""

    name: str
    state: str
    value: str
    limit: str
    hint: str
    stage: int | None = None
    """The stage it was judged in; None for the whole run."""
    reach: float | None = None
    """Value / limit where both are numbers: how near the limit it came."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one stage. `stats` are in `unit`; `gap` says why there is none."""

    name: str
    unit: str
    n: int
    stats: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float | None, float | None] | None]
    indicative: frozenset[str]
    left_out: int
    gap: str | None
    judged: Mapping[str, float | None] | None = None
    """Percentiles with the requests that were cut off counted as longer than all; None where none was."""
    effective_n: Mapping[str, float] = field(default_factory=dict)
    """So many independent values would say as much of that statistic; only where they are fewer than n."""

    def value(self, stat: str) -> float | None:
        return self.stats.get(stat)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of load and what came of it."""

    index: int
    name: str
    kind: str
    offered: float | None
    concurrency: int | None
    condition: str
    achieved: float | None
    completed: float | None
    good: float | None
    attainment: float | None
    attainment_ci: tuple[float | None, float | None] | None
    input_tps: float | None
    output_tps: float | None
    total_tps: float | None
    in_flight: float | None
    window_s: float | None
    outcomes: Mapping[str, int]
    limited: int
    shed: int
    metrics: Mapping[str, Metric]
    rules: list[Rule] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    given_attempted: int | None = None

    @property
    def attempted(self) -> int:
        return sum(self.outcomes.values()) if self.given_attempted is None else self.given_attempted

    @property
    def ok(self) -> int:
        return self.outcomes.get("ok", 0)

    @property
    def failed(self) -> int:
        return self.attempted - self.ok - self.outcomes.get("cancelled", 0)

    @property
    def stable(self) -> bool:
        return self.condition == "stable"

    @property
    def position(self) -> float | None:
        """Where the stage stands on a load axis of its kind."""
        return self.offered if self.kind == "open" else number(self.concurrency)

    @property
    def label(self) -> str:
        """'4 /s' or '8 users': the load as people say it."""
        if self.kind == "closed":
            return "— users" if self.concurrency is None else f"{self.concurrency} user{'s' * (self.concurrency != 1)}"
        return "unlimited rate" if self.offered is None else f"{tidy(self.offered)} /s"

    def value(self, metric: str, stat: str) -> float | None:
        return self.metrics[metric].value(stat) if metric in self.metrics else None

    def parts(self) -> dict[str, int]:
        """Outcomes with the refusals (429; 503 and 529) told apart from other HTTP errors; zero ones left out."""
        parts = dict(self.outcomes)
        if self.limited or self.shed:
            parts["error_http"] = max(0, parts.get("error_http", 0) - self.limited - self.shed)
            parts |= {"limited": self.limited, "shed": self.shed}
        return {name: count for name, count in parts.items() if count}


def tidy(value: float | None) -> str:
    """A load or count without needless zeros: 4, 0.5, 12.5, 0.958; a whole number is never cut short."""
    if value is None:
        return "—"
    return (
        f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}" if abs(value) < 100 else format_number(value)
    )


def simulated_of(summary: Summary) -> str | None:
    """The cost model of a simulated run; None for one that was measured."""
    if "simulated" not in summary:
        return None
    return str(mapping(summary["simulated"]).get("profile") or "cost model not told")


def verdict_of(summary: Summary) -> tuple[str, str, str, str]:
    """State, glyph, word and meaning of the verdict; a simulation is called one, and nothing of it measured."""
    state = str(mapping(summary.get("verdict")).get("state", "not judged"))
    glyph, word, meaning = VERDICTS.get(state, ("–", state, ""))
    if simulated_of(summary) is not None and state != "INVALID":
        return (
            state,
            glyph,
            "SIMULATED",
            "Nothing was measured: step times come from a cost model, the client is ideal.",
        )
    return state, glyph, word, meaning


def rule_word(name: str) -> str:
    """A rule's name for people, its unit set apart: 'telemetry gap, s'."""
    return re.sub(r" (ms|s)$", r", \1", name.replace("_", " "))


def show(value: Any) -> str:
    """Any value of a rule as a short text: numbers to four digits, missing as a dash."""
    if value is None or value == "":
        return "—"
    found = number(value)
    if found is None:
        return str(value)
    return (
        tidy(found) if found == int(found) else f"{found:,.4g}" if 1e-4 <= abs(found) < 1e4 else format_number(found, 4)
    )


def _reach(value: float | None, limit: float | None) -> float | None:
    return value / limit if value is not None and limit else None


def rules_of(holder: Any) -> list[Rule]:
    """The rules in a verdict or a stage, worst first; a state that is not one of the four counts as not checked."""
    rules = []
    for raw in map(mapping, items(mapping(holder).get("rules"))):
        state = str(raw.get("state", "")).replace("_", " ")
        rules.append(
            Rule(
                name=str(raw.get("name", "—")),
                state=state if state in STATES else "not checked",
                value=show(raw.get("value")),
                limit=show(raw.get("limit")),
                hint=str(raw.get("hint") or ""),
                stage=whole(raw.get("stage")),
                reach=_reach(number(raw.get("value")), number(raw.get("limit"))),
            )
        )
    return sorted(rules, key=lambda rule: (list(STATES).index(rule.state), -(rule.reach or 0.0)))


def worst_of_each(rules: list[Rule]) -> list[tuple[Rule, list[Rule]]]:
    """Each rule once, by its worst instance, with all its instances; the worst rules first."""
    by_name: dict[str, list[Rule]] = {}
    for rule in rules:
        by_name.setdefault(rule.name, []).append(rule)
    return [(instances[0], instances) for instances in by_name.values()]


def _metric(name: str, raw: Mapping[str, Any]) -> Metric:
    stats = {key: number(value) for key, value in raw.items() if STAT.match(key) or key in ("mean", "min", "max")}
    gap = raw.get("gap")
    return Metric(
        name=name,
        unit=str(raw.get("unit", "ms")),
        n=whole(raw.get("n")) or 0,
        stats=stats,
        intervals={str(key): _pair(value) for key, value in mapping(raw.get("ci95")).items()},
        indicative=frozenset(str(key) for key in items(raw.get("indicative"))),
        left_out=whole(raw.get("left_out")) or 0,
        gap=None if not gap else str(mapping(gap).get("reason") or gap),
        effective_n={
            str(k): v for k, raw_n in mapping(raw.get("effective_n")).items() if (v := number(raw_n)) is not None
        },
        judged={k: number(v) for k, v in cut.items()} if (cut := mapping(raw.get("counting_cut_off"))) else None,
    )


def _stage(place: int, raw: Mapping[str, Any]) -> Stage:
    load, refused = mapping(raw.get("load")), mapping(raw.get("refused"))
    index = whole(raw.get("stage"))
    return Stage(
        index=place if index is None else index,
        name=str(raw.get("name") or ""),
        kind="closed" if load.get("kind") == "closed" else "open",
        offered=number(load.get("offered_rps")),
        concurrency=whole(load.get("concurrency")),
        condition=str(raw.get("condition") or "incomplete"),
        achieved=number(raw.get("achieved_rps")),
        completed=number(raw.get("completed_rps")),
        good=number(raw.get("good_rps")),
        attainment=number(raw.get("attainment")),
        attainment_ci=_pair(raw.get("attainment_ci95")),
        input_tps=number(raw.get("input_tps")),
        output_tps=number(raw.get("output_tps")),
        total_tps=number(raw.get("total_tps")),
        in_flight=number(raw.get("in_flight_mean")),
        window_s=number(raw.get("window_s")),
        outcomes={str(k): whole(v) or 0 for k, v in mapping(raw.get("outcomes")).items()},
        limited=whole(refused.get("limited")) or 0,
        shed=whole(refused.get("shed")) or 0,
        metrics={str(k): _metric(str(k), mapping(v)) for k, v in mapping(raw.get("metrics")).items()},
        rules=rules_of(raw) or rules_of(raw.get("verdict")),
        notes=[str(note) for note in items(raw.get("notes"))],
        given_attempted=whole(raw.get("attempted")),
    )


def slo_of(summary: Summary) -> tuple[list[str], float | None]:
    """The limits on each request that were given, and the share that should meet them."""
    slo = mapping(summary.get("slo"))
    return [str(clause) for clause in items(slo.get("clauses"))], number(slo.get("target"))


def stages_of(summary: Summary) -> list[Stage]:
    """The stages, in the order of the summary."""
    return [_stage(place, mapping(raw)) for place, raw in enumerate(items(summary.get("stages")))]


def stats_of(stages: list[Stage]) -> list[str]:
    """Percentiles that any metric of any stage has, in order; the usual four when there is none."""
    found = {stat for stage in stages for metric in stage.metrics.values() for stat in metric.stats if STAT.match(stat)}
    return sorted(found or _DEFAULT_STATS, key=lambda stat: float(stat[1:]))


def metric_names(stages: list[Stage]) -> list[str]:
    """Metrics that any stage has, known ones first in the order of the words."""
    found = {name for stage in stages for name in stage.metrics}
    return [n for n in METRIC_NAMES if n in found] + sorted(found - METRIC_NAMES.keys())


def metric_word(name: str) -> str:
    return METRIC_NAMES.get(name, name)


def selected_of(summary: Summary, stages: list[Stage]) -> Stage | None:
    """The stage that the selection picked, if any."""
    pick = whole(mapping(summary.get("selection")).get("selected_stage"))
    return next((stage for stage in stages if pick is not None and stage.index == pick), None)


def selection_of(summary: Summary) -> Mapping[str, Any] | None:
    """The selection, or None where nothing was asked to hold and nothing was picked."""
    selection = mapping(summary.get("selection"))
    asked = items(summary.get("objectives")) or items(selection.get("objectives"))
    return selection if asked or whole(selection.get("selected_stage")) is not None else None


def reference_of(summary: Summary, stages: list[Stage]) -> Stage | None:
    """The stage that headline figures speak of: the pick, else the highest stable load, else the first stage."""
    stable = [stage for stage in stages if stage.stable]
    kinds = {stage.kind for stage in stages}
    if (picked := selected_of(summary, stages)) is not None:
        return picked
    if "open" in kinds:
        stable = [stage for stage in stable if stage.kind == "open"] or stable
    return max(stable, key=lambda s: s.position or 0.0) if stable else stages[0] if stages else None


def latency(ms: float | None) -> str:
    """Milliseconds as people say them, with the unit: 312 ms, 1.24 s."""
    if ms is None:
        return "—"
    if math.isinf(ms):
        return "not reached"
    return f"{format_number(ms / 1000)} s" if abs(ms) >= 1000 else f"{format_number(ms)} ms"


def exact_latency(ms: float) -> str:
    """A limit as it was given: 400 ms, 2 s, 1.5 s."""
    return f"{ms / 1000:,.6g} s" if abs(ms) >= 1000 else f"{ms:.6g} ms"


def interval(metric: Metric | None, stat: str) -> str:
    """'280–350' in the metric's own unit; an unbounded side is '?'; empty without an interval."""
    pair = metric.intervals.get(stat) if metric else None
    if pair is None or pair == (None, None):
        return ""
    low, high = ("?" if side is None else format_number(side) for side in pair)
    return f"{low}–{high}"


def share(part: float | None, digits: int = 3) -> str:
    return "—" if part is None else f"{format_number(100 * part, digits)} %"
