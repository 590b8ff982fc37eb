"""Where rows come from: lines of JSON, a table, a JSON document, plain prompts, Parquet; and the files of a folder.

The one idea: whatever the container, a source gives (number, line) and a way to parse a line into rows, and it knows
the format of what it gives. It must not know what a row means.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchlab.errors import UsageError
from benchlab.workload.detect import detect_csv, detect_json, is_table, unwrap
from benchlab.workload.documents import MAX_VALUE_BYTES, Values, is_document
from benchlab.workload.formats import Context, Format, Put
from benchlab.workload.lines import MAX_LINE_BYTES, Lines
from benchlab.workload.read_csv import csv_row, quick_numbers
from benchlab.workload.read_parquet import digest, is_parquet, parquet_rows
from benchlab.workload.rows import RowError, parse_object

_PEEK = 64
_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
Row = dict[str, Any] | RowError


def files_of(path: str) -> tuple[list[str], bool]:
    """The file itself, or those of a folder by name; and whether it was a folder."""
    try:
        if not Path(path).is_dir():
            return [path], False
        names = sorted(str(entry) for entry in Path(path).iterdir() if entry.is_file())
    except (OSError, ValueError):
        return [path], False  # told when it is read
    found = [name for name in names if name.lower().removesuffix(".gz").removesuffix(".zst").endswith(_SUFFIXES)]
    if not found:
        raise UsageError(
            "is a folder without workload files", where=path, hint=f"name a file, or a folder of {', '.join(_SUFFIXES)}"
        )
    return found, True


def folder_digest(paths: list[str], digests: list[str]) -> str:
    """One sha256 of a folder: of its files' names and digests."""
    lines = (f"{Path(path).name}\0{one}\n" for path, one in zip(paths, digests, strict=True))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


class Source:
    """Iterate once for (number from 1, line). form: None for an empty file that may be empty."""

    form: Format | None

    def __init__(self, path: str, context: Context, forced: Format | None, *, skip_empty: bool = False) -> None:
        self._path, self._context, self._forced = path, context, forced
        self._header: list[str] = []
        self._kept_offsets: dict[int, int] = {}
        self._parquet = is_parquet(path)
        self.parse: Callable[[Any], Iterator[Row] | list[Row]] = _json
        long = path.lower().removesuffix(".gz").removesuffix(".zst").endswith(".json")
        self._lines = Lines(path, max_line=MAX_VALUE_BYTES if long else MAX_LINE_BYTES)
        self._by_line = False
        self._rows: Iterator[tuple[int, Any]] = self._open(skip_empty)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self._rows

    def digest(self) -> str:
        """sha256 of the file, once it has been read to its end."""
        return digest(self._path) if self._parquet else self._lines.sha256

    def quick(self, context: Context) -> Put | None:
        """The fast way for sound lines, where the format has one."""
        if self._parquet or self.form is None:
            return None
        if self._header:
            return quick_numbers(self._header, self.form)
        return self.form.quick(context) if self.form.quick is not None else None

    def place(self, number: int, line: bytes) -> tuple[int, int] | None:
        """Where a line can be read again, None where it cannot."""
        if not self._by_line or self._lines.packed:
            return None
        return self._kept_offsets.get(number, self._lines.offset), len(line)

    def _open(self, skip_empty: bool) -> Iterator[tuple[int, Any]]:
        if self._parquet:
            return self._of_parquet()
        numbered: Iterator[tuple[int, bytes]] = ((number, line) for number, line in self._lines if line.strip())
        head = self._peek(numbered, 1)
        if not head:
            if skip_empty:
                self.form = None
                return iter(())
            raise UsageError("holds no items (the file is empty)", where=self._path, hint="write one JSON item a line")
        first = head[0][1].lstrip()
        name = self._path.lower().removesuffix(".gz").removesuffix(".zst")
        if name.endswith(".txt") and not first.startswith(b"{"):
            self.form, self.parse = self._forced or detect_json([], self._context, self._path), _prompt
            return itertools.chain(head, numbered)
        named_table = name.endswith((".csv", ".tsv")) and not first.startswith((b"{", b"["))
        if (named_table or not first.startswith((b"{", b"[", b'"'))) and b"," in first and _is_text(first):
            self._header = self._names(first.decode())
            self.form = self._forced or detect_csv(self._header, self._path)
            self._must_be_table(is_table(self.form), "a table")
            self.parse = self._cells
            return numbered
        if named_table and _is_text(first):
            raise UsageError(
                "the header has no commas",
                where=f"{self._path}:1",
                hint="separate columns by commas, or write JSON Lines",
            )
        if is_document(first):
            numbered = iter(Values(itertools.chain(head, numbered), self._path))
            head = []
        else:
            self._by_line = True
        head += self._peek(numbered, _PEEK - len(head))
        parsed = [row for _, line in head for row in _json(line) if isinstance(row, dict)]
        self.form = self._forced or detect_json(parsed, self._context, self._path)
        self._must_be_table(not is_table(self.form), "JSON")
        return itertools.chain(head, numbered)

    def _peek(self, numbered: Iterator[tuple[int, bytes]], most: int) -> list[tuple[int, bytes]]:
        found = []
        for number, line in itertools.islice(numbered, most):
            self._kept_offsets[number] = self._lines.offset
            found.append((number, line))
        return found

    def _of_parquet(self) -> Iterator[tuple[int, Any]]:
        rows = parquet_rows(self._path)
        head = list(itertools.islice(rows, _PEEK))
        if not head:
            raise UsageError("holds no items (the file is empty)", where=self._path, hint="write one item a row")
        parsed = [one for _, row in head for one in unwrap(row)]
        self.form = self._forced or detect_json(parsed, self._context, self._path)
        self.parse = unwrap  # type: ignore[assignment]
        return itertools.chain(head, rows)

    def _must_be_table(self, fits: bool, found: str) -> None:
        if not fits and self.form is not None:
            raise UsageError(
                f"is {found}, and {self.form.name} is not", where=self._path, hint="leave --from out, or name another"
            )

    def _names(self, line: str) -> list[str]:
        try:
            return [name.strip() for name in next(csv.reader([line], strict=True), [])]
        except csv.Error as fault:
            hint = "write the names of the columns in the first line, and end lines with LF or CRLF"
            raise UsageError(f"the header is not CSV: {fault}", where=f"{self._path}:1", hint=hint) from None

    def _cells(self, line: bytes) -> list[Row]:
        return [csv_row(self._header, line.decode(errors="replace").replace("\0", "�"))]


def _json(line: bytes) -> list[Row]:
    try:
        return list(unwrap(parse_object(line)))
    except RowError as fault:
        return [fault]


def _prompt(line: bytes) -> list[Row]:
    return [{"prompt": line.decode()} if _is_text(line) else RowError("is not UTF-8 text")]


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in line
