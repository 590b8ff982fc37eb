"""A plan as tensors.

The one idea: all tokens of a step lie in one flat row, decode steps first, so that every matrix product sees the whole
step; what differs (who may look at what) is kept in two small groups: all decode steps together, each prompt chunk
alone. It must not know layers or weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchlab_engine.core.plan import Work


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences that are attended to together. rows start..end of the flat row, num_queries of each sequence.

    slots: [sequences, length], where each position lies (padding repeats slot 0). mask: True where it
    may look, [sequences, 1, queries, length]; None: everything.
    """

    start: int
    end: int
    num_queries: int
    slots: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Batch:
    """tokens, positions, slots: [tokens] int64. last: rows whose logits are wanted, in the order of `sampling`."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    groups: tuple[Group, ...]
    last: Tensor
    sampling: tuple[Work, ...]


def make_batch(works: Sequence[Work], block_size: int) -> Batch:
    """Lay the works out. A work of one token, whatever it is, goes with the decode steps."""
    singles = [work for work in works if len(work.token_ids) == 1]
    chunks = [work for work in works if len(work.token_ids) > 1]
    ordered = singles + chunks
    tokens = [token for work in ordered for token in work.token_ids]
    positions = torch.cat([torch.arange(work.start, work.start + len(work.token_ids)) for work in ordered])
    tables = [_slots(work.block_table, block_size)[: work.start + len(work.token_ids)] for work in ordered]
    slots = torch.cat([table[work.start :] for work, table in zip(ordered, tables, strict=True)])
    groups: list[Group] = []
    if singles:
        groups.append(_singles(tables[: len(singles)]))
    row = len(singles)
    last = list(range(row))
    for work, table in zip(chunks, tables[len(singles) :], strict=True):
        count = len(work.token_ids)
        own = torch.arange(work.start, work.start + count)
        mask = torch.arange(len(table))[None, :] <= own[:, None]
        groups.append(Group(row, row + count, count, table[None], mask[None, None]))
        row += count
        last.append(row - 1)
    wanted = [(index, work) for index, work in zip(last, ordered, strict=True) if work.samples]
    return Batch(
        tokens=torch.tensor(tokens),
        positions=positions,
        slots=slots,
        groups=tuple(groups),
        last=torch.tensor([index for index, _ in wanted], dtype=torch.int64),
        sampling=tuple(work for _, work in wanted),
    )


def _slots(block_table: Sequence[int], block_size: int) -> Tensor:
    return (torch.tensor(block_table)[:, None] * block_size + torch.arange(block_size)[None, :]).reshape(-1)


def _singles(tables: Sequence[Tensor]) -> Group:
    lengths = torch.tensor([len(table) for table in tables])
    padded = torch.nn.utils.rnn.pad_sequence(list(tables), batch_first=True)
    mask = None
    if int(lengths.min()) < padded.shape[1]:
        mask = (torch.arange(padded.shape[1])[None, :] < lengths[:, None])[:, None, None, :]
    return Group(0, len(tables), 1, padded, mask)
