"""How a scheduler is set up.

The one idea: every choice is one frozen value, checked once, so that a journal can carry it and a replay start from
it. It must not know what is done with the choices.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchlab_engine.core.admission import Limits

POLICIES = ("continuous", "static", "dynamic")
SPECULATE = ("none", "ngram", "runner")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """max_batched_tokens: of one step. max_prefill_tokens: of those, at most so many of prompts (0: no own limit).

    policy: continuous admits whenever there is a slot; static only into an empty batch; dynamic the same, once the
    batch can be filled or its first in line has waited batch_wait_ns. model_id, kv_format: keep the prefixes of unlike
    models and caches apart. growth_reserve: blocks that an admission leaves free for those that run already, so that
    their growth need not preempt. max_prompt_tokens, max_new_tokens: of one request (0: no limit).

    age_ns: so much waiting is worth one step of priority, so that nothing starves (0: no ageing, and low priorities
    may starve). fair_share: the tenant that has been served the fewest tokens goes first.

    speculate: "ngram" proposes up to num_drafts tokens from the request's own text, "runner" lets the runner propose
    so many itself.
    """

    max_seqs: int = 16
    max_batched_tokens: int = 512
    max_prefill_tokens: int = 0
    block_size: int = 16
    num_blocks: int = 1024
    max_model_len: int = 8192
    queue_limit: int = 256
    policy: str = "continuous"
    prefix_cache: bool = True
    batch_wait_ns: int = 50_000_000
    model_id: str = ""
    kv_format: str = ""
    growth_reserve: int = 0
    max_prompt_tokens: int = 0
    max_new_tokens: int = 0
    age_ns: int = 1_000_000_000
    fair_share: bool = False
    speculate: str = "none"
    num_drafts: int = 0

    def limits(self) -> Limits:
        """What admission needs to know of this."""
        return Limits(
            max_model_len=self.max_model_len,
            max_seqs=self.max_seqs,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            queue_limit=self.queue_limit,
            max_prompt_tokens=self.max_prompt_tokens,
            max_new_tokens=self.max_new_tokens,
        )

    def check(self) -> None:
        """ValueError that names the first setting that cannot work, and what could."""
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r} is not one of {', '.join(POLICIES)}")
        if self.speculate not in SPECULATE:
            raise ValueError(f"speculate {self.speculate!r} is not one of {', '.join(SPECULATE)}")
        if self.max_seqs < 1:
            raise ValueError(f"max_seqs {self.max_seqs}: an engine runs at least one sequence")
        if self.max_batched_tokens < self.max_seqs:
            raise ValueError(
                f"max_batched_tokens {self.max_batched_tokens} is below max_seqs {self.max_seqs}: "
                "a step could not hold one token of each running request"
            )
        if self.speculate != "none" and self.num_drafts < 1:
            raise ValueError(f"speculate {self.speculate} needs num_drafts of at least 1, not {self.num_drafts}")
        names = ("max_prefill_tokens", "queue_limit", "batch_wait_ns", "growth_reserve", "max_prompt_tokens")
        for name in (*names, "max_new_tokens", "age_ns", "num_drafts"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)} is below zero")
