"""Sentences written from the data: the headline, the selection and one reading a chart.

Each states figures of the Summary with their load, and says when there is nothing to say. It must not know where a
sentence is shown: console, page and Markdown use the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchlab.report.objectives import Objective, main_stat, objectives_of
from benchlab.report.view import (
    Stage,
    Summary,
    latency,
    metric_word,
    number,
    reference_of,
    selected_of,
    selection_of,
    share,
    simulated_of,
    stages_of,
    tidy,
)
from benchlab.units import format_number


def bracket(summary: Summary) -> tuple[float | None, float | None]:
    """The highest rate that held and the lowest that did not; None where there is none."""
    selection = summary.get("selection")
    pair = selection.get("bracket_rps") if isinstance(selection, Mapping) else None
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return None, None
    return number(pair[0]), number(pair[1])


def capacity(summary: Summary) -> str:
    """'holds 4 /s, fails at 6 /s', or what is known of it."""
    held, failed = bracket(summary)
    if held is None and failed is None:
        return "nothing was selected"
    if held is None:
        return f"no measured rate held; fails at {tidy(failed)} /s"
    if failed is None:
        return f"holds {tidy(held)} /s; no measured rate failed, so the limit lies higher"
    return f"holds {tidy(held)} /s, fails at {tidy(failed)} /s"


def missed(objectives: list[Objective], stage: Stage) -> list[str]:
    """The objectives that the stage misses, each with its figure: 'TTFT p90 ≤ 2 s (2.41 s)'."""
    return [f"{o.pretty} ({latency(o.figure(stage))})" for o in objectives if o.missed_by(stage) is True]


def headline(summary: Summary) -> str:
    """The result in one or two sentences; of a simulation it says that first."""
    profile = simulated_of(summary)
    return _headline(summary) if profile is None else f"Simulated with {profile}. {_headline(summary)}"


def _headline(summary: Summary) -> str:
    stages, objectives = stages_of(summary), objectives_of(summary)
    stage = reference_of(summary, stages)
    if stage is None:
        return "This run holds no stage, so there is nothing to say about the server."
    if sum(s.ok for s in stages) == 0:
        total = sum(s.attempted for s in stages)
        return f"None of the {total:,} attempted requests succeeded; there is no latency to report."
    if objectives and selection_of(summary) is not None:
        wanted = " and ".join(o.pretty for o in objectives)
        held, failed = bracket(summary)
        if held is None:
            return f"No stage of this run that counts meets {wanted}." + _broke(stages, objectives, failed)
        return f"Meets {wanted} up to {tidy(held)} requests/s." + _broke(stages, objectives, failed)
    return measured(stages, objectives, stage)


def _broke(stages: list[Stage], objectives: list[Objective], failed: float | None) -> str:
    first = next((s for s in stages if s.kind == "open" and failed is not None and s.offered == failed), None)
    if first is None:
        return " No measured rate above that failed." if failed is None else ""
    broken = missed(objectives, first)
    if not first.stable:
        also = f" and misses {', '.join(broken)}" if broken else ""
        return f" At {tidy(failed)} /s the stage is {first.condition}{also}."
    return f" At {tidy(failed)} /s it misses {', '.join(broken)}." if broken else ""


def measured(stages: list[Stage], objectives: list[Objective], stage: Stage) -> str:
    """What one stage showed."""
    stat = main_stat(stages, objectives, "ttft")
    load = f"With {stage.label}" if stage.kind == "closed" else f"At {stage.label} offered"
    text = f"{load} the server completed {format_number(stage.completed)} requests/s"
    if stage.value("ttft", "p50") is not None:
        text += f"; first text came after {latency(stage.value('ttft', 'p50'))} at the median"
        if stat != "p50" and stage.value("ttft", stat) is not None:
            text += f", {latency(stage.value('ttft', stat))} at {stat}"
    return f"{text}. {stage.failed:,} of {stage.attempted:,} attempted requests failed."


def latency_reading(stages: list[Stage], objectives: list[Objective], metric: str) -> str:
    """How one metric moved over the load, from the lowest stable to the highest stable stage."""
    stat, word = main_stat(stages, objectives, metric), metric_word(metric)
    known = [s for s in stages if s.stable and s.position is not None and s.value(metric, stat) is not None]
    known.sort(key=lambda s: s.position or 0.0)
    if not known:
        return f"No stable stage has a {word} {stat}."
    low, high = known[0], known[-1]
    if low is high:
        return f"{word} {stat} is {latency(low.value(metric, stat))} at {low.label}, the only stable stage."
    return (
        f"{word} {stat} goes from {latency(low.value(metric, stat))} at {low.label} to "
        f"{latency(high.value(metric, stat))} at {high.label}, the highest stable load."
    )


def outcomes_reading(stages: list[Stage]) -> str:
    """How many failed, and where most of it lies."""
    attempted, failed = sum(s.attempted for s in stages), sum(s.failed for s in stages)
    if not attempted:
        return "Nothing was attempted."
    if not failed:
        return f"All {attempted:,} attempted requests ended as planned."
    worst = max(stages, key=lambda s: s.failed)
    where = f", {worst.failed:,} of them at {worst.label}" if len(stages) > 1 else ""
    return f"{failed:,} of {attempted:,} attempted requests ({share(failed / attempted)}) did not succeed{where}."


def selection_reason(summary: Summary) -> str:
    """The selection's own reason, with its mode."""
    selection: Any = summary.get("selection")
    if not isinstance(selection, Mapping):
        return ""
    mode = str(selection.get("mode") or "point")
    return f"mode {mode}: {str(selection.get('reason') or 'no reason given').rstrip('.')}"


def picked_line(summary: Summary) -> str:
    """'stage 2 (4 /s)' or 'none'."""
    picked = selected_of(summary, stages_of(summary))
    return "none" if picked is None else f"stage {picked.index} ({picked.label})"
