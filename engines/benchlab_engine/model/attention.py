"""Attention over the block table: the plain path that is right everywhere.

The one idea: what a step's queries may look at is worked out once a step, not once a layer; a layer then gathers whole
blocks, padded to its group's longest sequence, and attends under a mask. It must not know weights or plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.errors import USAGE, EngineError
from benchlab_engine.model.batch import Batch, Group
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.kv import PagedKv

Attend = Callable[[int, Tensor], Tensor]
"""A layer's attention: (layer, joined [rows, heads + 2 kv_heads, head_dim], rotated) -> [rows, heads x head_dim].

The rows' own keys and values are in the cache already.
"""


class Attention(Protocol):
    """One way of attending."""

    name: str

    def prepare(self, batch: Batch, config: DecoderConfig, kv: PagedKv) -> Attend:
        """What is the same in all layers of a step, done once."""
        ...


NAMES = ("auto", "plain", "fast")


def choose(name: str, device: torch.device, kv: PagedKv) -> Attention:
    """auto: the fast path where it serves the device and the cache's format, else the plain one."""
    if name not in NAMES:
        raise EngineError(f"--attention {name!r} is not known; use {', '.join(NAMES)}", USAGE)
    if name == "plain":
        return PlainAttention()
    from benchlab_engine.model.attention_fast import FastAttention, refusal

    reason = refusal(device, kv)
    if reason is None and (name == "fast" or device.type == "cuda"):
        return FastAttention()
    if name == "fast":
        raise EngineError(f"--attention fast: {reason}; use --attention plain", USAGE)
    return PlainAttention()


@dataclass(frozen=True, slots=True)
class View:
    """What a group sees. blocks: [sequences, blocks] to gather, cut to length positions.

    mask: [sequences, 1, queries, length], 0 or -inf, None where everything is visible. fresh: the group's own rows are
    all there is to see, so that nothing needs to be gathered.
    """

    start: int
    end: int
    num_sequences: int
    num_queries: int
    blocks: Tensor
    length: int
    mask: Tensor | None
    fresh: bool


def view(group: Group, window: int, kv: PagedKv) -> View:
    """window: positions that a query sees, its own included; 0: all before it."""
    count, size = len(group.lengths), kv.block_size
    starts = group.lengths - group.num_queries
    if starts.max() == 0 and kv.scales is None and (window == 0 or group.num_queries <= window):
        # From the first position on, and stored as it is: a row sees the rows before it.
        blocks = torch.empty(0, dtype=torch.int64)
        return View(group.start, group.end, count, group.num_queries, blocks, 0, None, True)
    first = np.maximum(starts - window + 1, 0) // size if window else np.zeros_like(starts)
    width = int((-(-group.lengths // size) - first).max())
    column = np.minimum(first[:, None] + np.arange(width), group.blocks.shape[1] - 1)
    blocks = torch.from_numpy(np.take_along_axis(group.blocks, column, axis=1)).to(kv.device)
    length = int((group.lengths - first * size).max())
    keys = (first * size)[:, None, None] + np.arange(length)
    queries = starts[:, None, None] + np.arange(group.num_queries)[:, None]
    visible = keys <= queries
    if window:
        visible &= keys > queries - window
    mask = None
    if not visible.all():
        hidden = torch.from_numpy(~visible)[:, None].to(kv.device)
        mask = torch.zeros(hidden.shape, dtype=kv.dtype, device=kv.device).masked_fill_(hidden, -torch.inf)
    return View(group.start, group.end, count, group.num_queries, blocks, length, mask, False)


class PlainAttention:
    """torch's scaled dot product over gathered blocks."""

    name = "plain"

    def prepare(self, batch: Batch, config: DecoderConfig, kv: PagedKv) -> Attend:
        """Gather lists and masks, for layers that see everything and for layers with a window."""
        whole = tuple(view(group, 0, kv) for group in batch.groups)
        longest = max(int(group.lengths.max()) for group in batch.groups)
        narrow = whole
        if 0 < config.window < longest:
            narrow = tuple(view(group, config.window, kv) for group in batch.groups)

        def attend(layer: int, joined: Tensor) -> Tensor:
            views = narrow if layer >= config.first_window_layer else whole
            found = [_attend(each, layer, joined[each.start : each.end], config, kv) for each in views]
            return found[0] if len(found) == 1 else torch.cat(found)

        return attend


def _attend(view: View, layer: int, joined: Tensor, config: DecoderConfig, kv: PagedKv) -> Tensor:
    heads, shared = config.num_heads, config.num_kv_heads
    joined = joined.view(view.num_sequences, view.num_queries, -1, config.head_dim).transpose(1, 2)
    if view.fresh:
        keys, values = joined[:, heads : heads + shared], joined[:, heads + shared :]
    else:
        keys, values = kv.read(layer, view.blocks, view.length)
    found = F.scaled_dot_product_attention(
        joined[:, :heads],
        keys,
        values,
        attn_mask=view.mask,
        is_causal=view.fresh and view.num_queries > 1,
        enable_gqa=shared < heads,
    )
    return found.transpose(1, 2).reshape(-1, heads * config.head_dim)
