"""A decoder small enough to be written to a file in every form, and what it says to one prompt."""

from __future__ import annotations

import torch

from benchlab_engine.core.plan import Work
from benchlab_engine.model.batch import make_batch
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.kv import PagedKv

CONFIG = DecoderConfig(
    vocab_size=90, hidden=64, ffn=96, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, max_positions=64
)


def logits(decoder, count=20):
    """Of the last of so many tokens, which are the same at every call."""
    tokens = tuple(torch.randint(0, 90, (count,), generator=torch.Generator().manual_seed(2)).tolist())
    kv = PagedKv(decoder.config, 20, 4, decoder.dtype)
    work = Work("a", tokens, 0, tuple(range(-(-count // 4))), True, False)
    with torch.inference_mode():
        return decoder.forward(make_batch([work], 4), kv)[0]
