"""Attention over the block table: the plain path that is right everywhere.

The one idea: gather each sequence's keys and values from its blocks, padded to the longest, and attend under a mask.
Query heads that share a key/value head are laid beside its queries, so that nothing is copied per head. It must not
know weights or plans.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.model.batch import Group
from benchlab_engine.model.kv import PagedKv


def attend(kv: PagedKv, layer: int, group: Group, queries: Tensor) -> Tensor:
    """queries: [rows, heads, head_dim], already rotated. Returns the same shape."""
    keys, values = kv.read(layer, group.slots)
    count, kv_heads = keys.shape[0], keys.shape[1]
    rows, heads, dim = queries.shape
    shared = heads // kv_heads
    # [sequences, queries, kv_heads, shared, dim] -> [sequences, kv_heads, shared x queries, dim]
    asked = queries.view(count, group.num_queries, kv_heads, shared, dim).permute(0, 2, 3, 1, 4)
    asked = asked.reshape(count, kv_heads, shared * group.num_queries, dim)
    mask = group.mask
    if mask is not None and group.num_queries > 1:
        mask = mask.repeat(1, 1, shared, 1)
    found = F.scaled_dot_product_attention(asked, keys, values, attn_mask=mask)
    found = found.view(count, kv_heads, shared, group.num_queries, dim).permute(0, 3, 1, 2, 4)
    return found.reshape(rows, heads, dim)
