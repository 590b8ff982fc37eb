"""One token from each row of logits.

The one idea: chance is one number in [0, 1) made of a request's seed, the token's index and what it is for, so equal
logits and a seed give the same token whatever else is in the batch, and after a preemption too. It must not know
requests otherwise.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from benchlab_engine.model.logits import CHUNK, Row, Weights, best, chunk_sums, edited, groups, weighed

# What a number is for. Numbers of different streams have nothing to do with each other.
DRAW, ACCEPT, REDRAW, DRAFT = 0, 1, 2, 3


def uniform(seed: int, index: int, stream: int = DRAW) -> float:
    """A number in [0, 1) that depends on nothing else."""
    named = struct.pack("<qq", seed % 2**63, index) + (struct.pack("<q", stream) if stream else b"")
    return (int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little") >> 11) / float(1 << 53)


def choose(logits: Tensor, rows: Sequence[Row], stream: int = DRAW) -> list[int]:
    """A token for each row. logits: the model's, [rows, vocab] float32, on any device. LogitsError names a bad row."""
    logits = edited(logits, rows)
    tops, tokens = best(logits, rows)
    for chosen in groups(rows):
        drawing = [rows[place] for place in chosen]
        whole = len(chosen) == len(rows)
        part = weighed(logits if whole else logits[chosen], drawing, tops if whole else tops[chosen])
        tokens[chosen] = draw(part, [uniform(row.sampling.seed, row.index, stream) for row in drawing])
    return [int(token) for token in tokens.tolist()]


def draw(weights: Weights, points: Sequence[float]) -> Tensor:
    """Tokens [rows]: where each row's running sum passes its point's share of the whole; never one of weight 0.

    A whole vocabulary is looked up in two steps, first among sums of CHUNK neighbours: a running sum of all of it in
    float64 would cost more than everything else here.
    """
    values, ids = weights.values, weights.ids
    share = torch.tensor(points, dtype=torch.float64, device=values.device)[:, None]
    if ids is not None:
        return ids.gather(1, _passed(values.double(), share)[0][:, None]).squeeze(1)
    chunk, within = _passed(chunk_sums(values), share)
    part = values.view(len(values), -1, CHUNK)[torch.arange(len(values), device=values.device), chunk]
    return chunk * CHUNK + _passed(part.double(), within)[0]


def pick(values: Tensor, point: float) -> int:
    """The same for one row of weights [vocab], its columns being the tokens."""
    share = torch.tensor([[point]], dtype=torch.float64, device=values.device)
    return int(_passed(values.double()[None], share)[0])


def _passed(values: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The column [rows], and how much of that column lies before the point, as a share [rows, 1] in [0, 1)."""
    reach = values.cumsum(dim=-1)
    total = reach[:, -1:].contiguous()
    point = share * total
    last = torch.searchsorted(reach, total)  # the last column with weight, should the point have been rounded up to it
    column = torch.minimum(torch.searchsorted(reach, point, right=True), last)
    weight = values.gather(1, column)
    inside = (point - (reach.gather(1, column) - weight)) / weight
    return column.squeeze(1), inside.clamp(0.0, 1.0 - 2.0**-53)
