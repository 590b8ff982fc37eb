"""A file becomes a Workload: every row read is a row kept or a row dropped by a named reason, and nothing is guessed.

Complaints are collected (up to 20) so that a file is put right in one go. It must not know how a workload is sent.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from benchlab.errors import UsageError
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem
from benchlab.workload.lines import Lines
from benchlab.workload.rows import DroppedError, RowError, parse_object
from benchlab.workload.traces import UNITS_NS, Context, Format, Timed, csv_rows, detect_csv, detect_json

MAX_COMPLAINTS = 20
MAX_LISTED = 1000
REJECTED = "rejected (see the complaints)"
_PEEK = 64


@dataclass(frozen=True, slots=True)
class Workload:
    """The items of a file, and the facts about their reading.

    sha256: of the file as it lies. read = kept + the sum of dropped, in rows (a row of turns makes several items).
    timed: the items have arrival times. complaints: what lenient reading left out, by line. notes: sentences to print.
    """

    items: list[WorkloadItem]
    path: str
    sha256: str
    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    timed: bool = False
    format: str = "rows"
    time_unit: str | None = None
    inversions: int = 0
    notes: tuple[str, ...] = ()

    @property
    def span_s(self) -> float | None:
        """Seconds from the first to the last arrival, None where there are no times."""
        times = [item.arrival_s for item in self.items if item.arrival_s is not None]
        return max(times) - min(times) if times else None


def read_items(
    path: str | Path,
    *,
    lenient: bool = False,
    allow_unknown: bool = False,
    time_unit: str | None = None,
    block_tokens: int | None = None,
) -> Workload:
    """Read a workload or a known trace, plain, gzip or zstd.

    lenient: leave broken rows out, counted and listed. time_unit: s, ms, us or ns, for files that do not say.
    Raises UsageError (exit 2) with up to 20 complaints, each with file, line and field.
    """
    if time_unit is not None and time_unit not in UNITS_NS:
        raise UsageError(f"'{time_unit}' is not a unit of time", where="--time-unit", hint="use s, ms, us or ns")
    if block_tokens is not None and block_tokens < 1:
        raise UsageError(f"a block of {block_tokens} tokens", where="--block-tokens", hint="give 1 or more")
    context = Context(time_unit=time_unit, block_tokens=block_tokens, allow_unknown=allow_unknown)
    return _Reading(str(path), context, lenient).workload()


class _Reading:
    """One pass over one file."""

    def __init__(self, path: str, context: Context, lenient: bool) -> None:
        self._path, self._context, self._lenient = path, context, lenient
        self._found: list[tuple[int, Timed]] = []
        self._complaints: list[tuple[int, str]] = []
        self._dropped: dict[str, int] = {}
        self._read = self._kept = 0
        self._first_line: dict[str, int] = {}

    def workload(self) -> Workload:
        lines = Lines(self._path)
        kind = ""
        numbered = ((number, line) for number, line in lines if line.strip())
        form, rows = self._rows(numbered)
        self._context.time_unit = self._context.time_unit or form.time_unit
        self._context.block_tokens = self._context.block_tokens or form.block_tokens
        self._context.drop_zero = form.drop_zero
        for number, row in rows:
            self._read += 1
            self._take(number, row, form)
        self._check_times()
        self._finish()
        items, inversions, origin = self._timed_items(form)
        kind = form.name
        result = Workload(
            items=items,
            path=self._path,
            sha256=lines.sha256,
            read=self._read,
            kept=self._kept,
            dropped=self._dropped,
            complaints=tuple(self._told()),
            timed=any(item.arrival_s is not None for item in items),
            format=kind,
            time_unit=self._context.time_unit if form.trace else None,
            inversions=inversions,
        )
        return replace(result, notes=tuple(self._notes(result, form, origin)))

    def _rows(
        self, numbered: Iterator[tuple[int, bytes]]
    ) -> tuple[Format, Iterable[tuple[int, dict[str, Any] | RowError]]]:
        head = list(itertools.islice(numbered, 1))
        if not head:
            raise UsageError("holds no items (the file is empty)", where=self._path, hint="write one JSON item a line")
        first = head[0][1].lstrip()
        if self._path.lower().removesuffix(".gz").removesuffix(".zst").endswith(".txt") and not first.startswith(b"{"):
            return detect_json([], self._context, self._path), map(_prompt, itertools.chain(head, numbered))
        if not first.startswith((b"{", b"[", b'"')) and b"," in first and _is_text(first):
            return detect_csv(header := self._header(first.decode()), self._path), csv_rows(header, _texts(numbered))
        head += itertools.islice(numbered, _PEEK - 1)
        parsed = [row for _, row in map(_json, head) if isinstance(row, dict)]
        return detect_json(parsed, self._context, self._path), map(_json, itertools.chain(head, numbered))

    def _header(self, line: str) -> list[str]:
        try:
            return [name.strip() for name in next(csv.reader([line], strict=True), [])]
        except csv.Error as fault:
            hint = "write the names of the columns in the first line, and end lines with LF or CRLF"
            raise UsageError(f"the header is not CSV: {fault}", where=f"{self._path}:1", hint=hint) from None

    def _take(self, number: int, row: dict[str, Any] | RowError, form: Format) -> None:
        try:
            if isinstance(row, RowError):
                raise row
            found = form.convert(row, self._context)
            found = [self._named(number, place, timed, len(found)) for place, timed in enumerate(found, 1)]
        except DroppedError as reason:
            self._dropped[str(reason)] = self._dropped.get(str(reason), 0) + 1
        except RowError as complaint:
            self._complain(number, str(complaint))
        else:
            self._kept += 1
            self._found += [(number, timed) for timed in found]

    def _named(self, number: int, place: int, timed: Timed, of: int) -> Timed:
        name = timed.item.id or (str(number) if of == 1 else f"{number}.{place}")
        seen = self._first_line.setdefault(name, number)
        if seen != number:
            raise RowError(f"id: '{name[:60]}' is also the id of line {seen}; expected each id once")
        item = timed.item
        if item.id:
            return timed
        depends = [f"{number}.{place - 1}"] if place > 1 else None
        return Timed(msgspec.structs.replace(item, id=name, depends_on=depends or item.depends_on), timed.source_ns)

    def _complain(self, number: int, text: str) -> None:
        self._complaints.append((number, text))
        self._dropped[REJECTED] = self._dropped.get(REJECTED, 0) + 1
        if not self._lenient and len(self._complaints) >= MAX_COMPLAINTS:
            self._finish()

    def _check_times(self) -> None:
        """Times in all rows or in none: a row without one would be sent at the start."""
        if not any(_has_time(timed) for _, timed in self._found):
            return
        without = [number for number, timed in self._found if not _has_time(timed) and not _is_later(timed.item)]
        gone = set(without)
        for number in sorted(gone):
            self._kept -= 1
            self._complain(number, "arrival_s: missing, but other rows have a time; expected it in all rows or in none")
        if gone:
            self._found = [pair for pair in self._found if pair[0] not in gone]

    def _told(self) -> list[str]:
        return [f"{self._path}:{number}: {text}" for number, text in sorted(self._complaints)[:MAX_LISTED]]

    def _finish(self) -> None:
        """Raises UsageError if the file cannot be used as it is."""
        told = "\n  ".join(self._told()[:MAX_COMPLAINTS])
        if self._complaints and not self._lenient:
            many = len(self._complaints)
            what = f"{many} row{'s' * (many > 1)} cannot be used" + " (stopped here)" * (many >= MAX_COMPLAINTS)
            hint = "correct these lines, or pass --lenient to leave such rows out (they are counted and listed)"
            if "unknown field" in told:
                hint += "; --allow-unknown ignores unknown fields"
            raise UsageError(f"{what}:\n  {told}", where=self._path, hint=hint)
        if not self._kept:
            why = ", ".join(f"{count} {reason}" for reason, count in self._dropped.items())
            raise UsageError(
                f"none of {self._read} rows can be used: {why}" + (f"\n  {told}" if told else ""),
                where=self._path,
                hint="write one JSON item a line, for example "
                '{"id": "1", "prompt": "List three colours.", "output_tokens": 32}',
            )

    def _timed_items(self, form: Format) -> tuple[list[WorkloadItem], int, float]:
        """Items in order of arrival (stable), how many neighbours were out of order, and the origin in s."""
        times = [timed.source_ns for _, timed in self._found if timed.source_ns is not None]
        origin = min(times, default=0)
        items = []
        for _, timed in self._found:
            item = timed.item
            if timed.source_ns is not None:
                item = msgspec.structs.replace(item, arrival_s=(timed.source_ns - origin) / NS_PER_S)
            items.append(item)
        arrivals = [item.arrival_s for item in items if item.arrival_s is not None]
        inversions = sum(after < before for before, after in itertools.pairwise(arrivals))
        if inversions:
            items = _sorted(items)
        return items, inversions, origin / NS_PER_S

    def _notes(self, workload: Workload, form: Format, origin: float) -> Iterator[str]:
        span = workload.span_s
        if span is not None:
            unit = f" (time unit: {workload.time_unit}, by {self._unit_by(form)})" if form.trace else ""
            rate = f"{(len(workload.items) - 1) / span:.3f} requests/s" if span > 0 else "all at once"
            yield f"{len(workload.items):,} items over {span:,.3f} s, {rate}{unit}"
        if form.trace and origin:
            yield "times count from the first arrival"
        if workload.inversions:
            yield f"{workload.inversions:,} neighbouring rows were out of order; sorted by arrival, stably"
        if self._context.block_tokens and self._context.roundings != {"ceil", "floor"}:
            rounding = " or ".join(sorted(self._context.roundings))
            yield f"prefix blocks of {self._context.block_tokens} tokens, counted by {rounding}"
        for reason, count in sorted(workload.dropped.items()):
            yield f"{count:,} rows dropped: {reason}"

    def _unit_by(self, form: Format) -> str:
        return "the format" if form.name in ("mooncake", "azure", "burstgpt") else "--time-unit"


def _json(pair: tuple[int, bytes]) -> tuple[int, dict[str, Any] | RowError]:
    try:
        return pair[0], parse_object(pair[1])
    except RowError as fault:
        return pair[0], fault


def _prompt(pair: tuple[int, bytes]) -> tuple[int, dict[str, Any] | RowError]:
    if not _is_text(pair[1]):
        return pair[0], RowError("is not UTF-8 text")
    return pair[0], {"prompt": pair[1].decode()}


def _texts(numbered: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    for number, line in numbered:
        yield number, line.decode(errors="replace").replace("\0", "�")


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in line


def _has_time(timed: Timed) -> bool:
    return timed.source_ns is not None or timed.item.arrival_s is not None


def _is_later(item: WorkloadItem) -> bool:
    """A later turn of a session starts when the one before has ended, so it needs no arrival."""
    return bool(item.depends_on) or item.wait_s is not None or (item.turn or 0) > 1


def _sorted(items: list[WorkloadItem]) -> list[WorkloadItem]:
    """By arrival, stably; a later turn without a time stays behind the row it followed."""
    keys, last = [], 0.0
    for item in items:
        last = item.arrival_s if item.arrival_s is not None else last
        keys.append(last)
    return [items[place] for place in sorted(range(len(items)), key=keys.__getitem__)]


def write_items(items: Iterable[WorkloadItem], path: str | Path) -> None:
    """Write items as JSON Lines, the same bytes on every machine. Raises UsageError where that is not possible."""
    encoder = msgspec.json.Encoder()
    try:
        with open(path, "wb") as file:
            for item in items:
                file.write(encoder.encode(item) + b"\n")
    except OSError as fault:
        raise UsageError(f"cannot be written: {fault}", where=str(path)) from fault
