"""What a kind of file is: how one of its rows becomes items, and what it fixes (unit of time, size of a block).

It must not open files, nor tell one kind from another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchlab.workload.columns import Columns
from benchlab.workload.item import WorkloadItem
from benchlab.workload.rows import DroppedError, RowError, clip
from benchlab.workload.tokens import Counter, estimate

NO_OUTPUT = "no output tokens (a failed request of the source)"


@dataclass(frozen=True, slots=True)
class Timed:
    """An item with the instant of its source in ns (any origin), None where the row has none.

    theirs: it has as many prefix blocks as its length asks for, which is to be checked.
    """

    item: WorkloadItem
    source_ns: int | None = None
    theirs: bool = False


@dataclass(slots=True)
class Context:
    """What the rows of one file share: what is in force, and what earlier rows have settled.

    counter: how the tokens of a recorded answer are counted. state: a format's own memory from row to row. counts:
    things to tell at the end, by sentence with `{n}`. drops: requests left out inside rows, by reason. path: of the
    file being read.
    """

    time_unit: str | None = None
    block_tokens: int | None = None
    allow_unknown: bool = False
    drop_zero: bool = False
    counter: Counter = field(default_factory=estimate)
    state: dict[Any, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    drops: dict[str, int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    path: str = ""

    def count(self, sentence: str) -> None:
        """One more of what the sentence tells."""
        self.counts[sentence] = self.counts.get(sentence, 0) + 1

    def drop(self, reason: str) -> None:
        """One request inside a row is left out (formats whose rows hold many)."""
        self.drops[reason] = self.drops.get(reason, 0) + 1

    def answer_tokens(self, text: object) -> int | None:
        """Tokens of a recorded answer; None where there is no text."""
        if not isinstance(text, str) or not text.strip():
            return None
        self.count(f"{{n}} output lengths counted on recorded answers by {self.counter.source}")
        return max(1, self.counter(text))


Convert = Callable[[dict[str, Any], Context], list[Timed]]
Put = Callable[[bytes, int, Columns], bool]
"""Puts a sound line straight into the columns; False: take the slow way, which says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file. `time_unit`: fixed by the format, None where it has no times or the user must say.

    trace: times are the source's, so they are rebased to the first and sorted. quick: makes the fast way for sound
    lines. finish: items that are known only at the end. turn_by_time: turns of a session are numbered as they arrive.
    again: a row can be converted by itself at any time, so its text may be left in the file. by_item: a row is a whole
    conversation, and what is counted as read, kept and dropped are its requests.
    """

    name: str
    convert: Convert
    time_unit: str | None = None
    block_tokens: int | None = None
    drop_zero: bool = False
    trace: bool = False
    quick: Callable[[Context], Put] | None = None
    finish: Callable[[Context], list[tuple[int, Timed]]] | None = None
    turn_by_time: bool = False
    again: bool = False
    by_item: bool = False
    unit_by: str = "the format"


def count_of(row: dict[str, Any], name: str) -> int:
    """A number of tokens, as a number or as a text. Raises RowError."""
    text = row.get(name)
    try:
        count = int(text)  # type: ignore[arg-type]
        if isinstance(text, bool) or (isinstance(text, float) and text != count):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise RowError(f"{name}: expected int >= 0, got {clip(text)}") from None
    if not 0 <= count < 2**31:
        raise RowError(f"{name}: expected int >= 0, got {clip(text)}")
    return count


def check_sizes(input_tokens: int, output_tokens: int) -> None:
    """Raise DroppedError, with the reason by name, for a row that asks for nothing."""
    if input_tokens == 0 and output_tokens == 0:
        raise DroppedError("no input and no output tokens")
    if input_tokens == 0:
        raise DroppedError("no input tokens")
    if output_tokens == 0:
        raise DroppedError(NO_OUTPUT)


def block_ids(ids: object, context: Context, name: str = "hash_ids") -> list[int]:
    """Ids as integers; those that are texts get numbers below zero, in order of their first use."""
    if not isinstance(ids, list):
        raise RowError(f"{name}: expected a list of ids, got {clip(ids)}")
    found: list[int] = []
    for one in ids:
        if type(one) is int:
            if not -(2**63) <= one < 2**63:
                raise RowError(f"{name}: expected ids of at most 64 bits, or texts, got {clip(one)}")
            found.append(one)
        elif isinstance(one, str):
            found.append(context.named.setdefault(one, -1 - len(context.named)))
        else:
            raise RowError(f"{name}: expected integers or texts, got {clip(ids)}")
    return found


def text_of(row: dict[str, Any], name: str) -> str | None:
    """A field that is a text or absent; a number is taken as its digits. Raises RowError."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise RowError(f"{name}: expected str, got {clip(value)}")
    return value
