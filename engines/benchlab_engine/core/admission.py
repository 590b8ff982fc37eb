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
    PROMPT_LIMIT = "prompt_limit"  # longer than one prompt may be here
    OUTPUT_LIMIT = "output_limit"  # asks for more tokens than one answer may have here
    TOO_LONG = "too_long"  # longer than the model's context
    NEVER_FITS = "never_fits"  # more blocks than the whole pool has
    QUEUE_FULL = "queue_full"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was turned away, in words that carry the numbers. asked, limit: in the unit that they name."""

    kind: RefusalKind
    message: str
    asked: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """max_model_len: tokens of prompt and output together. queue_limit: requests beyond those that can run.

    max_prompt_tokens, max_new_tokens: of one request; 0 is no limit.
    """

    max_model_len: int
    max_seqs: int
    num_blocks: int
    block_size: int
    queue_limit: int
    max_prompt_tokens: int = 0
    max_new_tokens: int = 0

    def room(self) -> int:
        """The most tokens of prompt and output one request can ever have. The last output token is never cached."""
        return min(self.max_model_len, self.num_blocks * self.block_size + 1)


def refuse(spec: RequestSpec, limits: Limits, num_in_system: int) -> Refusal | None:
    """The reason to turn the request away, or None. num_in_system: accepted and not yet ended."""
    too_big = _too_big(spec, limits)
    if too_big is not None:
        return too_big
    most = limits.max_seqs + limits.queue_limit
    if num_in_system >= most:
        return Refusal(
            RefusalKind.QUEUE_FULL,
            f"{num_in_system} requests are in the engine, which runs {limits.max_seqs} and queues {limits.queue_limit}",
            num_in_system,
            most,
        )
    return None


def _too_big(spec: RequestSpec, limits: Limits) -> Refusal | None:
    """What no waiting would change."""
    prompt, new = len(spec.prompt), spec.max_new_tokens
    if prompt < 1 or new < 1:
        return Refusal(
            RefusalKind.EMPTY,
            "a request needs at least one prompt token and one token to generate",
            min(prompt, new),
            1,
        )
    if 0 < limits.max_prompt_tokens < prompt:
        return Refusal(
            RefusalKind.PROMPT_LIMIT,
            f"{prompt} prompt tokens are more than the {limits.max_prompt_tokens} that one request may have here",
            prompt,
            limits.max_prompt_tokens,
        )
    if 0 < limits.max_new_tokens < new:
        return Refusal(
            RefusalKind.OUTPUT_LIMIT,
            f"{new} tokens to generate are more than the {limits.max_new_tokens} that one request may have here; "
            "lower max_tokens",
            new,
            limits.max_new_tokens,
        )
    if prompt + new > limits.max_model_len:
        return Refusal(
            RefusalKind.TOO_LONG,
            f"{prompt} prompt tokens and {new} tokens to generate are more than the context of "
            f"{limits.max_model_len} tokens; shorten the prompt or lower max_tokens",
            prompt + new,
            limits.max_model_len,
        )
    blocks = -(-(prompt + new - 1) // limits.block_size)
    if blocks > limits.num_blocks:
        return Refusal(
            RefusalKind.NEVER_FITS,
            f"the request needs {blocks} KV blocks of {limits.block_size} tokens, the whole pool has "
            f"{limits.num_blocks}; shorten it or start the engine with more --kv-blocks",
            blocks,
            limits.num_blocks,
        )
    return None
