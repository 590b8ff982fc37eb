"""The requests of a run as flat arrays, so that ten million token events are judged without a Python loop.

One number a request (float64 nanoseconds, NaN where it did not happen: exact up to 104 days), and one flat array an
event of the stream with the request it belongs to. It knows the file's columns and no metric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchlab.records.event import LIMITED_STATUSES, SHED_STATUSES, VISIBLE, Kind, Outcome

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OUTCOMES = [outcome.value for outcome in Outcome]
KINDS = [kind.value for kind in Kind]
_VISIBLE_CODES = [KINDS.index(kind.value) for kind in Kind if kind in VISIBLE]
NO_COUNT = -1
"""In `tokens`: the server did not say how many tokens this chunk carried."""


def _floats(table: pa.Table, name: str) -> Floats:
    column = pc.cast(table.column(name), pa.float64())
    return np.asarray(pc.fill_null(column, float("nan")).to_numpy(), dtype=np.float64)


def _codes(column: pa.ChunkedArray, words: list[str]) -> npt.NDArray[np.int8]:
    """Each string as its place in `words`, -1 where it is none of them (or null)."""
    parts = [np.zeros(0, dtype=np.int8)]
    for chunk in column.chunks:
        encoded = chunk if isinstance(chunk, pa.DictionaryArray) else chunk.dictionary_encode()
        known = [words.index(word) if word in words else -1 for word in encoded.dictionary.to_pylist()]
        lookup = np.array([*known, -1], dtype=np.int8)
        parts.append(lookup[np.asarray(pc.fill_null(encoded.indices, len(known)).to_numpy(zero_copy_only=False))])
    return np.concatenate(parts)


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    value_type = column.type.value_type
    return pa.chunked_array([chunk.flatten() for chunk in column.chunks], type=value_type)


@dataclass(frozen=True)
class Columns:
    """Arrays over requests, and over events of their streams. Built by `columns_of`; `stage` cuts one stage out.

    Not slotted: what is derived is computed once, when first asked for. `*_ns` are float64 nanoseconds from t0.
    """

    table: pa.Table
    outcome: npt.NDArray[np.int8]
    """Index into OUTCOMES; -1 where the file holds no known outcome."""
    offsets: Ints
    """Events of request i are [offsets[i], offsets[i+1])."""
    chunk_ns: Ints
    slack_ns: Ints
    tokens: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    ragged: int
    """Requests whose chunk lists differ in length: their events are left out, and the audit says so."""
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        """How many requests."""
        return len(self.outcome)

    def number(self, name: str) -> Floats:
        """A numeric column of the requests table as float64, NaN where it is null, or where there is no such column."""
        if name not in self._cache:
            there = name in self.table.column_names
            self._cache[name] = _floats(self.table, name) if there else np.full(self.n, np.nan)
        found: Floats = self._cache[name]
        return found

    def kept(self, key: str, make: Callable[[Columns], Any]) -> Any:
        """What `make` found of these columns, made once."""
        if key not in self._cache:
            self._cache[key] = make(self)
        return self._cache[key]

    def is_outcome(self, *outcomes: Outcome) -> Bools:
        """Which requests ended in one of these."""
        return np.isin(self.outcome, [OUTCOMES.index(outcome.value) for outcome in outcomes])

    def text_is(self, name: str, word: str) -> Bools:
        """Where a string column equals a word (null is not)."""
        return np.asarray(pc.fill_null(pc.equal(self.table.column(name), word), False).to_numpy(), dtype=np.bool_)

    def untold(self, name: str) -> Bools:
        """Which records say that their source could not tell this field."""
        key = f"untold {name}"
        if key not in self._cache:
            mask = np.zeros(self.n, dtype=np.bool_)
            lists = self.table.column("unknown").combine_chunks()
            lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
            lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False))
            rows = np.repeat(np.arange(self.n), lengths)
            words = lists.flatten()
            if len(words):
                mask[rows[np.asarray(pc.equal(words, name).to_numpy(zero_copy_only=False), dtype=np.bool_)]] = True
            self._cache[key] = mask
        found: Bools = self._cache[key]
        return found

    # -- the events that carried text

    @cached_property
    def event_row(self) -> Ints:
        """The request of each event."""
        return np.repeat(np.arange(self.n), np.diff(self.offsets))

    @cached_property
    def visible(self) -> Ints:
        """Places of the events that carried text, in order."""
        return np.flatnonzero(np.isin(self.kind, _VISIBLE_CODES))

    @cached_property
    def visible_row(self) -> Ints:
        """The request of each visible event."""
        return self.event_row[self.visible]

    @cached_property
    def visible_count(self) -> Ints:
        """Visible events a request."""
        return np.bincount(self.visible_row, minlength=self.n).astype(np.int64)

    @cached_property
    def _first_place(self) -> Ints:
        """Where in `visible` the visible events of each request begin (meaningless where it has none)."""
        return np.concatenate([[0], np.cumsum(self.visible_count)[:-1]]).astype(np.int64) if self.n else _none()

    def _pick(self, places: Ints, has: Bools) -> Floats:
        result = np.full(self.n, np.nan)
        result[has] = self.chunk_ns[self.visible[places[has]]]
        return result

    @cached_property
    def first_content_ns(self) -> Floats:
        """Arrival of the first event with text of any kind, ns."""
        return self._pick(self._first_place, self.visible_count > 0)

    @cached_property
    def last_content_ns(self) -> Floats:
        """Arrival of the last event with text of any kind, ns."""
        return self._pick(self._first_place + self.visible_count - 1, self.visible_count > 0)

    @cached_property
    def first_answer_ns(self) -> Floats:
        """Arrival of the first `content` event (reasoning and tool calls are none), ns."""
        result = np.full(self.n, np.nan)
        answers = np.flatnonzero(self.kind == KINDS.index("content"))
        rows, first = np.unique(self.event_row[answers], return_index=True)
        result[rows] = self.chunk_ns[answers[first]]
        return result

    @cached_property
    def text_gaps(self) -> tuple[Ints, Floats]:
        """(request, ns between) of each pair of successive visible events of one request."""
        rows = self.visible_row
        same = rows[1:] == rows[:-1]
        return rows[1:][same], np.diff(self.chunk_ns[self.visible])[same].astype(np.float64)

    @cached_property
    def first_tokens(self) -> Floats:
        """Tokens of the first visible event: at least 1, and 1 where the server did not say."""
        result = np.ones(self.n)
        has = self.visible_count > 0
        result[has] = np.maximum(1, self.tokens[self.visible[self._first_place[has]]])
        return result

    @cached_property
    def visible_tokens(self) -> Floats:
        """Tokens of each visible event: the server's count where it gave one, else an even share of the request's rest.

        A request without any count is taken as one token an event, an estimate that the summary states.
        """
        told = self.tokens[self.visible].astype(np.float64)
        silent = told < 0
        if not silent.any():
            return told
        told[silent] = 0.0
        known = np.bincount(self.visible_row, weights=told, minlength=self.n)
        blanks = np.bincount(self.visible_row, weights=silent.astype(np.float64), minlength=self.n)
        rest = np.maximum(0.0, self.streamed_tokens - known)
        share = np.where(np.isnan(rest), 1.0, rest / np.maximum(blanks, 1.0))
        return np.asarray(np.where(silent, share[self.visible_row], told))

    @cached_property
    def reasoning_shown(self) -> Bools:
        """Which requests streamed any reasoning."""
        return np.isin(np.arange(self.n), self.event_row[self.kind == KINDS.index("reasoning")])

    @cached_property
    def streamed_tokens(self) -> Floats:
        """Output tokens that were streamed: the count less reasoning tokens that were never shown; NaN if unknown."""
        output, reasoning = self.number("output_tokens"), np.nan_to_num(self.number("reasoning_tokens"))
        hidden = np.where(self.reasoning_shown | ~self.text_is("tokens_source", "usage"), 0.0, reasoning)
        return np.asarray(output - hidden)

    # -- what ended when

    @cached_property
    def done_ns(self) -> Floats:
        """When the answer was whole: its last text; for an answer without text, its end. NaN unless ok."""
        done = np.where(np.isnan(self.last_content_ns), self.number("end_ns"), self.last_content_ns)
        return np.where(self.is_outcome(Outcome.OK), done, np.nan)

    @cached_property
    def limited(self) -> Bools:
        """Refused for the caller's quota."""
        return self._refused("limited", LIMITED_STATUSES)

    @cached_property
    def shed(self) -> Bools:
        """Refused for the server's capacity."""
        return self._refused("shed", SHED_STATUSES) & ~self.limited

    def _refused(self, word: str, statuses: frozenset[int]) -> Bools:
        failed = self.is_outcome(Outcome.ERROR_HTTP, Outcome.ERROR_STREAM)
        return failed & (self.text_is("error_kind", word) | np.isin(self.number("http_status"), list(statuses)))


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


def columns_of(table: pa.Table) -> Columns:
    """The arrays of a requests table (the schema of `records.schema.REQUESTS`)."""
    lists = [table.column(name) for name in ("chunk_ns", "chunk_slack_ns", "chunk_tokens", "chunk_kind")]
    lengths = [np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(), dtype=np.int64) for column in lists]
    # A source that gives times alone is not ragged: what it leaves empty is filled with "not known" below.
    keep = [(length == lengths[0]) | (length == 0) for length in lengths]
    ragged = ~np.logical_and.reduce(keep)
    times = np.asarray(_flat(lists[0]).to_numpy(), dtype=np.int64)

    def beside(index: int, values: npt.NDArray[Any], missing: int) -> npt.NDArray[Any]:
        """The values laid beside the times: in place where the lengths agree, `missing` where there are none."""
        if np.array_equal(lengths[index], lengths[0]):
            return values
        full = np.full(len(times), missing, dtype=values.dtype)
        agree = lengths[index] == lengths[0]
        full[np.repeat(agree, lengths[0])] = values[np.repeat(agree, lengths[index])]
        return full

    slack = np.asarray(pc.fill_null(_flat(lists[1]), 0).to_numpy(), dtype=np.int64)
    tokens = np.asarray(pc.fill_null(_flat(lists[2]), NO_COUNT).to_numpy(), dtype=np.int32)
    return Columns(
        table=table,
        outcome=_codes(table.column("outcome"), OUTCOMES),
        offsets=np.concatenate([[0], np.cumsum(lengths[0])]).astype(np.int64),
        chunk_ns=times,
        slack_ns=beside(1, slack, 0),
        tokens=beside(2, tokens, NO_COUNT),
        kind=beside(3, _codes(_flat(lists[3]), KINDS), KINDS.index("content") if not lengths[3].any() else -1),
        ragged=int(ragged.sum()),
    )


def stages_of(table: pa.Table) -> dict[int, Columns]:
    """The arrays of each stage of a run, by stage number, in order."""
    numbers = sorted(number for number in pc.unique(table.column("stage")).to_pylist() if number is not None)
    if len(numbers) == 1 and table.column("stage").null_count == 0:
        return {numbers[0]: columns_of(table)}
    return {number: columns_of(table.filter(pc.equal(table.column("stage"), number))) for number in numbers}
