"""Keys and values of all layers, in blocks.

The one idea: a position's place is block x block_size + offset, one flat row of a tensor per layer; a block table is a
list of integers that somebody else keeps. It must not know requests.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchlab_engine.model.config import DecoderConfig


class PagedKv:
    """keys, values: [layers, slots, kv_heads, head_dim], slots = num_blocks x block_size."""

    def __init__(self, config: DecoderConfig, num_blocks: int, block_size: int, dtype: torch.dtype) -> None:
        shape = (config.num_layers, num_blocks * block_size, config.num_kv_heads, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)
        self.block_size = block_size

    @property
    def num_bytes(self) -> int:
        """Memory of the whole pool."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store rows [tokens, kv_heads, head_dim] at slots [tokens]."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Rows at slots [sequences, length] as [sequences, kv_heads, length, head_dim]."""
        count, length = slots.shape
        flat = slots.reshape(-1)
        keys = self.keys[layer].index_select(0, flat).view(count, length, *self.keys.shape[2:])
        values = self.values[layer].index_select(0, flat).view(count, length, *self.values.shape[2:])
        return keys.transpose(1, 2), values.transpose(1, 2)
