"""The Runner over a real decoder.

The one idea: a plan becomes a batch, the batch logits, the logits tokens. It keeps nothing about a request: all it
needs is in the plan and in the cache. It must not know how plans are made.
"""

from __future__ import annotations

import time

import torch

from benchlab_engine.core.plan import GREEDY, StepPlan, StepResult, Work
from benchlab_engine.model.batch import make_batch
from benchlab_engine.model.decoder import Decoder
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.sampler import sample


class TorchRunner:
    """A decoder with its paged cache."""

    def __init__(self, decoder: Decoder, kv: PagedKv) -> None:
        self.decoder = decoder
        self.kv = kv

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's positions and draw its tokens."""
        start = time.perf_counter_ns()
        with torch.inference_mode():
            batch = make_batch(plan.works, self.kv.block_size)
            logits = self.decoder.forward(batch, self.kv)
            samplings = [work.sampling for work in batch.sampling]
            tokens = sample(logits, samplings, [work.output_index for work in batch.sampling])
        names = [work.request_id for work in batch.sampling]
        return StepResult(
            {name: (token,) for name, token in zip(names, tokens, strict=True)}, time.perf_counter_ns() - start
        )

    def warm_up(self) -> None:
        """Run one chunk and one step into block 0, so that the first request does not pay for first touches."""
        size = self.kv.block_size
        for start, count in ((0, max(1, size - 1)), (max(0, size - 1), 1)):
            work = Work("warm-up", (0,) * count, start, (0,), True, count == 1, GREEDY)
            self.execute(StepPlan(0, (work,)))
