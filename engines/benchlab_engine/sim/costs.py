"""What a step costs, as arithmetic.

The one idea: a cost model is a function from a plan to nanoseconds; a profile is its name and numbers as text. It must
not know whether the time is slept or only counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from benchlab_engine.core.plan import StepPlan

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)")


def parse_duration(text: str) -> int:
    """ "50ms" as nanoseconds. The unit is not optional."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration; write a number and a unit, such as 50ms or 2s")
    return round(Fraction(match[1]) * _UNITS[match[2]])


@dataclass(frozen=True, slots=True)
class StepCosts:
    """All in ns. step: of every iteration; the others for each prompt token, decode step and reread prompt position.

    first: a step in which any prompt is computed to its end takes at least this.
    """

    step: int = 0
    prompt_token: int = 0
    decode: int = 0
    reread: int = 0
    first: int = 0

    def of(self, plan: StepPlan) -> int:
        """Cost of the plan, ns."""
        total = self.step + self.decode * plan.num_decodes + self.prompt_token * plan.num_prefill_tokens
        if self.reread:
            total += self.reread * sum(work.num_reread for work in plan.works)
        if self.first and any(work.samples and not work.is_decode for work in plan.works):
            total = max(total, self.first)
        return total


TEACHING = StepCosts(step=1_000_000, prompt_token=500_000, decode=1_000_000, reread=100_000)
_NAMED = {"teaching": TEACHING, "null": StepCosts()}
_FIELDS = {"step": "step", "prompt": "prompt_token", "decode": "decode", "reread": "reread"}


def parse_profile(text: str) -> StepCosts:
    """A cost model by name (teaching, null) or by numbers.

    "ttft=50ms,itl=20ms": a step of decodes takes 20 ms, one that ends a prompt 50 ms, whatever the batch.
    "step=1ms,prompt=0.5ms,decode=1ms,reread=0.1ms": the teaching model with other numbers.
    """
    if text in _NAMED:
        return _NAMED[text]
    given: dict[str, int] = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator:
            raise ValueError(
                f"no profile {text!r}; use teaching, null, ttft=50ms,itl=20ms or "
                "step=1ms,prompt=0.5ms,decode=1ms,reread=0.1ms"
            )
        given[key.strip()] = parse_duration(value)
    if set(given) <= {"ttft", "itl"}:
        return StepCosts(step=given.get("itl", 0), first=given.get("ttft", 0))
    unknown = sorted(set(given) - set(_FIELDS))
    if unknown:
        raise ValueError(f"profile {text!r}: {', '.join(unknown)} not known; use ttft, itl or {', '.join(_FIELDS)}")
    return StepCosts(**{_FIELDS[key]: value for key, value in given.items()})
