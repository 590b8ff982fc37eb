"""How the server did in one stage: stable, overloaded, errored, incomplete or short. Never whether to believe it.

`overloaded` needs two signs at once, each significant and of a material size: work piled up (arrivals ran ahead of
completions, or requests in flight rose), and requests that came later waited longer (for the first text, or for the
whole answer a token). A server with much parallelism fills up at first without slowing down, and a chance cluster of
arrivals slows a few requests without piling up: one sign alone is no overload. Requests that never ended although the
drain had passed count as the longest of all. A closed loop cannot pile up work, so only its failures and gaps are
judged.

Simulated with 20 to 90 requests in 20 to 30 s: first-come queues at 50 to 60% load are accused in at most 1% of stages
and found at 150% in at least 99%; a server that shares itself out evenly is accused in up to 5% at 60% load, and found
in 90% (20 requests) to 97% (90 requests) at 150%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from benchlab.metrics.columns import Bools, Columns, Floats
from benchlab.metrics.quantiles import samples_needed
from benchlab.metrics.rule import Rule, State
from benchlab.metrics.run import in_flight_at, little, stay
from benchlab.metrics.trend import rising
from benchlab.metrics.window import Window
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_MS, NS_PER_S

Word = Literal["stable", "overloaded", "errored", "incomplete", "short"]

FAILED_SHARE = 0.01
"""Failures and refusals among the attempted, above which a stage is `errored`."""
LEVEL = 0.01
"""One-sided level of each trend test."""
PART_REQUESTS = 60
"""The last part is the window's second half, or from as far back (warm-up included) as it takes to hold so many."""
PILE_SHARE, PILE_LEAST, PILE_NOISE = 0.02, 5.0, 2.0
"""A pile is material above 2% of the arrivals, 5 requests, and twice the chance spread of the level in flight."""
SLOWER = 0.4
"""Later requests are materially slower when Sen's growth over the part exceeds this share of its median."""
UNFINISHED_SHARE = 0.01
LITTLE = 0.05
INSTANTS = 24


@dataclass(frozen=True, slots=True)
class Condition:
    """The word, and the rules that led to it."""

    word: Word
    rules: tuple[Rule, ...]


def condition_of(c: Columns, w: Window | None, stage: Mapping[str, Any]) -> Condition:
    """The condition of one stage; `stage` is its entry in the manifest."""
    missing = _missing(c, w, stage)
    if w is None:
        return Condition("incomplete", (missing,))
    inside = w.holds(c.number("intended_ns"))
    attempted = int(inside.sum())
    failures = _failures(c, inside, attempted)
    unfinished = _unfinished(c, inside, attempted)
    enough = samples_needed(0.5)
    samples = Rule(
        "samples",
        "pass" if attempted >= enough else "fail",
        attempted,
        enough,
        "" if attempted >= enough else "measure longer: not even a median has an interval",
    )
    pile, slower = _overload(c, w, stage)
    overloaded = pile.state == "fail" and (slower.state == "fail" or unfinished.state == "fail")
    if not overloaded:  # one sign of the two is no verdict, and does not look like one
        pile, slower = _lone(pile), _lone(slower)
    # The law is for stages that are steady; elsewhere its breach says nothing new.
    stable = not overloaded and "fail" not in (missing.state, failures.state, unfinished.state)
    rules = (missing, failures, unfinished, pile, slower, samples, _little(c, w, stable))
    if missing.state == "fail" and not (stage.get("aborted") and failures.state == "fail"):
        return Condition("incomplete", rules)
    if failures.state == "fail":
        return Condition("errored", rules)
    if overloaded:
        return Condition("overloaded", rules)
    if unfinished.state == "fail":
        return Condition("incomplete", rules)
    return Condition("stable" if samples.state == "pass" else "short", rules)


def _lone(sign: Rule) -> Rule:
    hint = "one of the two signs of overload, without the other"
    return replace(sign, state="warn", hint=hint) if sign.state == "fail" else sign


def _missing(c: Columns, w: Window | None, stage: Mapping[str, Any]) -> Rule:
    why = str(stage.get("why") or "")
    planned = stage.get("planned")
    if w is None:
        return Rule("whole", "fail", c.n, planned, why or "no measured window: the stage never ran to one")
    if stage.get("complete") is False:
        return Rule("whole", "fail", c.n, planned, why or "the stage was cut short")
    if planned is not None and c.n < int(planned):
        return Rule("whole", "fail", c.n, planned, "records are missing")
    return Rule("whole", "pass", c.n, planned)


def _failures(c: Columns, inside: Bools, attempted: int) -> Rule:
    # What the client could not send, or cut, says nothing of the server: those have rules of their own.
    excused = c.is_outcome(Outcome.OK, Outcome.CANCELLED, Outcome.UNFINISHED, Outcome.NOT_SENT)
    share = int((inside & ~excused).sum()) / attempted if attempted else None
    if share is None:
        return Rule("failures", "not checked", None, FAILED_SHARE, "nothing was attempted in the window")
    bad = share > FAILED_SHARE
    return Rule("failures", "fail" if bad else "pass", share, FAILED_SHARE, "see outcomes" if bad else "")


def _unfinished(c: Columns, inside: Bools, attempted: int) -> Rule:
    share = int((inside & c.is_outcome(Outcome.UNFINISHED)).sum()) / attempted if attempted else None
    if share is None:
        return Rule("unfinished", "not checked", None, UNFINISHED_SHARE, "nothing was attempted in the window")
    bad = share > UNFINISHED_SHARE
    hint = "a longer --drain shows whether they are slow or stuck" if bad else ""
    return Rule("unfinished", "fail" if bad else "pass", share, UNFINISHED_SHARE, hint)


def _overload(c: Columns, w: Window, stage: Mapping[str, Any]) -> tuple[Rule, Rule]:
    if stage.get("kind") == "closed":
        why = "a closed loop sends no more than comes back"
        return Rule("piling_up", "not checked", hint=why), Rule("slowing_down", "not checked", hint=why)
    entered = c.number("sent_ns")
    sent = np.sort(entered[entered < w.w1_ns])
    if len(sent) < 5:
        why = "fewer than five requests were sent"
        return Rule("piling_up", "not checked", hint=why), Rule("slowing_down", "not checked", hint=why)
    middle = (w.w0_ns + w.w1_ns) / 2
    begin = min(middle, float(sent[max(0, len(sent) - PART_REQUESTS)]))
    return _piling(c, w, begin, float(sent[-1])), _slowing(c, w, begin)


def _piling(c: Columns, w: Window, begin: float, until: float) -> Rule:
    """Arrivals minus departures over the last part, or the rise of the level in flight, whichever is greater."""
    # Up to the last arrival: a stage of so many requests ends with a drain, in which any pile melts away.
    instants = np.linspace(begin, until, INSTANTS)
    level = in_flight_at(c, w, instants)
    entered, _ = stay(c, w)
    arrivals = int(((entered >= begin) & (entered <= until)).sum())
    behind = float(level[-1] - level[0])
    trend = rising(instants, level)
    risen = trend.growth if trend is not None and trend.p < LEVEL else 0.0
    # Independent stays make the level Poisson: its difference over the part has the variance 2 L.
    chance = PILE_NOISE * math.sqrt(2 * max(1.0, float(level[: INSTANTS // 4].mean())))
    limit = max(PILE_LEAST, chance, PILE_SHARE * arrivals)
    value = max(behind, risen)
    bad = value > limit
    return Rule("piling_up", "fail" if bad else "pass", value, limit, "lower the rate" if bad else "")


def _slowing(c: Columns, w: Window, begin: float) -> Rule:
    """Sen's growth of the time to the first text, or of the whole time a token, over the last part, by its median."""
    entered, left = stay(c, w)
    chosen = np.flatnonzero(
        (entered >= begin) & (entered < w.w1_ns) & ~c.is_outcome(Outcome.CANCELLED, Outcome.NOT_SENT)
    )
    chosen = chosen[np.argsort(entered[chosen], kind="stable")]
    stuck = c.is_outcome(Outcome.UNFINISHED, Outcome.TIMEOUT)
    answered = stuck | c.is_outcome(Outcome.OK)
    found: list[tuple[bool, float]] = []
    # Per token, so that a server that shares itself out shows its slowing through answers of every length.
    tokens = np.fmax(1.0, c.streamed_tokens)
    whole = np.where(stuck, np.nan, left - entered) / tokens
    for found_ns in (c.first_content_ns - entered, whole):
        took = np.where(np.isnan(found_ns) & stuck, np.inf, found_ns)
        part = chosen[answered[chosen] & ~np.isnan(took[chosen])]
        found.append(_growth(entered[part] / NS_PER_S, took[part] / NS_PER_MS))
    value = max((share for significant, share in found if significant), default=0.0)
    bad = value > SLOWER
    return Rule("slowing_down", "fail" if bad else "pass", value, SLOWER, "lower the rate" if bad else "")


def _growth(x: Floats, y: Floats) -> tuple[bool, float]:
    """(significant, growth over the part divided by the median)."""
    trend = rising(x, y)
    if trend is None:
        return False, 0.0
    finite = y[np.isfinite(y)]
    middle = float(np.median(finite)) if len(finite) else math.inf
    # All that ended did so at once, or the growth has no finite size: any significant rise is material.
    share = trend.growth / middle if 0 < middle < math.inf and math.isfinite(trend.growth) else 1e9
    return trend.p < LEVEL, share


def _little(c: Columns, w: Window, stable: bool) -> Rule:
    found = little(c, w)
    gap = None if found is None else found.disagreement
    if found is None or gap is None or not stable or not found.long_enough:
        return Rule("littles_law", "not checked", gap, LITTLE, "needs a stable stage of twenty mean stays")
    state: State = "pass" if gap <= LITTLE else "warn"
    return Rule("littles_law", state, gap, LITTLE, "" if state == "pass" else "the level was not steady")
