"""The engine's spine: plan, execute, settle, on one screen.

The one idea: a step is three calls, and everything else hangs off them. It must not know where requests come from,
what computes them, or which clock it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchlab_engine.core.admission import Refusal
from benchlab_engine.core.journal import Journal, StepRow
from benchlab_engine.core.plan import Runner
from benchlab_engine.core.request import FinishReason, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Emission, Scheduler


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step brought. row: None when there was nothing to compute. error: the step failed with this."""

    emissions: list[Emission]
    row: StepRow | None = None
    error: str | None = None


class Engine:
    """A scheduler, a runner, a clock (monotonic ns) and a journal."""

    def __init__(
        self, scheduler: Scheduler, runner: Runner, clock: Callable[[], int], journal: Journal | None = None
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self.journal = journal or Journal()

    def submit(self, spec: RequestSpec, now_ns: int, times: RequestTimes | None = None) -> Refusal | None:
        """Let a request join the line, or say why not. times: where the request's times are to be written."""
        return self.scheduler.submit(spec, now_ns, times)

    def cancel(self, request_id: str, now_ns: int, reason: FinishReason = FinishReason.CANCELLED) -> bool:
        """End a request wherever it stands; its blocks are free on return. False: it has ended already."""
        return self.scheduler.cancel(request_id, now_ns, reason)

    def step(self) -> StepOutcome:
        """One iteration of the whole engine."""
        scheduler, start_ns = self.scheduler, self.clock()
        plan = scheduler.plan(start_ns)
        if not plan.works:
            return StepOutcome(scheduler.take_news())
        try:
            result = self.runner.execute(plan)
        except Exception as error:  # a failed step ends its own requests, never the engine
            scheduler.fail(plan, self.clock())
            return StepOutcome(scheduler.take_news(), None, f"{type(error).__name__}: {error}")
        end_ns = self.clock()
        emissions = scheduler.settle(plan, result, end_ns) + scheduler.take_news()
        free, running, waiting = scheduler.pool.num_free, len(scheduler.running), len(scheduler.waiting)
        return StepOutcome(emissions, self.journal.write(plan, start_ns, end_ns, free, running, waiting))
