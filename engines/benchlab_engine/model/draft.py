"""A smaller model that proposes what the larger one verifies.

The one idea: the draft model computes every position that the target computes, into a cache of its own under the same
block table. So whatever the scheduler does with blocks (prefix hits, copies, preemption) holds for both, and nothing
about a request needs to be remembered between steps. It proposes with the request's own sampling, from a stream of
chance of its own. It must not know how proposals are judged.

When all proposals of a work stand, the last of them has been proposed but never computed by the draft model. One more
forward pass, of those works only, fills its position. Feeding two tokens at the next step instead would cost a row and
no pass, but needs the last token but one, which a plan does not hold, or a memory of how the step before went, which a
preemption or a cancellation would make wrong. A pass of the draft model is the cheap one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from benchlab_engine.core.plan import Work
from benchlab_engine.errors import EngineError
from benchlab_engine.model.batch import Batch, make_batch
from benchlab_engine.model.decoder import Decoder
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.logits import chances, rows_of
from benchlab_engine.model.sampler import DRAFT, choose, pick, uniform
from benchlab_engine.model.verify import Proposal


class Draft:
    """A decoder and its cache, which has the target's number of blocks and block size."""

    def __init__(self, decoder: Decoder, kv: PagedKv) -> None:
        self.decoder = decoder
        self.kv = kv

    def check(self, decoder: Decoder, kv: PagedKv) -> None:
        """EngineError, with the sizes, unless it can propose for that target and follow its block tables."""
        own, other = self.decoder.config.vocab_size, decoder.config.vocab_size
        if own != other:
            raise EngineError(
                f"the draft model has a vocabulary of {own} tokens, the model one of {other}: proposals need the same "
                "tokens; take a draft model of the same family"
            )
        if self.kv.block_size != kv.block_size:
            raise EngineError(f"the draft's cache has blocks of {self.kv.block_size} positions, not {kv.block_size}")
        if self.kv.num_blocks != kv.num_blocks:
            raise EngineError(f"the draft's cache has {self.kv.num_blocks} blocks, the model's {kv.num_blocks}")

    def propose(self, works: Sequence[Work]) -> dict[str, Proposal]:
        """Compute the works' positions; num_to_draft tokens for each work that wants them."""
        works = [work for work in works if self._reaches(work)]
        tokens: dict[str, list[int]] = {work.request_id: [] for work in works if work.num_to_draft}
        drawn_from: dict[str, list[Tensor]] = {name: [] for name in tokens}
        step = [replace(work, samples=work.num_to_draft > 0, num_drafts=0) for work in works]
        while step:
            batch = make_batch(step, self.kv.block_size)
            self._draw(self.decoder.forward(batch, self.kv), batch, tokens, drawn_from)
            step = [
                _next(work, tokens[work.request_id])
                for work in works
                if work.num_to_draft and len(tokens[work.request_id]) < work.num_to_draft
            ]
        return {
            name: Proposal(tuple(proposed), torch.stack(drawn_from[name]) if drawn_from[name] else None)
            for name, proposed in tokens.items()
        }

    def follow(
        self, works: Sequence[Work], proposals: Mapping[str, Proposal], tokens: Mapping[str, Sequence[int]]
    ) -> None:
        """Compute the last proposal's position where all of them stood."""
        stood = [
            _next(work, list(proposals[work.request_id].tokens), samples=False)
            for work in works
            if work.request_id in proposals
            and len(tokens[work.request_id]) > len(proposals[work.request_id].tokens) > 0
        ]
        if stood:
            self.decoder.forward(make_batch(stood, self.kv.block_size), self.kv)

    def _reaches(self, work: Work) -> bool:
        """A sequence beyond the draft model's positions goes on without it, for good: positions only grow."""
        return work.start + len(work.token_ids) + work.num_to_draft <= self.decoder.config.max_positions

    def _draw(
        self, logits: Tensor, batch: Batch, tokens: dict[str, list[int]], drawn_from: dict[str, list[Tensor]]
    ) -> None:
        rows = [rows_of(work, tokens[work.request_id])[-1] for work in batch.sampling]
        logits = logits.nan_to_num()  # a broken draft model costs acceptance, never a request
        drawing = [place for place, row in enumerate(rows) if row.draws]
        greedy = [place for place, row in enumerate(rows) if not row.draws]
        if greedy:
            for place, token in zip(greedy, choose(logits[greedy], [rows[place] for place in greedy]), strict=True):
                tokens[rows[place].request_id].append(token)
        if drawing:
            for place, share in zip(drawing, chances(logits[drawing], [rows[place] for place in drawing]), strict=True):
                row = rows[place]
                tokens[row.request_id].append(pick(share, uniform(row.sampling.seed, row.index, DRAFT)))
                drawn_from[row.request_id].append(share)


def _next(work: Work, proposed: Sequence[int], samples: bool = True) -> Work:
    """The newest proposal as a decode step of the draft model."""
    end = work.start + len(work.token_ids)
    return replace(work, token_ids=(proposed[-1],), start=end + len(proposed) - 1, samples=samples, num_drafts=0)
