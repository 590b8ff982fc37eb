"""Gates: assertions and regression limits. They change no number, and they cannot pass on what was not measured.

Missing, null, implausible or without samples: breached. On an INVALID measurement no gate is green. Latencies are
judged over the selected stage, else over every stable one, and with none stable they are breached: a server that
refuses work looks fast. Figures over all attempted requests (rates, shares) are judged over every stage that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchlab.errors import Exit, NotComparableError, most_severe
from benchlab.metrics.table import BY_NAME
from benchlab.selection.figure import figure, load_name, plausible
from benchlab.selection.slo import Clause, Regression


@dataclass(frozen=True, slots=True)
class GateRow:
    """One gate: value and limit in the metric's unit (regression: shares, worse is above 0), and why it failed."""

    name: str
    passed: bool
    value: float | None
    limit: float
    why: str = ""
    stage: Any = None

    def as_dict(self) -> dict[str, Any]:
        """The gate as summary.json holds it."""
        plain: dict[str, Any] = {"name": self.name, "passed": self.passed, "value": self.value, "limit": self.limit}
        return plain | {"why": self.why, "stage": self.stage}


def assertions(summary: Mapping[str, Any], clauses: Sequence[Clause]) -> list[GateRow]:
    """Judge each `--assert` on a summary: the worst of its stages decides."""
    return [_distrust(summary, _assertion(summary, clause)) for clause in clauses]


def regressions(
    summary: Mapping[str, Any], baseline: Mapping[str, Any] | None, limits: Sequence[Regression]
) -> list[GateRow]:
    """Judge each `--max-regression` against a baseline's summary. Raises NotComparableError without one."""
    if limits and baseline is None:
        raise NotComparableError(
            "there is no baseline to compare with", where="--max-regression", hint="give --baseline RUN"
        )
    if limits and baseline is not None and ("simulated" in summary) != ("simulated" in baseline):
        first, second = ("simulated", "measured") if "simulated" in summary else ("measured", "simulated")
        raise NotComparableError(
            f"the run is {first} and the baseline {second}", where="--baseline", hint=f"give a {first} run"
        )
    return [_distrust(summary, _regression(summary, baseline or {}, limit)) for limit in limits]


def _distrust(summary: Mapping[str, Any], row: GateRow) -> GateRow:
    state = (summary.get("verdict") or {}).get("state")
    if state not in ("VALID", "WARN"):
        why = "the measurement is INVALID" if state == "INVALID" else "the measurement has no verdict"
        return GateRow(row.name, False, row.value, row.limit, why, row.stage)
    return row


def _candidates(summary: Mapping[str, Any], metric: str) -> tuple[list[Mapping[str, Any]], str]:
    """The stages a gate speaks of, and a reason against it where they cannot carry it."""
    stages = list(summary.get("stages") or [])
    chosen = (summary.get("selection") or {}).get("selected_stage")
    if chosen is not None:
        return [stage for stage in stages if stage.get("stage") == chosen], ""
    stable = [stage for stage in stages if stage.get("condition") == "stable"]
    if stable:
        return stable, ""
    words = ", ".join(sorted({str(stage.get("condition")) for stage in stages})) or "no stage at all"
    return stages, "" if stages and BY_NAME[metric].scope == "run" else f"no stable stage ({words})"


def _assertion(summary: Mapping[str, Any], clause: Clause) -> GateRow:
    stages, against = _candidates(summary, clause.metric)
    worst: GateRow | None = None
    for stage in stages:
        found = figure(stage, clause.metric, clause.statistic)
        number = stage.get("stage")
        if found.value is None:
            return GateRow(clause.text, False, None, clause.limit, found.why, number)
        why = plausible(clause.metric, clause.statistic, found.value, stage) or against
        passed = not why and clause.holds(found.value)
        if not passed and not why:
            why = f"{clause.key} is {found.value:.4g} {BY_NAME[clause.metric].unit}"
        row = GateRow(clause.text, passed, found.value, clause.limit, why, number)
        if worst is None or (worst.passed, _badness(worst, clause)) > (row.passed, _badness(row, clause)):
            worst = row
    return worst or GateRow(clause.text, False, None, clause.limit, against or "there is no stage")


def _badness(row: GateRow, clause: Clause) -> float:
    """Smaller is worse."""
    value = row.value if row.value is not None else 0.0
    return -value if clause.upper else value


def _regression(summary: Mapping[str, Any], baseline: Mapping[str, Any], limit: Regression) -> GateRow:
    stages, against = _candidates(summary, limit.metric)
    worst: GateRow | None = None
    for stage in stages:
        row = _compared(stage, _partner(stage, baseline), limit, against)
        if row.value is None:
            return row
        if worst is None or (worst.passed, -(worst.value or 0.0)) > (row.passed, -row.value):
            worst = row
    return worst or GateRow(limit.text, False, None, limit.share, against or "there is no stage")


def _partner(stage: Mapping[str, Any], baseline: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The baseline's stage under the same load."""
    return next((other for other in baseline.get("stages") or [] if load_name(other) == load_name(stage)), None)


def _compared(stage: Mapping[str, Any], other: Mapping[str, Any] | None, limit: Regression, against: str) -> GateRow:
    name, number = limit.text, stage.get("stage")
    if other is None:
        return GateRow(name, False, None, limit.share, "the baseline has no stage under this load", number)
    ours, theirs = figure(stage, limit.metric, limit.statistic), figure(other, limit.metric, limit.statistic)
    if ours.value is None or theirs.value is None:
        why = ours.why if ours.value is None else f"in the baseline: {theirs.why}"
        return GateRow(name, False, None, limit.share, why, number)
    odd = plausible(limit.metric, limit.statistic, ours.value, stage)
    odd = odd or plausible(limit.metric, limit.statistic, theirs.value, other)
    if odd:
        return GateRow(name, False, None, limit.share, odd, number)
    if theirs.value == 0:
        worse = 0.0 if ours.value == 0 else float("inf")
    else:
        worse = (ours.value - theirs.value) / theirs.value
    if BY_NAME[limit.metric].better == "higher":
        worse = -worse
    if worse == float("inf"):
        return GateRow(name, False, None, limit.share, f"{ours.value:.4g} where the baseline has 0", number)
    passed = not against and worse <= limit.share
    why = against or ("" if passed else f"{limit.key} is {worse:.1%} worse ({theirs.value:.4g} -> {ours.value:.4g})")
    return GateRow(name, passed, worse, limit.share, why, number)


def exit_code(
    summary: Mapping[str, Any] | None = None,
    *,
    gates: Sequence[GateRow] | Sequence[Mapping[str, Any]] = (),
    interrupted: Exit | None = None,
    aborted: bool = False,
    inconclusive: bool = False,
    comparable: bool = True,
    raised: Sequence[Exit] = (),
) -> Exit:
    """The code to exit with, by the precedence of INTERFACES.md.

    interrupted: Exit.INTERRUPTED or Exit.TERMINATED. aborted: an abort rule ended the run. comparable: False when a
    baseline did not do the same thing. raised: codes of errors that were met on the way.
    """
    codes = [Exit.OK, *raised]
    if interrupted is not None:
        codes.append(interrupted)
    if aborted:
        codes.append(Exit.ABORTED)
    if summary is not None and (summary.get("verdict") or {}).get("state") == "INVALID":
        codes.append(Exit.INVALID)
    if not comparable:
        codes.append(Exit.NOT_COMPARABLE)
    passed = [row.passed if isinstance(row, GateRow) else row.get("passed") is True for row in gates]
    if not all(passed):
        codes.append(Exit.GATE)
    if inconclusive:
        codes.append(Exit.INCONCLUSIVE)
    return most_severe(codes)
