"""What every step did, in rows of plain numbers.

The one idea: a decision that leaves a row can be explained and replayed. It must not change what it writes down.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from benchlab_engine.core.plan import StepPlan


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step. works: (request id, first position, tokens, is a decode step, gives a token)."""

    number: int
    start_ns: int
    end_ns: int
    works: tuple[tuple[str, int, int, bool, bool], ...]
    num_decodes: int
    num_prefill_tokens: int
    num_reread: int
    num_free_blocks: int
    num_running: int
    num_waiting: int
    preempted: tuple[str, ...]


class Journal:
    """The last `keep` steps, oldest first."""

    def __init__(self, keep: int = 10_000) -> None:
        self.rows: deque[StepRow] = deque(maxlen=keep)

    def write(self, plan: StepPlan, start_ns: int, end_ns: int, free: int, running: int, waiting: int) -> StepRow:
        """Add the row of a step that has just been settled."""
        row = StepRow(
            number=plan.number,
            start_ns=start_ns,
            end_ns=end_ns,
            works=tuple((w.request_id, w.start, len(w.token_ids), w.is_decode, w.samples) for w in plan.works),
            num_decodes=plan.num_decodes,
            num_prefill_tokens=plan.num_prefill_tokens,
            num_reread=sum(work.num_reread for work in plan.works),
            num_free_blocks=free,
            num_running=running,
            num_waiting=waiting,
            preempted=plan.preempted,
        )
        self.rows.append(row)
        return row
