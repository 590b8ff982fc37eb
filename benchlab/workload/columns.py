"""The rows of a workload as arrays of numbers: a plan needs only those, and an item is made when it is asked for.

The one idea: a row of a trace costs a few numbers and its block ids, not an object; text is kept beside them, or left
in its file and read again when it is wanted. It must not know formats, nor how a row is checked.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Any

from benchlab.errors import UsageError
from benchlab.workload.item import WorkloadItem

NO_TIME = -(2**63)
"""Stands in `source_ns` for a row without one."""

HELD_TEXT_BYTES = 64 * 2**20
"""Text beyond this many characters is left in the file, where it can be read again."""

FILE_SHIFT = 40
"""A line number holds the number of its file above these bits."""

_TEXTUAL = ("messages", "prompt", "sampling", "tools", "priority", "expect")
NATIVE, THEIRS = 1, 2


class Columns:
    """Rows, appended one by one.

    line: where each stands. input, output, size, chars: 0 where the row has none; turn, session, label: -1; times: NaN
    or NO_TIME. blocks[ends[row]:ends[row + 1]]: the ids of a row. has_blocks: 0, NATIVE or THEIRS (as many ids as
    blocks, to be checked). whole: rows that are more than numbers, as items or as a place (offset, length) in the file.
    """

    def __init__(self) -> None:
        self.line, self.source_ns = array("q"), array("q")
        self.arrival_s, self.wait_s = array("d"), array("d")
        self.input, self.output, self.size = array("i"), array("i"), array("i")
        self.turn, self.session, self.label = array("i"), array("i"), array("i")
        self.chars = array("q")
        self.ends, self.blocks, self.has_blocks = array("q", [0]), array("i"), bytearray()
        self.names: dict[int, str] = {}
        self.needs: dict[int, list[str]] = {}
        self.sessions: dict[str, int] = {}
        self.labels: dict[tuple[str | None, tuple[str, ...]], int] = {}
        self.whole: dict[int, WorkloadItem | tuple[int, int]] = {}
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
        if blocks:
            try:
                self.blocks.extend(blocks)
            except OverflowError:
                self._widen(blocks)
        self.has_blocks.append(kind)
        self.line.append(line)
        self.source_ns.append(source_ns)
        self.arrival_s.append(math.nan)
        self.wait_s.append(math.nan)
        self.input.append(input_tokens)
        self.output.append(output_tokens)
        self.size.append(size)
        self.turn.append(-1)
        self.session.append(-1)
        self.label.append(-1)
        self.chars.append(0)
        self.ends.append(len(self.blocks))

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
        if any(getattr(item, name) is not None for name in _TEXTUAL):
            self.chars[row] = prompt_chars(item)
            self._held += self.chars[row]
            self.whole[row] = item if place is None or self._held <= HELD_TEXT_BYTES else place
        if item.arrival_s is not None:
            self.arrival_s[row] = item.arrival_s
        if item.wait_s is not None:
            self.wait_s[row] = item.wait_s
        if item.turn is not None:
            self.turn[row] = item.turn
        if item.id:
            self.names[row] = item.id
        if item.depends_on is not None:
            self.needs[row] = item.depends_on
        if item.session is not None:
            self.session[row] = self.sessions.setdefault(item.session, len(self.sessions))
        if item.tenant is not None or item.tags:
            self.label[row] = self.labels.setdefault((item.tenant, tuple(item.tags)), len(self.labels))

    def _widen(self, blocks: list[int]) -> None:
        """Ids are hashes of 64 bits: from here on all of them take eight bytes."""
        wide = array("q", self.blocks[: self.ends[-1]])
        try:
            wide.extend(blocks)
        except OverflowError:
            raise UsageError(
                "a block id of more than 64 bits", where="prefix blocks", hint="write such ids as texts"
            ) from None
        self.blocks = wide

    def name(self, row: int) -> str:
        """The id of a row: its own, else its line."""
        found = self.names.get(row)
        if found is not None:
            return found
        file, line = divmod(self.line[row], 1 << FILE_SHIFT)
        return f"{self.files[file]}:{line}" if len(self.files) > 1 else str(line)


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
