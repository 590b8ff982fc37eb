"""A plan as flat rows.

The one idea: all tokens of a step lie in one flat row, so that every matrix product sees the whole step; sequences with
equally many tokens lie side by side and form groups, which attention looks at together. Everything is laid out with
numpy on the host in a few operations whatever the number of sequences; it goes to the device in one move. It must not
know layers or weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchlab_engine.core.plan import Work

Ints = NDArray[np.int64]

# Sequences of up to so many tokens (decode steps, with their proposals) share a group; longer chunks stand alone.
_GROUPED_TOKENS = 16
# Attending to another group costs, on a CPU, about as much as reading so many positions of padding.
_GROUP_COST = 256


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences that are attended to together: rows start..end of the flat row, num_queries of each sequence.

    blocks: [sequences, blocks], each sequence's table, padded with 0. lengths: [sequences], positions from 0 to the
    last query's, that one counted.
    """

    start: int
    end: int
    num_queries: int
    blocks: Ints
    lengths: Ints


@dataclass(frozen=True, slots=True)
class Batch:
    """tokens, positions, slots: [tokens] int64 on the host. last: rows whose logits are wanted.

    sampling: the works that sample, each once, in the order of `last`; num_rows: how many rows of `last` each has: one,
    and one more for each of its proposals.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    groups: tuple[Group, ...]
    last: Tensor
    sampling: tuple[Work, ...]
    num_rows: tuple[int, ...]

    @property
    def is_decode(self) -> bool:
        """One token of each of its sequences, and no more."""
        return all(group.num_queries == 1 for group in self.groups)


def make_batch(works: Sequence[Work], block_size: int) -> Batch:
    """Lay the works out: short ones first, by their number of tokens and then by length."""
    ordered = sorted(works, key=_place)
    counts = np.fromiter((len(work.token_ids) for work in ordered), np.int64, len(ordered))
    starts = np.fromiter((work.start for work in ordered), np.int64, len(ordered))
    rows = counts.cumsum()
    tables = _tables([work.block_table for work in ordered])
    tokens = np.fromiter(chain.from_iterable(work.token_ids for work in ordered), np.int64, int(rows[-1]))
    owner = np.repeat(np.arange(len(ordered)), counts)
    positions = np.arange(len(tokens)) - np.repeat(rows - counts - starts, counts)
    slots = tables[owner, positions // block_size] * block_size + positions % block_size
    sampling = tuple(work for work in ordered if work.samples)
    num_rows = tuple(1 + work.num_drafts for work in sampling)
    return Batch(
        tokens=torch.from_numpy(tokens),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        groups=tuple(_groups(counts, starts + counts, tables, block_size)),
        last=torch.from_numpy(_last(ordered, rows)),
        sampling=sampling,
        num_rows=num_rows,
    )


def _place(work: Work) -> tuple[int, int]:
    return (len(work.token_ids), work.start)


def _last(ordered: Sequence[Work], rows: Ints) -> Ints:
    wanted = [
        np.arange(end - 1 - work.num_drafts, end)
        for work, end in zip(ordered, rows.tolist(), strict=True)
        if work.samples
    ]
    return np.concatenate(wanted) if wanted else np.empty(0, np.int64)


def _tables(tables: Sequence[tuple[int, ...]]) -> Ints:
    """Block tables as one array, padded with 0."""
    widths = np.fromiter((len(table) for table in tables), np.int64, len(tables))
    found = np.zeros((len(tables), int(widths.max())), np.int64)
    found[np.arange(found.shape[1]) < widths[:, None]] = np.fromiter(
        chain.from_iterable(tables), np.int64, int(widths.sum())
    )
    return found


def _groups(counts: Ints, lengths: Ints, tables: Ints, block_size: int) -> list[Group]:
    found: list[Group] = []
    row, first = 0, 0
    while first < len(counts):
        count = int(counts[first])
        end = int(np.searchsorted(counts, count, side="right")) if count <= _GROUPED_TOKENS else first + 1
        for low, high in _cuts(lengths, first, end):
            width = -(-int(lengths[high - 1]) // block_size)
            rows = (high - low) * count
            found.append(Group(row, row + rows, count, tables[low:high, :width], lengths[low:high]))
            row += rows
        first = end
    return found


def _cuts(lengths: Ints, low: int, high: int) -> list[tuple[int, int]]:
    """Cut the ascending lengths where a group more costs less than the padding that it saves."""
    own = lengths[low:high]
    saved = np.arange(1, len(own)) * (own[-1] - own[:-1])
    if len(saved) == 0 or saved.max() <= _GROUP_COST:
        return [(low, high)]
    at = low + 1 + int(saved.argmax())
    return [*_cuts(lengths, low, at), *_cuts(lengths, at, high)]
