"""Selection of a capacity: among the stages that were stable and met every objective, the highest completed rate.

A tie goes to the lower offered load, then to the lexically smaller id. An unavailable figure stays unavailable and
qualifies nothing. Two modes: `point` compares the figure, `proved` the bound of its interval. Open and closed loops
answer different questions and are never mixed. The result is a bracket: the highest load that held and the lowest
above it that did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchlab.selection.figure import Figure, figure, number
from benchlab.selection.slo import Clause

Mode = Literal["point", "proved"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one stage: its id, load (1/s or users), completed rate, why it does not qualify ('' if it does).

    evidence: False where the stage says nothing about the load (it was cut short, or too few requests).
    """

    id: str
    stage: Any
    load: float | None
    completed_rps: float | None
    qualifies: bool
    why: str
    evidence: bool = True
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pick:
    """selected: the stage, None if none qualifies. bracket: [highest load that held, lowest above it that did not]."""

    mode: Mode
    kind: str | None
    objectives: tuple[str, ...]
    selected: Decision | None
    bracket: tuple[float | None, float | None]
    reason: str
    decisions: tuple[Decision, ...]

    def as_dict(self) -> dict[str, Any]:
        """The `selection` of summary.json."""
        open_loop = self.kind != "closed"
        return {
            "mode": self.mode,
            "kind": self.kind,
            "objectives": list(self.objectives),
            "selected_stage": self.selected.stage if self.selected else None,
            "bracket_rps": list(self.bracket) if open_loop else [None, None],
            "bracket_concurrency": [None, None] if open_loop else list(self.bracket),
            "reason": self.reason,
            "indicative": list(self.selected.marks) if self.selected else [],
            "decisions": [
                {"stage": d.stage, "id": d.id, "qualifies": d.qualifies, "why": d.why} for d in self.decisions
            ],
        }


def pick(stages: Sequence[Mapping[str, Any]], objectives: Sequence[Clause], *, mode: Mode = "point") -> Pick:
    """Select among stages as summary.json holds them. A stage's `id` (else its number) breaks ties."""
    kinds = [str((stage.get("load") or {}).get("kind") or "open") for stage in stages]
    kind = None if not kinds else "open" if "open" in kinds else "closed"
    mine = [stage for stage, its in zip(stages, kinds, strict=True) if its == kind]
    texts = tuple(clause.text for clause in objectives)
    decisions = tuple(_decide(stage, objectives, mode, kind) for stage in mine)
    if not objectives:
        return Pick(mode, kind, texts, None, (None, None), "no --objective was given: nothing to hold", decisions)
    held = [d for d in decisions if d.qualifies]
    best = min(held, key=_rank, default=None)
    bracket = _bracket(decisions)
    return Pick(mode, kind, texts, best, bracket, _reason(best, decisions, bracket, kind, mode, kinds), decisions)


def _rank(d: Decision) -> tuple[float, float, str]:
    return -(d.completed_rps or 0.0), d.load if d.load is not None else float("inf"), d.id


def _decide(stage: Mapping[str, Any], objectives: Sequence[Clause], mode: Mode, kind: str | None) -> Decision:
    load = stage.get("load") or {}
    size = number(load.get("offered_rps" if kind == "open" else "concurrency"))
    number_of = stage.get("stage")
    name = str(stage.get("id") or stage.get("name") or number_of)
    completed = number(stage.get("completed_rps"))
    condition = stage.get("condition")
    if condition != "stable":
        evidence = condition in ("overloaded", "errored")
        return Decision(name, number_of, size, completed, False, f"{condition}", evidence)
    if completed is None:
        return Decision(name, number_of, size, None, False, "its completed rate is not known", evidence=False)
    marks: list[str] = []
    for clause in objectives:
        found = figure(stage, clause.metric, clause.statistic)
        why = _against(clause, found, mode)
        if why:
            return Decision(name, number_of, size, completed, False, why)
        if found.indicative:
            marks.append(clause.key)
    return Decision(name, number_of, size, completed, True, "", marks=tuple(marks))


def _against(clause: Clause, found: Figure, mode: Mode) -> str:
    """'' if the figure keeps the clause, else why not."""
    if found.value is None:
        return f"{clause.text}: {found.why}"
    if not clause.holds(found.value):
        return f"{clause.text}: it is {found.value:.4g}"
    if mode == "proved":
        bound = found.high if clause.upper else found.low
        if bound is None:
            return f"{clause.text}: not proved, too few samples to bound it"
        if not clause.holds(bound):
            return f"{clause.text}: not proved, its interval reaches {bound:.4g}"
    return ""


def _bracket(decisions: Sequence[Decision]) -> tuple[float | None, float | None]:
    held = max((d.load for d in decisions if d.qualifies and d.load is not None), default=None)
    missed = [d.load for d in decisions if not d.qualifies and d.evidence and d.load is not None]
    above = [load for load in missed if held is None or load > held]
    return held, min(above, default=None)


def _reason(
    best: Decision | None,
    decisions: Sequence[Decision],
    bracket: tuple[float | None, float | None],
    kind: str | None,
    mode: Mode,
    kinds: Sequence[str],
) -> str:
    aside = " Closed-loop stages are not part of it." if kind == "open" and "closed" in kinds else ""
    if best is None:
        if not decisions:
            return "there is no stage to select from"
        each = "; ".join(f"{d.id}: {d.why}" for d in decisions)
        return f"no stage qualifies ({each}).{aside}"
    word = "held" if mode == "point" else "was proved to hold"
    unit = "/s offered" if kind == "open" else " users"
    held, failed = bracket
    text = f"stage {best.id} has the highest completed rate ({best.completed_rps:.4g}/s) of those where all {word}"
    if best.marks:
        text += f"; {', '.join(best.marks)} indicative: too few samples to prove"
    if failed is not None:
        miss = next(d for d in decisions if d.load == failed and not d.qualifies)
        text += f"; at {failed:.3g}{unit} it did not ({miss.why})"
    else:
        text += "; no higher load was seen to fail"
    below = [d for d in decisions if not d.qualifies and d.evidence and d.load is not None and d.load < (held or 0)]
    if below:
        text += f"; a lower load ({below[0].load:.3g}{unit}) failed too, so the limit is not a clean one"
    return text + "." + aside
