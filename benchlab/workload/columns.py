"""The rows of a workload as arrays of numbers: a plan needs only those, and an item is made when it is asked for.

The one idea: a row of a trace costs a few numbers and its block ids, not an object; text is kept beside them, or left
in its file and read again when it is wanted. It must not know formats, nor how a row is checked.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchlab.errors import UsageError
from benchlab.workload.item import WorkloadItem

NO_TIME = -(2**63)
"""Stands in `source_ns` for a row without one."""

HELD_TEXT_CHARS = 16 * 2**20
"""Text beyond this many characters is left in the file, where it can be read again."""

FILE_SHIFT = 40
"""A line number holds the number of its file above these bits."""

_TEXTUAL = ("messages", "prompt", "sampling", "tools", "priority", "expect")
NATIVE, THEIRS = 1, 2


_DEFAULTS: dict[str, tuple[str, float]] = {
    "source_ns": ("q", NO_TIME), "arrival_s": ("d", math.nan), "wait_s": ("d", math.nan), "size": ("i", 0),
    "turn": ("i", -1), "session": ("i", -1), "label": ("i", -1), "chars": ("i", 0), "has_blocks": ("b", 0),
}  # fmt: skip
"""Columns that few files use: type and what stands where a row says nothing. They grow only as far as they are used."""


class Columns:
    """Rows, appended one by one.

    line: where each stands. input, output: 0 where a row has none. The others: by `get` and `view`, with a default.
    blocks[ends[row]:ends[row + 1]]: the ids of a row. has_blocks: 0, NATIVE or THEIRS (as many ids as blocks, to be
    checked). whole: rows that are more than numbers, as items. left: such rows whose text was left in the file.
    """

    def __init__(self) -> None:
        self.line, self.input, self.output = array("q"), array("i"), array("i")
        self.ends, self.blocks = array("q", [0]), array("i")
        self._few: dict[str, array[Any]] = {name: array(kind) for name, (kind, _) in _DEFAULTS.items()}
        self._source, self._size, self._kind = (self._few[name] for name in ("source_ns", "size", "has_blocks"))
        self.names: dict[int, str] = {}
        self.needs: dict[int, list[str]] = {}
        self.sessions: dict[str, int] = {}
        self.labels: dict[tuple[str | None, tuple[str, ...]], int] = {}
        self.whole: dict[int, WorkloadItem] = {}
        self.left = Left()
        self.files: list[str] = []
        self._held = 0

    def __len__(self) -> int:
        return len(self.line)

    @classmethod
    def of(cls, items: Iterable[WorkloadItem]) -> Columns:
        """The columns of items that are there already."""
        columns = cls()
        for place, item in enumerate(items):
            columns.put_item(place + 1, item)
        return columns

    def get(self, name: str, row: int) -> Any:
        """A row's value in one of the columns that few files use."""
        column = self._few[name]
        return column[row] if row < len(column) else _DEFAULTS[name][1]

    def set(self, name: str, row: int, value: float) -> None:
        """Set a row's value in one of them."""
        column = self._few[name]
        if row >= len(column):
            column.extend(array(column.typecode, [_DEFAULTS[name][1]]) * (row + 1 - len(column)))
        column[row] = value

    def view(self, name: str) -> Any:
        """A whole column as a numpy array, read only; no row can be appended while one is held."""
        if name in ("line", "input", "output", "ends", "blocks"):
            return np.asarray(getattr(self, name))
        column = self._few[name]
        if not column and len(self):
            return np.broadcast_to(np.array(_DEFAULTS[name][1], dtype=column.typecode), (len(self),))
        if len(column) < len(self):
            self.set(name, len(self) - 1, _DEFAULTS[name][1])
        return np.asarray(column)

    def put(
        self,
        line: int,
        source_ns: int,
        input_tokens: int,
        output_tokens: int,
        size: int = 0,
        blocks: list[int] | None = None,
        kind: int = 0,
    ) -> None:
        """Append a row that has no more than these. Raises UsageError for ids that take more than eight bytes."""
        row = len(self.line)
        if blocks:
            try:
                self.blocks.extend(blocks)
            except OverflowError:
                self._widen(blocks)
        self.line.append(line)
        self.input.append(input_tokens)
        self.output.append(output_tokens)
        self.ends.append(len(self.blocks))
        if source_ns != NO_TIME:
            if len(self._source) == row:
                self._source.append(source_ns)
            else:
                self.set("source_ns", row, source_ns)
        if kind:
            if len(self._kind) == len(self._size) == row:
                self._kind.append(kind)
                self._size.append(size)
            else:
                self.set("has_blocks", row, kind)
                self.set("size", row, size)

    def put_item(
        self,
        line: int,
        item: WorkloadItem,
        source_ns: int | None = None,
        *,
        theirs: bool = False,
        place: tuple[int, int] | None = None,
    ) -> None:
        """Append an item. theirs: its blocks are to be checked. place: where its line can be read again."""
        row = len(self.line)
        kind = 0 if item.prefix_blocks is None else (THEIRS if theirs else NATIVE)
        self.put(
            line,
            NO_TIME if source_ns is None else source_ns,
            item.input_tokens or 0,
            item.output_tokens or 0,
            item.block_tokens or 0,
            item.prefix_blocks,
            kind,
        )
        left = False
        if any(getattr(item, name) is not None for name in _TEXTUAL):
            chars = prompt_chars(item)
            self.set("chars", row, chars)
            self._held += chars
            left = place is not None and self._held > HELD_TEXT_CHARS
            if left and place is not None:
                self.left.put(row, place, item.id)
            else:
                self.whole[row] = item
        elif item.block_tokens is not None and not kind:
            self.set("size", row, item.block_tokens)
        if item.id and not left:
            self.set_name(row, item.id)
        if item.depends_on is not None:
            self.needs[row] = item.depends_on
        for name, value in (("arrival_s", item.arrival_s), ("wait_s", item.wait_s), ("turn", item.turn)):
            if value is not None:
                self.set(name, row, value)
        if item.session is not None:
            self.set("session", row, self.sessions.setdefault(item.session, len(self.sessions)))
        if item.tenant is not None or item.tags:
            self.set("label", row, self.labels.setdefault((item.tenant, tuple(item.tags)), len(self.labels)))

    def _widen(self, blocks: list[int]) -> None:
        """Ids are hashes of 64 bits: from here on all of them take eight bytes."""
        del self.blocks[self.ends[-1] :]
        wide = array("q", self.blocks)
        try:
            wide.extend(blocks)
        except OverflowError:
            raise UsageError(
                "a block id of more than 64 bits", where="prefix blocks", hint="write such ids as texts"
            ) from None
        self.blocks = wide

    def set_name(self, row: int, name: str) -> None:
        """Give a row an id of its own; one that it has anyway takes no room."""
        if name != self.name(row):
            self.names[row] = name

    def name(self, row: int) -> str:
        """The id of a row: its own, else its line."""
        found = self.names.get(row)
        if found is not None:
            return found
        file, line = divmod(self.line[row], 1 << FILE_SHIFT)
        return f"{self.files[file]}:{line}" if len(self.files) > 1 else str(line)


class Left:
    """Rows whose text was left in the file: where each can be read again, and a hash of its id."""

    def __init__(self) -> None:
        self.rows, self.offsets, self.lengths, self.keys = array("q"), array("q"), array("q"), array("q")

    def put(self, row: int, place: tuple[int, int], name: str) -> None:
        """Append a row; rows come in order."""
        self.rows.append(row)
        self.offsets.append(place[0])
        self.lengths.append(place[1])
        self.keys.append(hash(name) if name else -1)

    def named(self, row: int) -> bool:
        """Whether a row was left that has an id of its own."""
        at = bisect_left(self.rows, row)
        return at < len(self.rows) and self.rows[at] == row and self.keys[at] != -1

    def place(self, row: int) -> tuple[int, int] | None:
        """Offset and length of a row's line, None if it was not left."""
        at = bisect_left(self.rows, row)
        return (self.offsets[at], self.lengths[at]) if at < len(self.rows) and self.rows[at] == row else None


def prompt_chars(item: WorkloadItem) -> int:
    """Characters of the text that is asked, 0 where it is still to be made."""
    if item.prompt is not None:
        return len(item.prompt)
    total = 0
    for message in item.messages or ():
        content: Any = message.get("content")
        if isinstance(content, str):
            total += len(content)
        elif isinstance(content, list):
            texts = (part.get("text") for part in content if isinstance(part, dict))
            total += sum(len(text) for text in texts if isinstance(text, str))
    return total
