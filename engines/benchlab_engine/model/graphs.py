"""Decode steps as captured graphs.

The one idea: a decode step of n sequences is padded to the next of a few sizes, written into fixed buffers with one
copy, and replayed as one launch instead of some hundred. Rows that only fill up read and write a block that belongs to
nobody. A step that is no plain decode step goes to the decoder as it is. It must not know plans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.attention_fast import Tiles, attend_with
from benchlab_engine.model.batch import Batch
from benchlab_engine.model.decoder import Decoder
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.memory import is_shortage, phase


def sizes(max_seqs: int) -> tuple[int, ...]:
    """Powers of two up to the first that holds max_seqs."""
    found = [1]
    while found[-1] < max_seqs:
        found.append(2 * found[-1])
    return tuple(found)


class Buffers:
    """Fixed inputs of a decode step of size rows, at most width blocks each.

    One array of int32 on the host and one on the device: tokens, positions, slots (size each), tables (size x width).
    """

    def __init__(self, size: int, width: int, kv: PagedKv) -> None:
        self.size, self.width = size, width
        self._block_size, self._spare = kv.block_size, kv.num_blocks
        length = size * (3 + width)
        self._host = torch.zeros(length, dtype=torch.int32, pin_memory=kv.device.type == "cuda")
        self._device = torch.zeros(length, dtype=torch.int32, device=kv.device)
        self._rows = self._host.numpy()[: 3 * size].reshape(3, size)
        self._tables = self._host.numpy()[3 * size :].reshape(size, width)
        self.tokens, self.positions, self.slots = self._device[: 3 * size].view(3, size).unbind(0)
        order = torch.arange(size, dtype=torch.int32, device=kv.device)
        tables = self._device[3 * size :].view(size, width)
        self.tiles = Tiles(tables, order, order, torch.ones_like(order), self.positions, 1)
        self._clear(0)

    def fits(self, batch: Batch) -> bool:
        """One token of each sequence, each wanted, and no more of them or of their blocks than there is room for."""
        rows = len(batch.tokens)
        width = max(group.blocks.shape[1] for group in batch.groups)
        return batch.is_decode and len(batch.last) == rows <= self.size and width <= self.width

    def fill(self, batch: Batch) -> None:
        """Write the batch's rows, then rows that fill up, and send all to the device."""
        rows = len(batch.tokens)
        for row, values in zip(self._rows, (batch.tokens, batch.positions, batch.slots), strict=True):
            row[:rows] = values.numpy()
        for group in batch.groups:
            self._tables[group.start : group.end, : group.blocks.shape[1]] = group.blocks
        self._clear(rows)
        self._device.copy_(self._host, non_blocking=True)

    def _clear(self, rows: int) -> None:
        """Rows from here on hold position 0 of the spare block."""
        self._rows[:, rows:] = np.array([[0], [0], [self._spare * self._block_size]])
        self._tables[rows:, 0] = self._spare


class DecodeGraphs:
    """Forward passes of a decoder over kv, which has a spare block; decode steps of up to max_seqs are replayed.

    max_blocks: of one sequence. capture: False computes the padded steps without capturing them, on any device.
    """

    def __init__(self, decoder: Decoder, kv: PagedKv, max_seqs: int, max_blocks: int, *, capture: bool = True) -> None:
        self._decoder, self._kv = decoder, kv
        self.replays = 0
        self._steps: list[tuple[Buffers, torch.cuda.CUDAGraph | None, Tensor | None]] = []
        pool: Any = None
        with phase("graph capture"), torch.inference_mode():
            for size in reversed(sizes(max_seqs)):  # the largest first: the smaller ones fit into its memory
                buffers = Buffers(size, max_blocks, kv)
                graph, logits = self._capture(buffers, pool) if capture else (None, None)
                pool = graph.pool() if graph is not None else None
                self._steps.insert(0, (buffers, graph, logits))

    def forward(self, batch: Batch, kv: PagedKv) -> Tensor:
        """Logits [len(batch.last), vocab] float32; they hold until the next step."""
        if kv is self._kv:
            for buffers, graph, logits in self._steps:
                if buffers.fits(batch):
                    buffers.fill(batch)
                    self.replays += 1
                    if graph is None or logits is None:
                        return self._compute(buffers)[: len(batch.tokens)]
                    graph.replay()
                    return logits[: len(batch.tokens)]
        return self._decoder.forward(batch, kv)

    def _compute(self, buffers: Buffers) -> Tensor:
        attend = attend_with([buffers.tiles], self._decoder.config, self._kv)
        slots = buffers.slots.long()
        return self._decoder.run(buffers.tokens, buffers.positions, slots, None, self._kv, attend)

    def _capture(self, buffers: Buffers, pool: Any) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        try:
            aside: Any = torch.cuda.Stream(self._kv.device)  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream(self._kv.device))
            with torch.cuda.stream(aside):  # kernels are compiled and libraries set up outside the capture
                self._compute(buffers)
            torch.cuda.current_stream(self._kv.device).wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits = self._compute(buffers)
        except RuntimeError as error:
            if is_shortage(error):
                raise
            raise EngineError(
                f"graph capture: a decode step of {buffers.size} sequences cannot be captured "
                f"({str(error).splitlines()[0]}); do without graphs (--no-graphs)"
            ) from error
        return graph, logits
