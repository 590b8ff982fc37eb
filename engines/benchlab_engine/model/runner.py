"""The Runner over a real decoder.

The one idea: a plan becomes a batch, the batch logits, the logits tokens; a draft model, where there is one, proposes
first, and its proposals join the batch. It keeps nothing about a request: all it needs is in the plan and in the
caches. It must not know how plans are made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from benchlab_engine.core.plan import GREEDY, Sampling, StepPlan, StepResult, Work
from benchlab_engine.errors import EngineError
from benchlab_engine.model.batch import Batch, make_batch
from benchlab_engine.model.decoder import Decoder
from benchlab_engine.model.draft import Draft
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.logits import LogitsError
from benchlab_engine.model.memory import is_shortage
from benchlab_engine.model.verify import Proposal, answer

_MIXED = Sampling(temperature=1.0, top_p=0.9)  # what a warm-up draws with, in turn with greedy


class Forward(Protocol):
    """What computes a batch: the decoder, or its captured graphs."""

    def forward(self, batch: Batch, kv: PagedKv) -> Tensor:
        """Logits [len(batch.last), vocab] float32."""
        ...


class TorchRunner:
    """A decoder with its paged cache; graphs: what runs it faster; draft: what proposes tokens."""

    def __init__(
        self, decoder: Decoder, kv: PagedKv, *, graphs: Forward | None = None, draft: Draft | None = None
    ) -> None:
        if draft is not None:
            draft.check(decoder, kv)
        self.decoder = decoder
        self.kv = kv
        self.draft = draft
        self._model: Forward = graphs or decoder

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's positions and draw its tokens.

        EngineError names the phase that failed: block copy, draft, forward, sampling; growth where it was for want of
        memory, for the largest steps had enough at the start.
        """
        try:
            return self._step(plan)
        except MemoryError as error:
            advice = "lower --max-batched-tokens, --max-seqs or --kv-blocks"
            raise EngineError(f"growth: no memory: {advice} ({error})") from error

    def _step(self, plan: StepPlan) -> StepResult:
        """MemoryError where memory is short, whoever lacks it, so that a warm-up can say its own phase."""
        start = time.perf_counter_ns()
        works, draft = plan.works, self.draft
        proposals = {work.request_id: Proposal(work.token_ids[-work.num_drafts :]) for work in works if work.num_drafts}
        with torch.inference_mode():
            if plan.copies:
                with _phase("block copy"):
                    self.kv.copy(plan.copies)
                    if draft is not None:
                        draft.kv.copy(plan.copies)
            if draft is not None:
                with _phase("draft"):
                    drafted = draft.propose(works)
                works = tuple(_with_proposal(work, drafted.get(work.request_id)) for work in works)
                proposals |= drafted
            with _phase("forward"):
                batch = make_batch([_watched(work) for work in works], self.kv.block_size)
                logits = self._model.forward(batch, self.kv)
            try:
                with _phase("sampling"):
                    found = answer(logits, batch.sampling, batch.num_rows, proposals)
            except LogitsError:
                self._wipe(plan.works)
                raise
            if draft is not None:
                with _phase("draft"):
                    draft.follow(plan.works, drafted, found.tokens)
        tokens = {work.request_id: found.tokens[work.request_id] for work in works if work.samples}
        return StepResult(tokens, time.perf_counter_ns() - start, found.logprobs)

    def warm_up(self, max_seqs: int = 1, max_batched_tokens: int = 0, *, context: int = 0, num_drafts: int = 0) -> None:
        """Run the largest steps, so that no request pays for first touches and peak memory can be seen beforehand.

        One chunk of max_batched_tokens (0: a block's less one), then a decode step of max_seqs sequences of context
        positions each (0: an even share of the pool) with num_drafts proposals each. Both are cut to what the pool and
        the model hold. It overwrites blocks, so it is for the time before the first request. MemoryError where they do
        not fit.
        """
        size = self.kv.block_size
        slots = self.kv.num_blocks * size
        limit = min(slots, self.decoder.config.max_positions)
        count = min(max_batched_tokens or max(1, size - 1), limit)
        self._run([Work("warm-up", (0,) * count, 0, _first_blocks(count, size), True, False)])
        length = max(1, min(context or slots // max_seqs, limit))
        drafts = min(num_drafts, length - 1)
        given, to_draft = (0, drafts) if self.draft else (drafts, 0)
        step = Work(
            "",
            (0,) * (1 + given),
            length - 1 - drafts,
            _first_blocks(length, size),
            True,
            True,
            num_drafts=given,
            num_to_draft=to_draft,
        )
        samplings = [GREEDY, _MIXED]
        self._run(
            [replace(step, request_id=f"warm-up {place}", sampling=samplings[place % 2]) for place in range(max_seqs)]
        )

    def _wipe(self, works: Sequence[Work]) -> None:
        """Clear the positions of a step whose logits are no numbers.

        Attention gives padding the weight 0, but 0 times NaN is NaN: whoever gets these blocks next would fail too.
        """
        whole = [replace(work, token_ids=work.token_ids + (0,) * work.num_to_draft, num_drafts=0) for work in works]
        slots = make_batch(whole, self.kv.block_size).slots
        for kv in (self.kv, self.draft.kv) if self.draft else (self.kv,):
            nothing = torch.zeros(len(slots), *kv.rows.shape[2:], dtype=kv.dtype, device=kv.device)
            for layer in range(len(kv.rows)):
                kv.write(layer, slots.to(kv.device), nothing)

    def _run(self, works: Sequence[Work]) -> None:
        self._step(StepPlan(0, tuple(works)))


def _first_blocks(positions: int, size: int) -> tuple[int, ...]:
    return tuple(range(-(-positions // size)))


def _watched(work: Work) -> Work:
    """A chunk that gives no token has its last logits looked at all the same: NaN must not get into shared blocks."""
    if work.samples:
        return work
    return replace(work, samples=True, sampling=GREEDY, banned=frozenset(), history=None)


def _with_proposal(work: Work, proposal: Proposal | None) -> Work:
    if proposal is None:
        return work
    tokens = proposal.tokens
    return replace(work, token_ids=work.token_ids + tokens, num_drafts=len(tokens), num_to_draft=0)


@contextmanager
def _phase(name: str) -> Iterator[None]:
    """Put the phase's name before what went wrong in it."""
    try:
        yield
    except LogitsError as error:
        raise LogitsError(f"{name}: {error}", error.request_ids) from None
    except EngineError as error:
        raise EngineError(f"{name}: {error}", error.code) from error
    except Exception as error:
        if is_shortage(error):
            raise MemoryError(f"{name}: {str(error).strip() or type(error).__name__}".splitlines()[0]) from error
        raise EngineError(f"{name}: {type(error).__name__}: {error}") from error
