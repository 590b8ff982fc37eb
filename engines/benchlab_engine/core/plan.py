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
    """How the next token is drawn. temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 switch those filters off.

    presence_penalty, frequency_penalty: taken from the logits of tokens in the output, once and by count.
    repetition_penalty: divides positive and multiplies negative logits of tokens in prompt and output; 1 is none.
    logit_bias: (token, added to its logit). logprobs: None is none; k asks for the token's own and the k likeliest's.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    @property
    def needs_history(self) -> bool:
        """The tokens so far change the next one's chances beyond the model's own."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0 or self.repetition_penalty != 1


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of chances, of the model's own distribution (before temperature, filters and penalties).

    chosen: of the token that was given. top: (token, logprob) of the likeliest, best first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One request's share of a step: compute token_ids at positions start, start+1, ...

    block_table: blocks that hold positions 0 .. start+len(token_ids)+num_to_draft-1, in order. samples: the last
    position's logits give a token. output_index: how many tokens the request has produced before this one.

    Speculation (decode works only). num_drafts: the last so many of token_ids are proposals, not yet part of the
    answer; the result then holds 1 to num_drafts+1 tokens. num_to_draft: the runner may propose so many itself, and
    the result holds 1 to num_to_draft+1 tokens. A work has one or the other.

    banned: tokens that must not be drawn (end tokens before min_new_tokens). history: (prompt, output so far), only
    where sampling.needs_history.
    """

    request_id: str
    token_ids: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    samples: bool
    is_decode: bool
    sampling: Sampling = GREEDY
    output_index: int = 0
    num_drafts: int = 0
    num_to_draft: int = 0
    banned: frozenset[int] = frozenset()
    history: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def num_reread(self) -> int:
        """Earlier prompt positions that a continued prefill reads again; 0 for a decode step."""
        return 0 if self.is_decode else self.start


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One iteration. released: requests that have ended since the last plan, whose runner state can go.

    copies: (from, to) blocks to be copied whole before anything is computed: a shared block is about to be written.
    """

    number: int
    works: tuple[Work, ...]
    released: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()

    @property
    def num_decodes(self) -> int:
        """Works that are decode steps, whether or not they carry proposals."""
        return sum(work.is_decode for work in self.works)

    @property
    def num_prefill_tokens(self) -> int:
        """Positions computed by works that are not decode steps."""
        return sum(len(work.token_ids) for work in self.works if not work.is_decode)


@dataclass(frozen=True, slots=True)
class StepResult:
    """tokens: of each work that samples, by request id: one, or more where proposals were accepted.

    duration_ns: what the step cost. logprobs: for those works that asked, one for each token.
    """

    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    duration_ns: int = 0
    logprobs: Mapping[str, tuple[TokenLogprobs, ...]] = field(default_factory=dict)


class Runner(Protocol):
    """Carries out a plan. The one seam between deciding and computing."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's works in full; return when their tokens are known.

        An exception fails the step. If it has `request_ids` that the plan knows, only those requests end; the copies
        have then been made, and the other works come again.
        """
        ...
