"""One token from each row of logits.

The one idea: chance is one number in [0, 1) made of a request's seed and the token's index, so equal logits and a seed
give the same token whatever else is in the batch, and after a preemption too. It must not know requests otherwise.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from benchlab_engine.core.plan import Sampling


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) that depends on nothing else."""
    digest = hashlib.blake2b(struct.pack("<qq", seed % 2**63, index), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def sample(logits: Tensor, samplings: Sequence[Sampling], indices: Sequence[int]) -> list[int]:
    """logits: [rows, vocab] float32. indices: how many tokens each request has had before."""
    tokens = logits.argmax(dim=-1)
    drawn = [row for row, sampling in enumerate(samplings) if sampling.temperature > 0]
    if drawn:
        chosen = [samplings[row] for row in drawn]
        points = [uniform(samplings[row].seed, indices[row]) for row in drawn]
        tokens[drawn] = _draw(logits[drawn], chosen, points)
    return [int(token) for token in tokens.tolist()]


def _draw(logits: Tensor, samplings: Sequence[Sampling], points: Sequence[float]) -> Tensor:
    """Sort, cut by top-k and top-p, and look the point up in what is left."""
    heat = torch.tensor([sampling.temperature for sampling in samplings])[:, None]
    ordered, names = (logits / heat).sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1])[None, :]
    top_k = torch.tensor([sampling.top_k or logits.shape[-1] for sampling in samplings])[:, None]
    chances = ordered.masked_fill(rank >= top_k, -torch.inf).double().softmax(dim=-1)
    top_p = torch.tensor([sampling.top_p for sampling in samplings], dtype=torch.float64)[:, None]
    before = chances.cumsum(dim=-1) - chances
    chances = chances.masked_fill((before >= top_p) & (rank > 0), 0.0)
    reach = chances.cumsum(dim=-1)
    point = torch.tensor(points, dtype=torch.float64)[:, None] * reach[:, -1:]
    row = torch.searchsorted(reach, point, right=True).clamp(max=logits.shape[-1] - 1)
    return names.gather(1, row).squeeze(1)
