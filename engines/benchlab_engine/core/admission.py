"""Whether a request may join the line at all.

The one idea: what can never be served, or not in bounded time, is refused at once and with its numbers, never queued.
It must not know the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from benchlab_engine.core.request import RequestSpec


class RefusalKind(StrEnum):
    """What stands in the way."""

    EMPTY = "empty"
    TOO_LONG = "too_long"  # longer than the model's context
    NEVER_FITS = "never_fits"  # more blocks than the whole pool has
    QUEUE_FULL = "queue_full"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was turned away, in words that carry the numbers."""

    kind: RefusalKind
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    """max_model_len: tokens of prompt and output together. queue_limit: requests beyond those that can run."""

    max_model_len: int
    max_seqs: int
    num_blocks: int
    block_size: int
    queue_limit: int

    def room(self) -> int:
        """The most tokens of prompt and output one request can ever have. The last output token is never cached."""
        return min(self.max_model_len, self.num_blocks * self.block_size + 1)


def refuse(spec: RequestSpec, limits: Limits, num_in_system: int) -> Refusal | None:
    """The reason to turn the request away, or None. num_in_system: accepted and not yet ended."""
    prompt, new = len(spec.prompt), spec.max_new_tokens
    if prompt < 1 or new < 1:
        return Refusal(RefusalKind.EMPTY, "a request needs at least one prompt token and one token to generate")
    if prompt + new > limits.max_model_len:
        return Refusal(
            RefusalKind.TOO_LONG,
            f"{prompt} prompt tokens and {new} tokens to generate are more than the context of "
            f"{limits.max_model_len} tokens; shorten the prompt or lower max_tokens",
        )
    blocks = -(-(prompt + new - 1) // limits.block_size)
    if blocks > limits.num_blocks:
        return Refusal(
            RefusalKind.NEVER_FITS,
            f"the request needs {blocks} KV blocks of {limits.block_size} tokens, the whole pool has "
            f"{limits.num_blocks}; shorten it or start the engine with more --kv-blocks",
        )
    if num_in_system >= limits.max_seqs + limits.queue_limit:
        return Refusal(
            RefusalKind.QUEUE_FULL,
            f"{num_in_system} requests are in the engine, which runs {limits.max_seqs} and queues {limits.queue_limit}",
        )
    return None
