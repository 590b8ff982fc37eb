"""The engine's spine: plan, execute, settle, on one screen.

The one idea: a step is three calls, and everything else hangs off them. What comes in passes here too, so that the
journal sees every cause. It must not know where requests come from, what computes them, or which clock it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchlab_engine.core.admission import Refusal
from benchlab_engine.core.journal import Journal, StepRow, row_of
from benchlab_engine.core.plan import Runner, StepPlan
from benchlab_engine.core.request import FinishReason, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Emission, Scheduler


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step brought. row: None when there was nothing to compute. error: the step failed with this."""

    emissions: list[Emission]
    row: StepRow | None = None
    error: str | None = None


class Engine:
    """A scheduler, a runner, a clock (monotonic ns) and a journal. All calls belong to one thread."""

    def __init__(
        self, scheduler: Scheduler, runner: Runner, clock: Callable[[], int], journal: Journal | None = None
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self.journal = journal or Journal()
        self.journal.start(scheduler.config)
        self._in_step = False

    def submit(self, spec: RequestSpec, now_ns: int, times: RequestTimes | None = None) -> Refusal | None:
        """Let a request join the line, or say why not. times: where the request's times are to be written."""
        refusal = self.scheduler.submit(spec, now_ns, times)
        self.journal.submit(spec, now_ns, None if refusal is None else str(refusal.kind), self._in_step)
        return refusal

    def cancel(self, request_id: str, now_ns: int, reason: FinishReason = FinishReason.CANCELLED) -> bool:
        """End a request wherever it stands; its blocks are free on return. False: it has ended already."""
        ended = self.scheduler.cancel(request_id, now_ns, reason)
        if ended:
            self.journal.cancel(request_id, now_ns, reason, self._in_step)
        return ended

    def step(self) -> StepOutcome:
        """One iteration of the whole engine."""
        scheduler, start_ns = self.scheduler, self.clock()
        plan = scheduler.plan(start_ns)
        if not plan.works:
            news = scheduler.take_news()
            if news:
                self.journal.idle(start_ns)
            return StepOutcome(news)
        self._in_step = True
        try:
            result = self.runner.execute(plan)
        except Exception as error:  # a failed step ends its own requests, never the engine
            end_ns, said = self.clock(), f"{type(error).__name__}: {error}"
            failed = _to_blame(error, plan)
            scheduler.fail(plan, end_ns, failed)
            self._write(plan, {}, start_ns, end_ns, said, failed)
            return StepOutcome(scheduler.take_news(), None, said)
        finally:
            self._in_step = False
        end_ns = self.clock()
        emissions = scheduler.settle(plan, result, end_ns) + scheduler.take_news()
        return StepOutcome(emissions, self._write(plan, result.tokens, start_ns, end_ns))

    def _write(
        self,
        plan: StepPlan,
        tokens: Mapping[str, tuple[int, ...]],
        start_ns: int,
        end_ns: int,
        error: str | None = None,
        failed: Sequence[str] | None = None,
    ) -> StepRow:
        row = row_of(plan, tokens, start_ns, end_ns, self.scheduler.counts())
        self.journal.step(row, tokens, error, failed)
        return row


def _to_blame(error: Exception, plan: StepPlan) -> tuple[str, ...] | None:
    """The requests of the plan that the error names in `request_ids`; None, which is all, where it names none of them.

    A runner that names some has made the plan's copies, and lets the others' works be given to it again.
    """
    named = getattr(error, "request_ids", None)
    if not isinstance(named, tuple | list | set | frozenset):
        return None
    # A step that fails and ends nobody would be planned again for ever.
    return tuple(work.request_id for work in plan.works if work.request_id in named) or None
