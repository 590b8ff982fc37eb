"""A journal, lived through again.

The one idea: the scheduler reads no clock and draws no chance, so the same causes at the same instants must give the
same plans; the first row that differs shows where the code, the settings or the journal are not what they were. It
must not compute anything: the tokens of each step are those that were written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchlab_engine.core.config import SchedulerConfig
from benchlab_engine.core.journal import JournalError, config_of, row_entry, row_of, spec_of
from benchlab_engine.core.plan import StepPlan, StepResult
from benchlab_engine.core.request import FinishReason
from benchlab_engine.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay leaves its journal. entry: its number in the journal, from 1. what: the field that differs."""

    entry: int
    step: int
    what: str
    written: object
    found: object

    def __str__(self) -> str:
        return f"entry {self.entry}, step {self.step}: {self.what} was {self.written!r}, is now {self.found!r}"


@dataclass(frozen=True, slots=True)
class Replay:
    """num_steps: plans that were compared and found equal. difference: None if all were."""

    num_steps: int
    difference: Difference | None = None

    @property
    def equal(self) -> bool:
        """All plans were the same, step for step."""
        return self.difference is None


def replay(
    config: SchedulerConfig | None,
    entries: Iterable[Mapping[str, Any]],
    on_plan: Callable[[StepPlan], None] | None = None,
) -> Replay:
    """Drive a fresh scheduler with what came in, and compare every plan. on_plan: shown each plan of a step.

    config: None takes the journal's own. JournalError says which entry cannot be replayed.
    """
    scheduler = None if config is None else Scheduler(config)
    in_step: list[Mapping[str, Any]] = []
    num_steps = 0
    for number, entry in enumerate(entries, 1):
        try:
            kind = entry["kind"]
            if kind == "start":
                if number > 1:
                    raise JournalError("a second scheduler begins here; replay its entries apart")
                scheduler = scheduler or Scheduler(config_of(entry))
                continue
            if scheduler is None:
                raise JournalError("no start entry comes before it, and no settings were given")
            if kind == "step":
                found = _step(scheduler, entry, in_step, on_plan)
                in_step = []
                num_steps += found is None
            elif entry.get("in_step"):
                in_step.append(entry)
                found = None
            else:
                found = _happen(scheduler, entry)
        except (JournalError, KeyError, TypeError, ValueError, AttributeError) as error:
            said = error if isinstance(error, JournalError) else f"{type(error).__name__}: {error}"
            raise JournalError(f"entry {number}: {said}") from None
        if found is not None:
            what, written, now = found
            step = entry["number"] if kind == "step" else num_steps + 1
            return Replay(num_steps, Difference(number, step, what, written, now))
    return Replay(num_steps)


_Found = tuple[str, object, object]


def _happen(scheduler: Scheduler, entry: Mapping[str, Any]) -> _Found | None:
    """What came in between two steps, or while one was on."""
    kind, now_ns = entry["kind"], entry["now_ns"]
    if kind == "submit":
        refusal = scheduler.submit(spec_of(entry["spec"]), now_ns)
        found = None if refusal is None else str(refusal.kind)
        return None if found == entry["refused"] else ("refused", entry["refused"], found)
    if kind == "cancel":
        ended = scheduler.cancel(entry["request_id"], now_ns, FinishReason(entry["reason"]))
        return None if ended else ("cancel", entry["request_id"], "no such request is in the engine")
    if kind == "idle":
        plan = scheduler.plan(now_ns)
        return ("works", [], row_entry(row_of(plan, {}, 0, 0, (0, 0, 0)))["works"]) if plan.works else None
    raise JournalError(f"kind {kind!r} is not known")


def _step(
    scheduler: Scheduler,
    entry: Mapping[str, Any],
    in_step: list[Mapping[str, Any]],
    on_plan: Callable[[StepPlan], None] | None,
) -> _Found | None:
    plan = scheduler.plan(entry["start_ns"])
    if on_plan is not None:
        on_plan(plan)
    tokens = {name: tuple(ids) for name, ids in entry["tokens"].items()}
    planned = row_entry(row_of(plan, tokens, entry["start_ns"], entry["end_ns"], (0, 0, 0)))
    after = ("num_free_blocks", "num_running", "num_waiting")
    for what, found in planned.items():
        if what not in after and entry[what] != found:
            return what, entry[what], found
    for each in in_step:
        different = _happen(scheduler, each)
        if different is not None:
            return different
    if entry["error"] is None:
        scheduler.settle(plan, StepResult(tokens), entry["end_ns"])
    else:
        failed = entry.get("failed")
        scheduler.fail(plan, entry["end_ns"], None if failed is None else frozenset(failed))
    for what, count in zip(after, scheduler.counts(), strict=True):
        if entry[what] != count:
            return what, entry[what], count
    scheduler.take_news()
    return None
