"""One pass over one file (or a folder of files of one kind): rows to columns, complaints by line, then the order.

The one idea: a sound line takes the fast way of its format straight into the columns, and any other line the slow way,
which says what is wrong. What only the whole file can tell (blocks, ids, times) is checked when it has been read. It
must not know what the formats are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from benchlab.errors import UsageError
from benchlab.workload import blocks
from benchlab.workload.columns import FILE_SHIFT, NO_TIME, Columns
from benchlab.workload.detect import named
from benchlab.workload.formats import Context, Format, Timed
from benchlab.workload.item import WorkloadItem
from benchlab.workload.items import LazyItems
from benchlab.workload.rows import DroppedError, RowError, parse_object
from benchlab.workload.sources import Source, files_of, folder_digest

MAX_COMPLAINTS = 20
MAX_LISTED = 1000
REJECTED = "rejected (see the complaints)"


class Reading:
    """What has been read so far, and what is to be told of it."""

    form: Format
    items: LazyItems

    def __init__(self, path: str, context: Context, lenient: bool, form: str | None) -> None:
        self.path, self.context, self.lenient = path, context, lenient
        self.columns = Columns()
        self.read = self.kept = self.inversions = 0
        self.dropped: dict[str, int] = {}
        self.sha256 = ""
        self.timed = False
        self._forced = None if form is None else named(form)
        self._unit_said = context.time_unit is not None
        self._complaints: list[tuple[int, str]] = []
        self._rounding: str | None = None
        self._origin_ns = 0
        self._paths: list[str] = []
        self._empty = 0

    def run(self) -> None:
        """Read everything. Raises UsageError for what cannot be used as it is."""
        self._paths, folder = files_of(self.path)
        self.columns.files = [path.rsplit("/", 1)[-1].split(".")[0] for path in self._paths]
        digests = []
        for index, path in enumerate(self._paths):
            self.context.path = path
            source = Source(path, self.context, self._forced, skip_empty=folder)
            if source.form is None:
                self._empty += 1
            else:
                self._set(source.form, path)
                self._rows(source, index << FILE_SHIFT)
            digests.append(source.digest())
        if not hasattr(self, "form"):
            raise UsageError("holds no items", where=self.path, hint="write one JSON item a line")
        self.sha256 = folder_digest(self._paths, digests) if folder else digests[0]
        if self.form.finish is not None:
            for line, timed in self.form.finish(self.context):
                self.columns.put_item(line, timed.item, timed.source_ns)
                self.read, self.kept = self.read + 1, self.kept + 1
        for reason, count in self.context.drops.items():
            self.read += count
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        bad = self._check_blocks() | self._check_names()
        bad |= self._check_times(bad)
        self._finish()
        self._put_in_order(bad)

    def _set(self, form: Format, path: str) -> None:
        """The format of the first file holds for all of a folder; another one in it is doubt."""
        if not hasattr(self, "form"):
            self.form = form
            context = self.context
            context.time_unit = context.time_unit or form.time_unit
            context.block_tokens = context.block_tokens or form.block_tokens
            context.drop_zero = form.drop_zero
        elif form.name != self.form.name:
            raise UsageError(
                f"is {form.name}, but the files before are {self.form.name}", where=path, hint="one folder, one format"
            )

    def _rows(self, source: Source, base: int) -> None:
        columns, parse = self.columns, source.parse
        put = source.quick(self.context)
        state = self.context.state
        for number, line in source:
            if put is not None and put(line, base | number, columns):
                self.read += 1
                self.kept += 1
                continue
            state["line"] = base | number
            place = source.place(number, line) if len(self._paths) == 1 else None
            for row in parse(line):
                self._take(base | number, row, place)

    def _take(self, line: int, row: dict[str, Any] | RowError, place: tuple[int, int] | None) -> None:
        by_item = self.form.by_item
        if not by_item:
            self.read += 1
        try:
            if isinstance(row, RowError):
                raise row
            found = self.form.convert(row, self.context)
            for at, timed in enumerate(found, 1):
                item = _named(timed, line, at, len(found))
                self.columns.put_item(line, item, timed.source_ns, theirs=timed.theirs, place=place)
        except DroppedError as reason:
            self.read += by_item
            self.dropped[str(reason)] = self.dropped.get(str(reason), 0) + 1
        except RowError as complaint:
            self.read += by_item
            self._complain(line, str(complaint))
        except RecursionError:
            self.read += by_item
            self._complain(line, "is nested too deeply")
        else:
            self.kept += len(found) if by_item else 1
            self.read += len(found) if by_item else 0

    def _complain(self, line: int, text: str) -> None:
        self._complaints.append((line, text))
        self.dropped[REJECTED] = self.dropped.get(REJECTED, 0) + 1
        if not self.lenient and len(self._complaints) >= MAX_COMPLAINTS:
            self._finish()

    def _reject(self, told: dict[int, str]) -> set[int]:
        """Take rows out again, with all items of the same line; returns their places in the columns."""
        if not told:
            return set()
        lines: dict[int, str] = {}
        for row in sorted(told):
            lines.setdefault(self.columns.line[row], told[row])
        gone = set(np.flatnonzero(np.isin(self.columns.view("line"), list(lines))).tolist())
        for line, text in lines.items():
            self._complaints.append((line, text))
        count = len(gone) if self.form.by_item else len(lines)
        self.kept -= count
        self.dropped[REJECTED] = self.dropped.get(REJECTED, 0) + count
        return gone

    def _check_blocks(self) -> set[int]:
        told, self._rounding = blocks.check(self.columns)
        return self._reject(told)

    def _check_names(self) -> set[int]:
        """Each id once, the line numbers that stand for missing ids included."""
        columns, left = self.columns, self.columns.left
        names = columns.names
        unread = 0
        if len(left.rows):
            keys = np.asarray(left.keys)
            known = np.unique(np.array([hash(name) for name in names.values()], dtype=np.int64))
            distinct, number = np.unique(keys, return_counts=True)
            odd = (np.isin(keys, distinct[number > 1]) | np.isin(keys, known)) & (keys != -1)
            for row in np.asarray(left.rows)[odd].tolist():  # one hash may stand for two ids: look
                names[row] = self._again(*(left.place(row) or (0, 0))).id
            unread = int((keys != -1).sum() - odd.sum())
        all_named = len(names) + unread == len(columns)
        like_a_line = not all_named and any(name.isdecimal() or ":" in name for name in names.values())
        if not names or (not like_a_line and len(set(names.values())) == len(names)):
            return set()
        first: dict[str, int] = {}
        told: dict[int, str] = {}
        for row in range(len(columns)):
            if row not in names and left.named(row):
                continue
            name = columns.name(row)
            seen = first.setdefault(name, row)
            if seen != row:
                where = self._place(columns.line[seen]).rsplit(":", 1)[-1]
                told[row] = f"id: '{name[:60]}' is also the id of line {where}; expected each id once"
        return self._reject(told)

    def _check_times(self, bad: set[int]) -> set[int]:
        """Times in all rows or in none: a row without one would be sent at the start."""
        columns = self.columns
        have = (columns.view("source_ns") != NO_TIME) | ~np.isnan(columns.view("arrival_s"))
        have[list(bad)] = False
        self.timed = bool(have.any())
        if not self.timed or bool(have.all()):
            return set()
        wait, turn = columns.view("wait_s"), columns.view("turn")
        later = ~np.isnan(wait) | (turn > 1)
        later[list(columns.needs)] = True
        later[list(bad)] = True
        without = np.flatnonzero(~have & ~later).tolist()
        text = "arrival_s: missing, but other rows have a time; expected it in all rows or in none"
        return self._reject(dict.fromkeys(without, text))

    def _place(self, line: int) -> str:
        file, number = divmod(line, 1 << FILE_SHIFT)
        return f"{self._paths[file] if self._paths else self.path}:{number}"

    def told(self) -> list[str]:
        """The complaints, each with its file and line."""
        return [f"{self._place(line)}: {text}" for line, text in sorted(self._complaints)[:MAX_LISTED]]

    def _finish(self) -> None:
        """Raises UsageError if the file cannot be used as it is."""
        told = "\n  ".join(self.told()[:MAX_COMPLAINTS])
        if self._complaints and not self.lenient:
            many = len(self._complaints)
            what = f"{many} row{'s' * (many > 1)} cannot be used" + " (stopped here)" * (many >= MAX_COMPLAINTS)
            hint = "correct these lines, or pass --lenient to leave such rows out (they are counted and listed)"
            if "unknown field" in told:
                hint += "; --allow-unknown ignores unknown fields"
            raise UsageError(f"{what}:\n  {told}", where=self.path, hint=hint)
        if not self.read:
            raise UsageError("holds no items", where=self.path, hint="write one JSON item a line")
        if not self.kept:
            why = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
            raise UsageError(
                f"none of {self.read} rows can be used: {why}" + (f"\n  {told}" if told else ""),
                where=self.path,
                hint="write one JSON item a line, for example "
                '{"id": "1", "prompt": "List three colours.", "output_tokens": 32}',
            )

    def _put_in_order(self, bad: set[int]) -> None:
        """Items in order of arrival (stable): a later turn without a time stays behind the row it followed."""
        columns = self.columns
        source, arrival = columns.view("source_ns"), np.array(columns.view("arrival_s"))
        rows = np.arange(len(columns))
        if bad:
            rows = np.delete(rows, sorted(bad))
        has = rows[source[rows] != NO_TIME]
        if len(has):
            self._origin_ns = int(source[has].min())
            arrival[has] = (source[has] - self._origin_ns) / 1e9
        times = arrival[rows]
        known = np.flatnonzero(~np.isnan(times))
        if len(known):
            self.inversions = int((np.diff(times[known]) < 0).sum())
        if self.inversions:
            at = np.zeros(len(rows), dtype=np.int64)
            at[known] = known
            filled = times[np.maximum.accumulate(at)]
            filled[np.isnan(filled)] = 0.0
            rows = rows[np.argsort(filled, kind="stable")]
        if self.form.turn_by_time:
            self._number_turns(rows)
        self.items = LazyItems(columns, rows, arrival, self._again if self.form.again else None)

    def _number_turns(self, rows: Any) -> None:
        columns, turns = self.columns, [0] * len(self.columns.sessions)
        for row in rows[columns.view("session")[rows] >= 0].tolist():
            session = columns.get("session", row)
            turns[session] += 1
            columns.set("turn", row, turns[session])
            whole = columns.whole.get(row)
            if whole is not None:
                columns.whole[row] = msgspec.structs.replace(whole, turn=turns[session])

    def _again(self, offset: int, length: int) -> WorkloadItem:
        """An item whose text was left in the file."""
        try:
            with open(self._paths[0], "rb") as file:
                file.seek(offset)
                return self.form.convert(parse_object(file.read(length)), self.context)[0].item
        except (OSError, RowError, DroppedError, IndexError) as fault:
            raise UsageError(
                f"changed while it was in use: {fault}", where=self.path, hint="leave the file as it is during a run"
            ) from None

    def notes(self) -> Iterator[str]:
        """Sentences about the reading, to print before a run and to store with it."""
        form, context = self.form, self.context
        times = self.items.arrival_s[self.items.rows]
        times = times[~np.isnan(times)]
        if len(times):
            span = float(times.max() - times.min())
            unit = f" (time unit: {context.time_unit}, by {self._unit_by()})" if form.trace else ""
            rate = f"{(len(times) - 1) / span:.3f} requests/s" if span > 0 else "all at once"
            later = len(self.items) - len(times)
            yield f"{len(times):,} items over {span:,.3f} s, {rate}{unit}" + (
                f"; {later:,} more follow earlier turns" if later else ""
            )
        if form.trace and self._origin_ns:
            yield "times count from the first arrival"
        if self.inversions:
            yield f"{self.inversions:,} neighbouring rows were out of order; sorted by arrival, stably"
        if self._rounding is not None:
            sizes = sorted(set(np.unique(self.columns.view("size")).tolist()) - {0})
            yield f"prefix blocks of {' or '.join(map(str, sizes))} tokens, counted by {self._rounding}"
        if len(self._paths) > 1:
            empty = f", {self._empty} of them empty" if self._empty else ""
            yield f"{len(self._paths)} files of a folder{empty}"
        for sentence, count in context.counts.items():
            yield sentence.replace("{n}", f"{count:,}")
        for reason, count in sorted(self.dropped.items()):
            yield f"{count:,} {'row' if count == 1 else 'rows'} dropped: {reason}"

    def _unit_by(self) -> str:
        return "--time-unit" if self._unit_said else self.form.unit_by


def _named(timed: Timed, line: int, place: int, of: int) -> WorkloadItem:
    """An item of a row of several has the row's line and its place as id, and waits for the one before it."""
    item = timed.item
    if item.id or of == 1:
        return item
    file, number = divmod(line, 1 << FILE_SHIFT)
    head = f"{file}:{number}" if file else f"{number}"
    depends = [f"{head}.{place - 1}"] if place > 1 else None
    return msgspec.structs.replace(item, id=f"{head}.{place}", depends_on=depends or item.depends_on)
