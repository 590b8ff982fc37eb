"""A request's share of a step, as the value that the runner sees.

The one idea: all that a runner needs of a request is copied into its Work; nothing of the request itself goes over the
seam. It must not know the line, budgets, or who else is in the step.
"""

from __future__ import annotations

from benchlab_engine.core.plan import Work
from benchlab_engine.core.propose import NgramIndex
from benchlab_engine.core.request import Request

_NONE: frozenset[int] = frozenset()


def decode_work(request: Request, drafts: tuple[int, ...] = (), num_to_draft: int = 0) -> Work:
    """The newest token, and proposals after it. The request's blocks end with the last position of the work."""
    spec, output = request.spec, request.output
    return Work(
        spec.request_id,
        (output[-1], *drafts),
        request.computed,
        request.blocks,
        True,
        True,
        spec.sampling,
        len(output),
        len(drafts),
        num_to_draft,
        spec.end_tokens if len(output) < spec.min_new_tokens else _NONE,
        (spec.prompt, tuple(output)) if spec.sampling.needs_history else None,
    )


def prompt_work(request: Request, count: int, block_size: int) -> Work:
    """The next `count` tokens that are known and not computed: of the prompt, or of what is computed again."""
    spec, start, end = request.spec, request.computed, request.computed + count
    samples = end == request.wanted
    return Work(
        request_id=spec.request_id,
        token_ids=request.tokens(start, end),
        start=start,
        block_table=request.blocks[: -(-end // block_size)],
        samples=samples,
        is_decode=request.is_decoding,
        sampling=spec.sampling,
        output_index=len(request.output),
        banned=spec.end_tokens if len(request.output) < spec.min_new_tokens else _NONE,
        history=(spec.prompt, tuple(request.output)) if samples and spec.sampling.needs_history else None,
    )


def guess(request: Request, most: int) -> tuple[int, ...]:
    """Up to `most` proposals from the request's own text; none of them an end token that may not be drawn yet."""
    if request.grams is None:
        request.grams = NgramIndex()
    request.grams.extend(request.tokens(len(request.grams), request.wanted))
    drafts = request.grams.propose(most)
    if len(request.output) < request.spec.min_new_tokens:
        for index, token in enumerate(drafts):
            if token in request.spec.end_tokens:
                return drafts[:index]
    return drafts
