"""One rule of a verdict: what was looked at, the value found, the limit, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

State = Literal["pass", "warn", "fail", "not checked"]
_ORDER: tuple[State, ...] = ("not checked", "pass", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Rule:
    """name: snake_case and stable. value, limit: a number or words, None where not known. hint: the next thing to try.

    stage: the stage it was judged in, None for the whole run.
    """

    name: str
    state: State
    value: float | str | None = None
    limit: float | str | None = None
    hint: str = ""
    stage: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The rule as summary.json holds it."""
        plain: dict[str, Any] = {"name": self.name, "state": self.state, "value": self.value, "limit": self.limit}
        return plain | {"hint": self.hint, "stage": self.stage}


def judged(
    name: str, value: float | None, limit: float, hint: str, *, fail: float | None = None, stage: int | None = None
) -> Rule:
    """A rule on a number that must not exceed `limit` (else warn) nor `fail` (else fail); None is not checked."""
    state: State = "pass"
    if value is None:
        return Rule(name, "not checked", None, limit, "the run does not tell", stage)
    if value > limit:
        state = "fail" if fail is not None and value > fail else "warn"
    return Rule(name, state, value, limit, "" if state == "pass" else hint, stage)


def worst(rules: list[Rule]) -> State:
    """The gravest state among rules (fail > warn > pass > not checked); 'pass' for none."""
    return max((rule.state for rule in rules), key=_ORDER.index, default="pass")
