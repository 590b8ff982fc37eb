"""From a model's logits to the chances that a request asked for.

The one idea: two stages in a fixed order. Edits change the logits of named tokens and hold for greedy decoding too:
logit bias, then repetition, frequency and presence penalty, then banned tokens. Filters shape the chances where a
token is drawn: temperature, then top-k, top-p, min-p. That is the order of Hugging Face transformers (processors
first, then its warpers for temperature, top-k, top-p and min-p). vLLM edits in the same order (bans and bias, then
repetition, frequency, presence) and differs in one place: its min-p comes before top-k and top-p. Min-p cuts the same
tokens before and after them, but a top-p that follows counts its mass without them. It must not know chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.core.plan import Sampling, TokenLogprobs, Work
from benchlab_engine.errors import EngineError

CHUNK = 256  # columns that are summed together; weights are padded to a multiple of it
_RUN = 32  # columns whose maximum bounds the k-th largest from below
_WIDE, _HALVINGS = 4096, 3  # from this vocabulary on, top-p looks for a closer bound before it sorts
_COLDEST, _HOTTEST = 1e-6, 1e6  # beyond these a temperature is argmax or an even draw to float32


class LogitsError(EngineError):
    """Logits from which no token can be taken. request_ids: whose they are; the step's other requests are well."""

    def __init__(self, message: str, request_ids: tuple[str, ...]) -> None:
        super().__init__(message)
        self.request_ids = request_ids


@dataclass(frozen=True, slots=True)
class Row:
    """What decides one row of logits. index: tokens the request has had before. prompt, output: only for penalties."""

    sampling: Sampling
    index: int = 0
    banned: frozenset[int] = frozenset()
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    request_id: str = ""

    @property
    def draws(self) -> bool:
        """Chance has a part in it; otherwise the likeliest token is taken."""
        return self.sampling.temperature > 0

    @property
    def ranks(self) -> bool:
        """A filter asks which tokens are the likeliest, so they have to be put in order."""
        return self.sampling.top_k > 0 or self.sampling.top_p < 1

    @property
    def edits(self) -> bool:
        """Some token's logit is changed."""
        return bool(self.banned or self.sampling.logit_bias or self.sampling.needs_history)


def rows_of(work: Work, proposals: Sequence[int]) -> list[Row]:
    """One row for each proposal and one more: a row's history holds the proposals before it."""
    prompt, output = work.history or ((), ())
    return [
        Row(
            work.sampling,
            work.output_index + place,
            work.banned,
            prompt,
            output + tuple(proposals[:place]),
            work.request_id,
        )
        for place in range(len(proposals) + 1)
    ]


def edited(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Bias, penalties and bans applied. logits [rows, vocab] float32 is left as it is; a copy only if one is needed.

    Token ids outside the vocabulary cannot be drawn, so there is nothing to edit for them.
    """
    touched = [place for place, row in enumerate(rows) if row.edits]
    if not touched:
        return logits
    logits = logits.clone()
    for place in touched:
        _edit(logits[place], rows[place])
    return logits


def _edit(values: Tensor, row: Row) -> None:
    sampling, vocab, device = row.sampling, len(values), values.device

    def ids(tokens: Iterable[int]) -> Tensor:
        found = torch.tensor(tuple(tokens), dtype=torch.int64, device=device)
        return found[(found >= 0) & (found < vocab)]

    bias = [(token, amount) for token, amount in sampling.logit_bias if 0 <= token < vocab]
    if bias:
        amounts = torch.tensor([amount for _, amount in bias], dtype=values.dtype, device=device)
        values.index_add_(0, ids(token for token, _ in bias), amounts)
    if sampling.repetition_penalty != 1:
        seen = torch.unique(ids(row.prompt + row.output))
        had = values[seen]
        penalty = sampling.repetition_penalty
        values[seen] = torch.where(had > 0, had / penalty, had * penalty)
    if sampling.frequency_penalty != 0 or sampling.presence_penalty != 0:
        given, counts = torch.unique(ids(row.output), return_counts=True)
        values[given] -= sampling.frequency_penalty * counts + sampling.presence_penalty
    if row.banned:
        values[ids(row.banned)] = -torch.inf


def best(logits: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """The largest logit of each row and its token [rows], the lowest id among equals. LogitsError where none is finite.

    A maximum over NaN is NaN and nothing exceeds infinity, so the check costs one look at each row's maximum.
    """
    tops, tokens = logits.max(dim=-1)
    bad = [place for place, top in enumerate(tops.tolist()) if not math.isfinite(top)]
    if bad:
        row, top = rows[bad[0]], float(tops[bad[0]])
        if top == -math.inf:
            cause = "no token is left: all of them are banned or have a logit of -inf"
        else:
            kind = "NaN" if math.isnan(top) else "inf"
            cause = f"the logits hold {kind}: look at the weights and the dtype (fp16 overflows where bf16 does not)"
            cause += ", or at logit_bias and the penalties" if row.edits else ""
        names = tuple(dict.fromkeys(rows[place].request_id for place in bad))
        raise LogitsError(f"request {row.request_id!r}, output token {row.index}: {cause}", names)
    return tops, tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """Chances up to a factor. values: [rows, columns] float32, 0 where cut. ids: each column's token; None: itself."""

    values: Tensor
    ids: Tensor | None


def weighed(logits: Tensor, rows: Sequence[Row], tops: Tensor) -> Weights:
    """Temperature and filters. logits: edited, [rows, vocab]; all rows draw, and all of them rank or none does."""
    width = logits.shape[-1]
    heat = _column([min(max(row.sampling.temperature, _COLDEST), _HOTTEST) for row in rows], logits)
    values = logits.new_zeros(len(rows), -(-width // CHUNK) * CHUNK)
    inside = values[:, :width]
    torch.sub(logits, tops[:, None], out=inside)
    inside.div_(heat).exp_()  # the likeliest token weighs 1
    ids = None
    if rows[0].ranks:
        values, ids = _ranked(values, width, rows)
    if any(row.sampling.min_p > 0 for row in rows):
        floor = _column([min(row.sampling.min_p, 1.0) for row in rows], logits)
        values = values.masked_fill(values < floor, 0.0)
    return Weights(values, ids)


def _ranked(values: Tensor, width: int, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Cut by top-k and top-p. Only what can survive is put in order: see the two bounds below."""
    top_k = [row.sampling.top_k if row.sampling.top_k > 0 else width for row in rows]
    top_p = [min(max(row.sampling.top_p, 0.0), 1.0) for row in rows]
    total = chunk_sums(values).sum(dim=-1, keepdim=True)
    shares = _column([2.0 if k < width else p for k, p in zip(top_k, top_p, strict=True)], total)
    bound = torch.maximum(_nucleus_bound(values, total, shares, width), _kth_bound(values, top_k))
    kept, ids = largest_first(values, bound.clamp(min=torch.finfo(values.dtype).tiny))
    rank = torch.arange(kept.shape[-1], device=values.device)[None, :]
    kept = kept.masked_fill((rank >= _column(top_k, values)) | (kept < 0), 0.0)
    reach = kept.double().cumsum(dim=-1)
    limited = _column([k < width for k in top_k], values).bool()
    mass = torch.where(limited, reach[:, -1:], total)
    before = reach - kept
    cut = (before >= _column(top_p, reach) * mass) & (_column([p < 1 for p in top_p], values) > 0) & (rank > 0)
    return kept.masked_fill(cut, 0.0), ids


def _nucleus_bound(values: Tensor, total: Tensor, shares: Tensor, width: int) -> Tensor:
    """[rows, 1]: the values of at least that have the share of the total; 0 where the share is above 1.

    Tokens below (1 - p) / vocab of the mass have less than 1 - p of it together, so the rest has p. Halving the way
    from there to the largest, in logarithms, leaves few more than have to be put in order.
    """
    low = (0.5 * (1 - shares).clamp(min=0.0) / width * total).float()
    high = torch.ones_like(low)
    if width < _WIDE or bool((shares > 1).all()):
        return low
    wanted = shares * (1 + 1e-6) * total
    for _ in range(_HALVINGS):
        middle = (low * high).sqrt()
        enough = chunk_sums(torch.where(values >= middle, values, 0.0)).sum(dim=-1, keepdim=True) >= wanted
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return low


def _kth_bound(values: Tensor, counts: Sequence[int]) -> Tensor:
    """[rows, 1]: at least counts[row] values are no smaller. The k-th largest maximum of short runs is such a one."""
    runs = values.view(len(values), -1, _RUN).amax(dim=-1)
    inside = [count if count <= runs.shape[-1] else 0 for count in counts]
    if not any(inside):
        return values.new_full((len(counts), 1), -torch.inf)
    ordered = runs.topk(max(inside), dim=-1).values
    place = torch.tensor([max(count, 1) - 1 for count in inside], device=values.device)[:, None]
    return torch.where(_column(inside, values) > 0, ordered.gather(1, place), -torch.inf)


def largest_first(values: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Values of at least bound [rows, 1] and their columns, [rows, most of a row]: largest first, ties by column.

    Shorter rows are filled up with -inf at column 0.
    """
    row, column = (values >= bound).nonzero(as_tuple=True)  # columns ascend, and the sort below is stable
    counts = torch.bincount(row, minlength=len(values))
    place = torch.arange(len(row), device=values.device) - (counts.cumsum(0) - counts)[row]
    size = (len(values), int(counts.max()))
    held, ids = values.new_full(size, -torch.inf), column.new_zeros(size)
    held[row, place], ids[row, place] = values[row, column], column
    held, order = torch.sort(held, dim=-1, descending=True, stable=True)
    return held, ids.gather(1, order)


def chunk_sums(values: Tensor) -> Tensor:
    """[rows, columns / CHUNK] float64 sums of neighbours: a float64 sum of everything costs thirty times as much."""
    return values.view(len(values), -1, CHUNK).sum(dim=-1).double()


def chances(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """The distribution that each row's token is drawn from: [rows, vocab] float32, edits and filters applied."""
    logits = edited(logits, rows)
    tops, _ = best(logits, rows)
    out = torch.zeros_like(logits)
    for chosen in groups(rows):
        part = weighed(logits[chosen], [rows[place] for place in chosen], tops[chosen])
        sums = chunk_sums(part.values) if part.ids is None else part.values.double()
        share = part.values / sums.sum(dim=-1, keepdim=True).float()
        if part.ids is None:
            out[chosen] = share[:, : logits.shape[-1]]
        else:
            out[chosen] = torch.zeros_like(logits[chosen]).scatter_add_(1, part.ids, share)
    return out


def groups(rows: Sequence[Row]) -> list[list[int]]:
    """Places of the rows that draw: those without an order to find, those with; none of them empty."""
    plain = [place for place, row in enumerate(rows) if row.draws and not row.ranks]
    ranked = [place for place, row in enumerate(rows) if row.draws and row.ranks]
    return [chosen for chosen in (plain, ranked) if chosen]


def logprobs(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
    """Of the model's own distribution. logits: unedited, [rows, vocab]; counts: how many of the likeliest to list."""
    width = logits.shape[-1]
    own = logits.log_softmax(dim=-1)
    picked = own.gather(1, torch.tensor(tokens, device=own.device)[:, None]).squeeze(1).tolist()
    if not any(counts):
        return [TokenLogprobs(chosen) for chosen in picked]
    padded = F.pad(own, (0, -width % _RUN), value=-torch.inf)
    bound = _kth_bound(padded, [min(max(count, 1), width) for count in counts])
    values, ids = largest_first(padded, bound.clamp(min=torch.finfo(own.dtype).min))
    listed = zip(picked, ids.tolist(), values.tolist(), counts, strict=True)
    return [
        TokenLogprobs(chosen, tuple((i, v) for i, v in zip(names[:count], found[:count], strict=True) if v > -math.inf))
        for chosen, names, found, count in listed
    ]


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
