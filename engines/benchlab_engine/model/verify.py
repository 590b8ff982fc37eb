"""How many proposed tokens stand, and what comes after them.

The one idea: the answer has the law of plain sampling from the target, whatever proposed. With chances q_i of the
proposals known (a draft model's), proposal x_i stands with chance min(1, p_i(x_i) / q_i(x_i)), left to right; the first
that falls is replaced by a draw from max(p_i - q_i, 0), normalized; if all stand, the target gives one token more
(Leviathan et al., ICML 2023; Chen et al. 2023). p_i and q_i are what each would draw from: after penalties, bans,
temperature and filters, with the proposals before i in the history.

A proposal without chances (an n-gram's, q a point mass; or greedy decoding, p a point mass) needs no second number:
the target's token is drawn as it would be without speculation, and the proposal stands while it is that token. Its
chance to stand is p(x), and a token that differs has the law p without x, normalized: the same rule. So with n-grams a
seed gives the same tokens as without speculation. With a draft model and a temperature the tokens of a seed may depend
on where the borders between steps fell, their law does not. It must not know caches or who proposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchlab_engine.core.plan import TokenLogprobs, Work
from benchlab_engine.model.logits import Row, chances, logprobs, rows_of
from benchlab_engine.model.sampler import ACCEPT, DRAW, REDRAW, choose, pick, uniform


@dataclass(frozen=True, slots=True)
class Proposal:
    """tokens: proposed one after another. chances: what each was drawn from, [len(tokens), vocab]; None: a point."""

    tokens: tuple[int, ...]
    chances: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Of each work by request id: its tokens, and their log-probabilities where asked for."""

    tokens: dict[str, tuple[int, ...]]
    logprobs: dict[str, tuple[TokenLogprobs, ...]]


def count_standing(target: Sequence[float], draft: Sequence[float], points: Sequence[float]) -> int:
    """target, draft: p_i(x_i) and q_i(x_i) of the proposals; points: a number in [0, 1) for each."""
    for place, (p, q, point) in enumerate(zip(target, draft, points, strict=True)):
        if not (p >= q or point * q < p):
            return place
    return len(points)


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """max(p - q, 0), [vocab], not normalized. Where rounding leaves nothing of it, p and q are equal: p."""
    left = (target - draft).clamp(min=0.0)
    return left if bool(left.any()) else target


def verify(target: Tensor, draft: Tensor, proposals: Sequence[int], seed: int, index: int) -> tuple[int, ...]:
    """The tokens that come of proposals whose chances are known: 1 to len(proposals) + 1.

    target: [len(proposals) + 1, vocab], draft: [len(proposals), vocab]; both sum to 1 in each row. index: of the first.
    """
    count = len(proposals)
    column = torch.tensor(proposals, dtype=torch.int64, device=target.device)[:, None]
    of_target = target[:count].gather(1, column).squeeze(1).tolist()
    of_draft = draft.gather(1, column).squeeze(1).tolist()
    standing = count_standing(of_target, of_draft, [uniform(seed, index + place, ACCEPT) for place in range(count)])
    if standing == count:
        last = pick(target[count], uniform(seed, index + count, DRAW))
    else:
        last = pick(residual(target[standing], draft[standing]), uniform(seed, index + standing, REDRAW))
    return (*proposals[:standing], last)


def agreeing(tokens: Sequence[int], proposals: Sequence[int]) -> tuple[int, ...]:
    """The target's own tokens as far as they were computed from the right history: up to the first that differs."""
    for place, proposal in enumerate(proposals):
        if tokens[place] != proposal:
            return tuple(tokens[: place + 1])
    return tuple(tokens)


def answer(
    logits: Tensor, works: Sequence[Work], num_rows: Sequence[int], proposals: Mapping[str, Proposal]
) -> Answers:
    """Tokens of a step. logits: [sum(num_rows), vocab] float32, the model's own, works one after another.

    proposals: by request id, of every work that has more than one row.
    """
    starts: dict[str, int] = {}
    end = 0
    for work, count in zip(works, num_rows, strict=True):
        starts[work.request_id] = end
        end += count
        proposed = len(proposals.get(work.request_id, _NONE).tokens)
        if proposed + 1 != count:
            raise ValueError(
                f"request {work.request_id!r}: {proposed} proposals, but logits of {count} positions, not one more"
            )
    parts = [(work, proposals.get(work.request_id, _NONE)) for work in works]
    tokens: dict[str, tuple[int, ...]] = {}
    own = [(work, proposal) for work, proposal in parts if proposal.chances is None]
    if own:
        drawn = iter(choose(*_rows(logits, own, starts)))
        for work, proposal in own:
            tokens[work.request_id] = agreeing([next(drawn) for _ in (0, *proposal.tokens)], proposal.tokens)
    judged = [(work, proposal) for work, proposal in parts if proposal.chances is not None]
    if judged:
        target, start = chances(*_rows(logits, judged, starts)), 0
        for work, proposal in judged:
            assert proposal.chances is not None
            end = start + len(proposal.tokens) + 1
            seed, index = work.sampling.seed, work.output_index
            tokens[work.request_id] = verify(target[start:end], proposal.chances, proposal.tokens, seed, index)
            start = end
    return Answers(tokens, _logprobs(logits, works, starts, tokens))


def _rows(
    logits: Tensor, parts: Sequence[tuple[Work, Proposal]], starts: Mapping[str, int]
) -> tuple[Tensor, list[Row]]:
    """The logits of these works and what decides each of their rows."""
    rows = [row for work, proposal in parts for row in rows_of(work, proposal.tokens)]
    if len(rows) == len(logits):
        return logits, rows
    places = [starts[work.request_id] + place for work, each in parts for place in range(len(each.tokens) + 1)]
    return logits[places], rows


def _logprobs(
    logits: Tensor, works: Sequence[Work], starts: Mapping[str, int], tokens: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[TokenLogprobs, ...]]:
    asked = [(work.request_id, work.sampling.logprobs) for work in works if work.sampling.logprobs is not None]
    places = [starts[name] + place for name, _ in asked for place in range(len(tokens[name]))]
    if not places:
        return {}
    given = [token for name, _ in asked for token in tokens[name]]
    counts = [count for name, count in asked for _ in tokens[name]]
    found = iter(logprobs(logits[places], given, counts))
    return {name: tuple(next(found) for _ in tokens[name]) for name, _ in asked}


_NONE = Proposal(())
