"""Items that are made when they are asked for, from the columns of a workload; and copies with other arrivals or rows.

It must not know how the columns were filled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import msgspec
import numpy as np

from benchlab.workload.columns import Columns
from benchlab.workload.item import WorkloadItem

Again = Callable[[int, int], WorkloadItem]
"""Reads an item again from a place (offset, length) in its file."""


class LazyItems(Sequence[WorkloadItem]):
    """The items of some columns, in an order.

    rows: int64 array, the row of each item. arrival_s: float64 array by row, NaN where it has none.
    """

    def __init__(self, columns: Columns, rows: Any, arrival_s: Any, again: Again | None = None) -> None:
        self.columns, self.rows, self.arrival_s = columns, rows, arrival_s
        self._again = again
        self._sessions = list(columns.sessions)
        self._labels = list(columns.labels)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> WorkloadItem: ...
    @overload
    def __getitem__(self, place: slice) -> LazyItems: ...
    def __getitem__(self, place: int | slice) -> WorkloadItem | LazyItems:
        if isinstance(place, slice):
            return self.of_rows(self.rows[place])
        return self._item(int(self.rows[place]))

    def __iter__(self) -> Iterator[WorkloadItem]:
        return map(self._item, self.rows.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return NotImplemented if not isinstance(other, Sequence) else False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))

    def of_rows(self, rows: Any) -> LazyItems:
        """Other rows, or the same ones in another order."""
        return LazyItems(self.columns, rows, self.arrival_s, self._again)

    def _item(self, row: int) -> WorkloadItem:
        columns = self.columns
        arrival: float | None = float(self.arrival_s[row])
        if math.isnan(arrival):  # type: ignore[arg-type]
            arrival = None
        whole = columns.whole.get(row)
        if whole is None and (place := columns.left.place(row)) is not None and self._again is not None:
            whole = self._again(*place)
        if whole is not None:
            if whole.id and whole.arrival_s == arrival:
                return whole
            return msgspec.structs.replace(whole, id=whole.id or columns.name(row), arrival_s=arrival)
        session, turn, label, wait = (columns.get(name, row) for name in ("session", "turn", "label", "wait_s"))
        tenant, tags = self._labels[label] if label >= 0 else (None, ())
        blocks = (
            columns.blocks[columns.ends[row] : columns.ends[row + 1]].tolist()
            if columns.get("has_blocks", row)
            else None
        )
        return WorkloadItem(
            id=columns.name(row),
            input_tokens=columns.input[row] or None,
            prefix_blocks=blocks,
            block_tokens=columns.get("size", row) or None,
            output_tokens=columns.output[row] or None,
            arrival_s=arrival,
            wait_s=None if math.isnan(wait) else wait,
            session=self._sessions[session] if session >= 0 else None,
            turn=turn if turn >= 0 else None,
            depends_on=columns.needs.get(row),
            tenant=tenant,
            tags=list(tags),
        )


def lazily(items: Sequence[WorkloadItem]) -> LazyItems:
    """The items themselves if they are columns already, else columns of them."""
    if isinstance(items, LazyItems):
        return items
    columns = Columns.of(items)
    return LazyItems(columns, np.arange(len(columns)), columns.view("arrival_s"))
