"""What a step costs, as arithmetic, and the text that names a cost model.

The one idea: a cost model is a function from a plan to nanoseconds; a profile is its name and numbers as text. It must
not know whether the time is slept or only counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from benchlab_engine.core.plan import StepPlan
from benchlab_engine.sim.roofline import Roofline, named

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s)")
_MAX_NS = 10**18  # thirty years: beyond it no clock here counts


def parse_duration(text: str) -> int:
    """ "50ms" as nanoseconds. The unit is not optional."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration; write a number and a unit, such as 50ms or 2s")
    ns = round(Fraction(match[1]) * _UNITS[match[2]])
    if ns > _MAX_NS:
        raise ValueError(f"{text!r} is longer than any run; write a number and a unit, such as 50ms or 2s")
    return ns


class CostModel(Protocol):
    """What the paced runner needs of a profile."""

    @property
    def accept(self) -> float | None:
        """Chance that a proposed token passes; None: it passes if it is the runner's own next token."""
        ...

    def of(self, plan: StepPlan) -> int:
        """Cost of the plan, ns."""
        ...


@dataclass(frozen=True, slots=True)
class StepCosts:
    """All in ns. step: of every iteration; prompt_token, decode, reread, context: for each of their counts below.

    first: a step in which any prompt is computed to its end takes at least this. accept: see CostModel.
    """

    step: float = 0
    prompt_token: float = 0
    decode: float = 0
    reread: float = 0
    first: float = 0
    context: float = 0
    accept: float | None = None

    def of(self, plan: StepPlan) -> int:
        """Cost of the plan, ns; 0 where there is nothing to do."""
        if not plan.works:
            return 0
        prompt, decodes, reread, context = counts_of(
            (work.start, len(work.token_ids) + work.num_to_draft, work.is_decode) for work in plan.works
        )
        total = self.step + self.decode * decodes + self.prompt_token * prompt
        total += self.reread * reread + self.context * context
        if self.first and any(work.samples and not work.is_decode for work in plan.works):
            total = max(total, self.first)
        return round(total)


def counts_of(works: Iterable[tuple[int, int, bool]]) -> tuple[int, int, int, int]:
    """What a step's cost is linear in, from (first position, positions, is it a decode) of each work.

    Prompt tokens; decode positions (proposals count each); earlier prompt positions reread by a continued prefill;
    cached positions that decodes read.
    """
    prompt = decodes = reread = context = 0
    for start, count, is_decode in works:
        if is_decode:
            decodes += count
            context += start
        else:
            prompt += count
            reread += start
    return prompt, decodes, reread, context


TEACHING = StepCosts(step=1_000_000, prompt_token=500_000, decode=1_000_000, reread=100_000)
_NAMED = {"teaching": TEACHING, "null": StepCosts()}
_FIELDS = {"step": "step", "prompt": "prompt_token", "decode": "decode", "reread": "reread", "context": "context"}
_FIXED = {"ttft": "first", "itl": "step"}
_ROOFLINE = "weights, kv, compute, eff, overhead, gpus, reduce, accept"
_USE = (
    "use teaching, null, ttft=50ms,itl=20ms, step=1ms,prompt=0.5ms,decode=1ms,reread=0.1ms,context=10ns, "
    "roofline:GPU:MODEL or fitted:FILE; accept=0.7 may be added to each"
)


def parse_profile(text: str) -> CostModel:
    """A cost model by name or by numbers. ValueError says what is possible.

    "teaching", "null": as named. "ttft=50ms,itl=20ms": a step of decodes takes 20 ms, one that ends a prompt 50 ms,
    whatever the batch. "step=1ms,prompt=0.5ms,decode=1ms,reread=0.1ms,context=10ns": the teaching model with other
    numbers. "roofline:h100:llama-3-8b,eff=0.6,weights=int4": a bound from data sheets. "fitted:FILE": from a journal.
    "accept=0.7" beside any of them: the chance that a proposed token passes.
    """
    words = [word.strip() for word in text.split(",")]
    named_first = "=" not in words[0] or words[0].startswith(("fitted:", "roofline:"))
    head, options = (words[0], words[1:]) if named_first else ("", words)
    given: dict[str, str] = {}
    for word in options:
        key, separator, value = word.partition("=")
        if not separator or not key or not value:
            raise ValueError(f"profile {text!r}: {word!r} is no key=value; {_USE}")
        if key in given:
            raise ValueError(f"profile {text!r}: {key} stands twice")
        given[key] = value
    try:
        return _model(head, given)
    except ValueError as error:
        raise ValueError(f"profile {text!r}: {error}") from None


def _model(head: str, given: dict[str, str]) -> CostModel:
    kind, _, rest = head.partition(":")
    if kind == "roofline":
        return _roofline(rest, given)
    accept = _accept(given.pop("accept", None))
    if kind == "fitted":
        from benchlab_engine.sim.fit import read_fitted

        _only(given, "accept")
        return replace(read_fitted(rest), accept=accept)
    if head in _NAMED:
        _only(given, "accept")
        return replace(_NAMED[head], accept=accept)
    if head or not (given or accept is not None):
        raise ValueError(f"not known; {_USE}")
    fields = _FIXED if set(given) & set(_FIXED) else _FIELDS
    _only(given, ", ".join((*fields, "accept")))
    return StepCosts(**{fields[key]: parse_duration(value) for key, value in given.items()}, accept=accept)


def _roofline(rest: str, given: dict[str, str]) -> Roofline:
    device_name, _, model_name = rest.partition(":")
    device, model = named(device_name, model_name)
    _only(given, _ROOFLINE)
    numbers: dict[str, Any] = {key: given[key] for key in ("weights", "kv", "compute") if key in given}
    for key, field in (("overhead", "overhead_ns"), ("reduce", "reduce_ns")):
        if key in given:
            numbers[field] = parse_duration(given[key])
    if "eff" in given:
        numbers["eff"] = _number("eff", given["eff"])
    if "gpus" in given:
        if not (given["gpus"].isascii() and given["gpus"].isdecimal()):
            raise ValueError(f"gpus={given['gpus']} is no whole number; write gpus=4")
        numbers["num_devices"] = int(given["gpus"][:9])
    return Roofline(device, model, **numbers, accept=_accept(given.get("accept")))


def _only(given: dict[str, str], known: str) -> None:
    unknown = sorted(set(given) - set(known.split(", ")))
    if unknown:
        raise ValueError(f"{', '.join(unknown)} not known here; use {known}")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{key}={text} is no number; write {key}=0.6") from None


def _accept(text: str | None) -> float | None:
    if text is None:
        return None
    share = _number("accept", text)
    if not 0 <= share <= 1:
        raise ValueError(f"accept={text} is no chance; give 0 to 1")
    return share
