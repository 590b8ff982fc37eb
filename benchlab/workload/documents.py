"""A JSON document that is not one line an item (an array, or objects over many lines), cut into its values.

The one idea: brackets and strings are followed byte by byte, so that an array of any length streams, one element at a
time. It must not know what the values mean; whether they are sound JSON is for the next to say.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from benchlab.errors import UsageError

MAX_VALUE_BYTES = 512 * 2**20
_MARK = re.compile(rb'[\[\]{}"]')
_END_OF_TEXT = re.compile(rb'["\\]')


def is_document(line: bytes) -> bool:
    """Whether a first line opens an array, or an object that goes on in the next line."""
    text = line.strip()
    if text.startswith(b"["):
        return True
    return text.startswith(b"{") and (text == b"{" or text.endswith((b",", b"[", b"{", b":")))


class Values:
    """Iterate for (line number where it starts, bytes) of each object: the elements of the outermost array, or the
    objects one after the other. Anything between them but commas and white space is given as a value of its own."""

    def __init__(self, lines: Iterator[tuple[int, bytes]], path: str) -> None:
        self._lines, self._path = lines, path
        self._depth = self._base = 0
        self._quoted = False
        self._parts: list[bytes] = []
        self._began = self._held = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        number, first = 0, True
        for number, line in self._lines:
            start = 0
            if first and line.strip():
                first = False
                if line.lstrip().startswith(b"["):
                    self._base = self._depth = 1
                    start = line.index(b"[") + 1
            rest = yield from self._cut(number, line, start)
            if self._depth > self._base or self._quoted:
                self._keep(rest)
            else:
                yield from _loose(number, rest)
        if self._parts:
            yield self._began, b"\n".join(self._parts)
        elif self._base:
            yield number, b"["  # the array never ends: told as what is not JSON

    def _cut(self, number: int, line: bytes, start: int) -> Generator[tuple[int, bytes], None, bytes]:
        """The values that end in this line; returns what is left of it."""
        place = start
        while True:
            found = (_END_OF_TEXT if self._quoted else _MARK).search(line, place)
            if found is None:
                return line[start:]
            mark, place = found.group(), found.end()
            if self._quoted:
                place += mark == b"\\"
                self._quoted = mark == b"\\"
            elif mark == b'"':
                self._quoted = True
                if self._depth == self._base and not self._parts:
                    self._began = number
            elif mark in b"{[":
                if self._depth == self._base:
                    yield from _loose(number, line[start : place - 1])
                    start, self._began = place - 1, number
                self._depth += 1
            else:
                yield from self._close(number, line[start:place])
                if self._depth == self._base:
                    start = place

    def _close(self, number: int, text: bytes) -> Iterator[tuple[int, bytes]]:
        self._depth -= 1
        if self._depth == self._base:
            yield self._began, b"\n".join([*self._parts, text])
            self._parts, self._held = [], 0
        elif self._depth < self._base:  # the end of the array
            yield from _loose(number, text[:-1])
            self._base = self._depth = 0

    def _keep(self, rest: bytes) -> None:
        self._parts.append(rest)
        self._held += len(rest)
        if self._held > MAX_VALUE_BYTES:
            raise UsageError(
                f"a value of more than {MAX_VALUE_BYTES // 2**20} MiB",
                where=f"{self._path}:{self._began}",
                hint="write one item a line (JSON Lines)",
            )


def _loose(number: int, text: bytes) -> Iterator[tuple[int, bytes]]:
    if rest := text.strip().strip(b",").strip():
        yield number, b"[%s]" % rest  # no object, and told as such
