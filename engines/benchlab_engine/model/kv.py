"""Keys and values of all layers, in blocks.

The one idea: a position's place is block x block_size + offset, one row of a tensor per layer that holds its keys and
then its values; a block table is a list of integers that somebody else keeps. Stored as integers or 8-bit floats, each
head's keys and values of a position have a scale of their own. It must not know requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchlab_engine.errors import USAGE, EngineError
from benchlab_engine.model.config import DecoderConfig


@dataclass(frozen=True, slots=True)
class KvFormat:
    """How an element is stored. largest: the stored value that a row's largest magnitude becomes; 0: as it is."""

    name: str
    dtype: torch.dtype
    largest: float = 0.0

    def bytes_per_token(self, config: DecoderConfig) -> int:
        """Keys and values of one position in all layers, scales counted."""
        rows = 2 * config.num_layers * config.num_kv_heads
        return rows * (config.head_dim * self.dtype.itemsize + (_SCALE.itemsize if self.largest else 0))


_SCALE = torch.float16
_SMALLEST_SCALE = 2.0**-24  # of float16: nothing is divided by zero
_FORMATS = {"int8": (torch.int8, 127.0), "fp8": (torch.float8_e4m3fn, 448.0)}


def kv_format(name: str, dtype: torch.dtype) -> KvFormat:
    """auto: the model's dtype as it is. int8; fp8 (e4m3): storage formats, right on every device: the arithmetic is
    done in the model's dtype."""
    if name == "auto":
        return KvFormat("auto", dtype)
    if name not in _FORMATS:
        raise EngineError(f"--kv-dtype {name!r} is not known; use auto, {', '.join(_FORMATS)}", USAGE)
    return KvFormat(name, *_FORMATS[name])


class PagedKv:
    """rows: [layers, slots, 2 kv_heads, head_dim], the keys' heads first; slots = (num_blocks + spare) x block_size.

    scales: [layers, slots, 2 kv_heads] float16, or None where the elements are stored as they are. spare: blocks after
    the pool's own, for rows that fill up a fixed shape and belong to nobody.
    """

    def __init__(
        self,
        config: DecoderConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        kv_dtype: str = "auto",
        device: torch.device | str = "cpu",
        spare: int = 0,
    ) -> None:
        self.format = kv_format(kv_dtype, dtype)
        self.dtype = dtype
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.kv_heads = config.num_kv_heads
        shape = (config.num_layers, (num_blocks + spare) * block_size, 2 * config.num_kv_heads, config.head_dim)
        self.rows = torch.zeros(shape, dtype=self.format.dtype, device=device)
        self.scales = torch.zeros(shape[:-1], dtype=_SCALE, device=device) if self.format.largest else None
        # Copied and gathered as plain bytes: not every operation is there for 8-bit floats.
        self._bytes = self.rows.view(torch.uint8) if self.format.name == "fp8" else self.rows
        # Views made once: a step asks for them some hundred times.
        self._layers = tuple(self._bytes)
        self._blocks = tuple(self._bytes.view(shape[0], -1, block_size, *shape[2:]))

    @property
    def device(self) -> torch.device:
        """Where the cache lies."""
        return self.rows.device

    @property
    def num_bytes(self) -> int:
        """Memory of the whole pool."""
        return sum(each.numel() * each.element_size() for each in (self.rows, self.scales) if each is not None)

    @property
    def keys(self) -> Tensor:
        """[layers, slots, kv_heads, head_dim], as stored."""
        return self.rows[:, :, : self.kv_heads]

    @property
    def values(self) -> Tensor:
        """[layers, slots, kv_heads, head_dim], as stored."""
        return self.rows[:, :, self.kv_heads :]

    def write(self, layer: int, slots: Tensor, rows: Tensor) -> None:
        """Store rows [tokens, 2 kv_heads, head_dim] at slots [tokens]."""
        if self.scales is None:
            self._layers[layer].index_copy_(0, slots, rows)
            return
        wide = rows.float()
        scale = (wide.abs().amax(dim=-1) / self.format.largest).to(_SCALE).clamp_min_(_SMALLEST_SCALE)
        wide = wide.div(scale.float().unsqueeze(-1)).clamp_(-self.format.largest, self.format.largest)
        if self.format.name == "int8":
            wide.round_()
        stored = wide.to(self.format.dtype)
        self._layers[layer].index_copy_(0, slots, stored.view(self._bytes.dtype))
        self.scales[layer].index_copy_(0, slots, scale)

    def read(self, layer: int, blocks: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """The first length positions of blocks [sequences, blocks each]: keys and values, each
        [sequences, kv_heads, length, head_dim] in the model's dtype."""
        flat, count = blocks.reshape(-1), len(blocks)
        # whole blocks: long runs are copied faster than single positions
        found = self._blocks[layer].index_select(0, flat).view(count, -1, *self.rows.shape[2:])[:, :length]
        if self.scales is not None:
            scale = self.scales[layer].view(-1, self.block_size, 2 * self.kv_heads).index_select(0, flat)
            scale = scale.view(count, -1, 2 * self.kv_heads)[:, :length]
            found = found.view(self.format.dtype).to(self.dtype).mul_(scale.unsqueeze(-1))
        found = found.transpose(1, 2)
        return found[:, : self.kv_heads], found[:, self.kv_heads :]

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, (from, to), in all layers. All are read before any is written."""
        if not pairs:
            return
        source, target = torch.tensor(pairs, dtype=torch.int64, device=self.device).unbind(1)
        for each in (self._bytes, self.scales):
            if each is not None:
                blocks = each.view(each.shape[0], -1, self.block_size, *each.shape[2:])
                blocks.index_copy_(1, target, blocks.index_select(1, source))
