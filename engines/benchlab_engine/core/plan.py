"""What one engine step is asked to do, and what it answers: values only.

The one idea: everything between the scheduler and whatever computes (tensors, or a cost model) is in these frozen
types and one method. It must not know how a plan was decided, nor how it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. temperature 0 is greedy; top_k 0 and top_p 1 switch those filters off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Work:
    """One request's share of a step: compute token_ids at positions start, start+1, ...

    block_table: blocks that hold positions 0 .. start+len(token_ids)-1, in order. samples: the last position's logits
    give a token. output_index: how many tokens the request has produced before this one.
    """

    request_id: str
    token_ids: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    samples: bool
    is_decode: bool
    sampling: Sampling = GREEDY
    output_index: int = 0

    @property
    def num_reread(self) -> int:
        """Earlier prompt positions that a continued prefill reads again; 0 for a decode step."""
        return 0 if self.is_decode else self.start


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One iteration. released: requests that have ended since the last plan, whose runner state can go."""

    number: int
    works: tuple[Work, ...]
    released: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()

    @property
    def num_decodes(self) -> int:
        """Works that compute one output token's position."""
        return sum(work.is_decode for work in self.works)

    @property
    def num_prefill_tokens(self) -> int:
        """Positions computed by works that are not decode steps."""
        return sum(len(work.token_ids) for work in self.works if not work.is_decode)


@dataclass(frozen=True, slots=True)
class StepResult:
    """tokens: one for each work that samples, by request id. duration_ns: what the step cost."""

    tokens: Mapping[str, int] = field(default_factory=dict)
    duration_ns: int = 0


class Runner(Protocol):
    """Carries out a plan. The one seam between deciding and computing."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's works in full; return when their tokens are known."""
        ...
