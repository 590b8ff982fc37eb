"""Attention over the block table: the fast path, a paged kernel.

The one idea: nothing is gathered or padded; tiles of queries, described by five small arrays, are handed to a kernel
that reads the cache where it lies. Decode steps are tiles of one query, their contexts split over programs when there
are few of them; prompt chunks are tiles of several. It must not know weights or plans.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchlab_engine.model.attention import Attend
from benchlab_engine.model.batch import Batch, Group
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.kv import PagedKv

_TILE_QUERIES = 16
_KEYS = {2: 64, 4: 32}  # positions read at a time, by the bytes of an element: a tile lies in the chip's own memory
_PROGRAMS = 512  # about as many as a large device runs at once: fewer tiles than that are split
_MOST_SPLITS = 16
_EVERYTHING = 1 << 30  # a window that hides nothing


def refusal(device: torch.device, kv: PagedKv) -> str | None:
    """Why the kernel cannot serve this device and cache, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda":
        return None if os.environ.get("TRITON_INTERPRET") == "1" else "its kernel needs a CUDA device"
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):
        return f"its kernel needs compute capability 8.0, the device has {capability[0]}.{capability[1]}"
    if kv.format.name == "fp8" and capability < (8, 9):
        return f"reading fp8 needs compute capability 8.9, the device has {capability[0]}.{capability[1]}"
    return None


@dataclass(frozen=True, slots=True)
class Tiles:
    """tables: [sequences, width]; sequence, row, count, position: [tiles]: count queries from row on, the first at
    position, all int32 on the device. size: the most queries of a tile."""

    tables: Tensor
    sequence: Tensor
    row: Tensor
    count: Tensor
    position: Tensor
    size: int

    def splits(self, kv_heads: int) -> int:
        """Programs that share one tile's context, a power of two."""
        if self.size > 1:
            return 1
        most = max(1, min(_MOST_SPLITS, _PROGRAMS // (len(self.row) * kv_heads)))
        return 1 << (most.bit_length() - 1)


class FastAttention:
    """The paged kernel."""

    name = "fast"

    def prepare(self, batch: Batch, config: DecoderConfig, kv: PagedKv) -> Attend:
        """Tiles of the step: one set for decode steps, one for longer works."""
        decodes = [group for group in batch.groups if group.num_queries == 1]
        longer = [group for group in batch.groups if group.num_queries > 1]
        sets = [tiles(groups, size, kv.device) for groups, size in ((decodes, 1), (longer, _TILE_QUERIES)) if groups]
        return attend_with(sets, config, kv)


def tiles(groups: Sequence[Group], size: int, device: torch.device) -> Tiles:
    """The groups' queries in tiles of at most size."""
    width = max(group.blocks.shape[1] for group in groups)
    tables = np.concatenate([np.pad(group.blocks, ((0, 0), (0, width - group.blocks.shape[1]))) for group in groups])
    queries = np.concatenate([np.full(len(group.lengths), group.num_queries) for group in groups])
    rows = np.concatenate([np.arange(group.start, group.end, group.num_queries) for group in groups])
    starts = np.concatenate([group.lengths for group in groups]) - queries
    each = -(-queries // size)
    sequence = np.repeat(np.arange(len(queries)), each)
    done = (np.arange(len(sequence)) - np.repeat(each.cumsum() - each, each)) * size
    columns = (sequence, rows[sequence] + done, np.minimum(size, queries[sequence] - done), starts[sequence] + done)
    flat = np.concatenate([tables.reshape(-1), *columns]).astype(np.int32)
    moved = torch.from_numpy(flat).to(device)  # in one move
    found = moved[tables.size :].view(len(columns), -1)
    return Tiles(moved[: tables.size].view(tables.shape), found[0], found[1], found[2], found[3], size)


def attend_with(sets: Sequence[Tiles], config: DecoderConfig, kv: PagedKv) -> Attend:
    """The layers' attention over tiles that may lie in fixed buffers."""

    def attend(layer: int, joined: Tensor) -> Tensor:
        found = joined.new_empty((len(joined), config.num_heads * config.head_dim))
        windowed = config.window and layer >= config.first_window_layer
        for each in sets:
            _launch(each, layer, joined, found, config, kv, config.window if windowed else _EVERYTHING)
        return found

    return attend


def _launch(
    tiles: Tiles, layer: int, joined: Tensor, found: Tensor, config: DecoderConfig, kv: PagedKv, window: int
) -> None:
    from benchlab_engine.model.attention_triton import attend_tiles, join_splits

    heads, shared, dim = config.num_heads, config.num_heads // config.num_kv_heads, config.head_dim
    splits, block_d = tiles.splits(config.num_kv_heads), max(16, _power(dim))
    if splits == 1:
        target = maxima = totals = found
    else:
        target = torch.empty((splits, len(joined), heads, dim), dtype=torch.float32, device=found.device)
        maxima, totals = torch.empty((2, splits, len(joined), heads), dtype=torch.float32, device=found.device)
    rows = kv.rows[layer]
    attend_tiles[(len(tiles.row), config.num_kv_heads, splits)](
        joined, rows, rows if kv.scales is None else kv.scales[layer], target, maxima, totals,
        tiles.tables, tiles.sequence, tiles.row, tiles.count, tiles.position,
        joined.stride(0), tiles.tables.stride(0), len(joined), window, dim**-0.5,
        KV_HEADS=config.num_kv_heads, SHARED=shared, DIM=dim, BLOCK_D=block_d,
        BLOCK_M=max(16, _power(tiles.size * shared)), BLOCK_N=_KEYS[joined.element_size()],
        BLOCK_SIZE=kv.block_size, SPLITS=splits,
        QUANTISED=kv.scales is not None, PRECISION="ieee" if joined.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    if splits > 1:
        # Only decode steps are split, and they are the first rows.
        join_splits[(len(tiles.row), heads)](
            target, maxima, totals, found, len(joined), HEADS=heads, DIM=dim, BLOCK_D=block_d, SPLITS=splits
        )


@functools.cache
def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()
