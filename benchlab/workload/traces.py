"""What other people's files look like: a table of formats, told apart by their key sets, and how a row becomes native.

A format fixes its unit of time and its block size, for both are guessed wrongly by a thousandfold and by 32 times
where they are guessed from the numbers. Doubt is an error that names the candidates. It must not open files.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from benchlab.errors import UsageError
from benchlab.workload.item import FIELDS, WorkloadItem
from benchlab.workload.rows import DroppedError, RowError, block_counts, clip, to_item, unknown_field

UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

SPELLINGS: dict[str, tuple[str, ...]] = {
    "prompt": ("text", "text_input"),
    "input_tokens": ("input_length", "prompt_tokens_count", "input_tokens_count"),
    "output_tokens": ("output_length", "max_tokens", "output_len", "output_tokens_count", "completion_tokens"),
    "prefix_blocks": ("hash_ids",),
    "block_tokens": ("block_size",),
    "session": ("session_id",),
    "id": ("request_id",),
}
"""Native name -> spellings of others that mean the same."""

_NATIVE = {theirs: ours for ours, spellings in SPELLINGS.items() for theirs in spellings}
_TIMES = ("timestamp", "timestamp_ms")
_KNOWN = (*FIELDS, *_NATIVE, *_TIMES)


@dataclass(frozen=True, slots=True)
class Timed:
    """An item with the instant of its source in ns (any origin), None where the row has none."""

    item: WorkloadItem
    source_ns: int | None = None


@dataclass(slots=True)
class Context:
    """What the rows of one file share: the units in force, and what earlier rows have settled."""

    time_unit: str | None = None
    block_tokens: int | None = None
    allow_unknown: bool = False
    drop_zero: bool = False
    roundings: set[str] = field(default_factory=lambda: {"ceil", "floor"})
    partial: dict[int, int] = field(default_factory=dict)
    full: set[int] = field(default_factory=set)
    named: dict[str, int] = field(default_factory=dict)


Convert = Callable[[dict[str, Any], Context], list[Timed]]


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file. `time_unit`: fixed by the format, None where it has no times or the user must say."""

    name: str
    convert: Convert
    time_unit: str | None = None
    block_tokens: int | None = None
    drop_zero: bool = False
    trace: bool = False
    """Times are the source's: they are rebased to the first and sorted."""


def _wall_ns(text: str) -> int:
    """An ISO date and time with up to nine digits of fraction, as ns since 1970; without a zone it is UTC."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", text.strip())
    if found is None:
        raise RowError(f"TIMESTAMP: expected a date and time such as 2024-05-10 00:00:00.009930, got {clip(text)}")
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in (None, 'Z') else zone}")
    except ValueError:
        raise RowError(f"TIMESTAMP: expected a date that exists, got {clip(text)}") from None
    whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400 + whole.seconds) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def _count(row: dict[str, Any], name: str) -> int:
    text = row.get(name)
    try:
        count = int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RowError(f"{name}: expected int >= 0, got {clip(text)}") from None
    if not 0 <= count < 2**31:
        raise RowError(f"{name}: expected int >= 0, got {clip(text)}")
    return count


def scaled_ns(value: object, unit: str, name: str) -> int:
    """A time of the source in ns. Raises RowError for what is not a finite number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise RowError(f"{name}: expected a time in {unit}, a number >= 0, got {clip(value)}")
    ns = UNITS_NS[unit]
    return value * ns if isinstance(value, int) else round(value * ns)


def _sizes(input_tokens: int, output_tokens: int) -> None:
    if input_tokens == 0 and output_tokens == 0:
        raise DroppedError("no input and no output tokens")
    if input_tokens == 0:
        raise DroppedError("no input tokens")
    if output_tokens == 0:
        raise DroppedError("no output tokens (a failed request of the source)")


def _azure(row: dict[str, Any], context: Context) -> list[Timed]:
    ns = _wall_ns(str(row.get("TIMESTAMP") or ""))
    asked, answered = _count(row, "ContextTokens"), _count(row, "GeneratedTokens")
    _sizes(asked, answered)
    return [Timed(WorkloadItem(input_tokens=asked, output_tokens=answered), ns)]


def _burstgpt(row: dict[str, Any], context: Context) -> list[Timed]:
    try:
        seconds = float(row.get("Timestamp") or "")
    except ValueError:
        raise RowError(f"Timestamp: expected seconds, got {clip(row.get('Timestamp'))}") from None
    ns = scaled_ns(seconds, context.time_unit or "s", "Timestamp")
    asked, answered = _count(row, "Request tokens"), _count(row, "Response tokens")
    _sizes(asked, answered)
    session = row.get("Session ID") or None
    return [Timed(WorkloadItem(input_tokens=asked, output_tokens=answered, session=session), ns)]


def _lengths(row: dict[str, Any], context: Context) -> list[Timed]:
    asked, answered = _count(row, "num_prefill_tokens"), _count(row, "num_decode_tokens")
    _sizes(asked, answered)
    return [Timed(WorkloadItem(input_tokens=asked, output_tokens=answered))]


def _rows(row: dict[str, Any], context: Context) -> list[Timed]:
    """A JSON row in our names or in known spellings of others."""
    native: dict[str, Any] = {}
    names: dict[str, str] = {}
    source_ns: int | None = None
    for name, value in row.items():
        ours = _NATIVE.get(name, name)
        if name in _TIMES:
            if value is not None:
                unit = "ms" if name == "timestamp_ms" else context.time_unit
                source_ns = scaled_ns(value, unit or "s", name)
        elif ours in FIELDS:
            if ours in native:
                raise RowError(f"{name}: says the same as {names[ours]}; expected one of them")
            native[ours], names[ours] = value, name
        elif not context.allow_unknown:
            raise RowError(unknown_field(name, _KNOWN))
    if context.drop_zero:
        zero = [
            name for name in ("input_tokens", "output_tokens") if type(native.get(name)) is int and not native[name]
        ]
        if zero:
            _sizes(*(0 if name in zero else 1 for name in ("input_tokens", "output_tokens")))
    if isinstance(native.get("id"), int):
        native["id"] = str(native["id"])
    theirs = names.get("prefix_blocks", "") == "hash_ids"
    if theirs:
        native["prefix_blocks"] = _block_ids(native["prefix_blocks"], context)
        native.setdefault("block_tokens", context.block_tokens)
    item = to_item(native, names=names)
    if theirs:
        _fit(item, context)
    return [Timed(item, source_ns)]


def _block_ids(ids: object, context: Context) -> list[int]:
    """Ids as integers; those that are texts get numbers below zero, in order of their first use."""
    if not isinstance(ids, list):
        raise RowError(f"hash_ids: expected a list of ids, got {clip(ids)}")
    if all(type(one) is int for one in ids):
        return ids
    if not all(isinstance(one, int | str) and not isinstance(one, bool) for one in ids):
        raise RowError(f"hash_ids: expected integers or texts, got {clip(ids)}")
    return [one if isinstance(one, int) else context.named.setdefault(one, -1 - len(context.named)) for one in ids]


def _fit(item: WorkloadItem, context: Context) -> None:
    """The ids must be as many as full blocks (floor) or as blocks begun (ceil), the same way in the whole file, and
    one id must stand for one size."""
    ids, size, tokens = item.prefix_blocks or [], item.block_tokens or 1, item.input_tokens or 0
    floor, ceil = block_counts(tokens, size)
    fits = {name for name, count in (("floor", floor), ("ceil", ceil)) if count == len(ids)}
    if not fits:
        wanted = f"{ceil}" if floor == ceil else f"{floor} or {ceil}"
        raise RowError(f"hash_ids: expected {wanted} ids of {size} tokens for {tokens} tokens, got {len(ids)}")
    if not fits & context.roundings:
        raise RowError(
            f"hash_ids: {len(ids)} ids round {fits.pop()}, but earlier rows round {next(iter(context.roundings))}"
        )
    rest = tokens - (len(ids) - 1) * size if ids and len(ids) > floor else size
    if rest < size:
        if ids[-1] in context.full or context.partial.get(ids[-1], rest) != rest:
            raise RowError(f"hash_ids: block {ids[-1]} has {rest} tokens here and another size in an earlier row")
        context.partial[ids[-1]] = rest
    whole = ids if rest == size else ids[:-1]
    clash = next((one for one in whole if one in context.partial), None) if context.partial else None
    if clash is not None:
        raise RowError(f"hash_ids: block {clash} has {size} tokens here and {context.partial[clash]} in an earlier row")
    context.roundings &= fits
    context.full.update(whole)


def _turns(row: dict[str, Any], context: Context) -> list[Timed]:
    """A session a line. A leading system turn is no request: it goes in front of each turn of the user."""
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns:
        raise RowError(f"turns: expected a list of turns, got {clip(turns)}")
    session = row.get("session_id", row.get("session"))
    if session is not None and not isinstance(session, str):
        raise RowError(f"session_id: expected str, got {clip(session)}")
    head: list[dict[str, Any]] = []
    items: list[Timed] = []
    for place, given in enumerate(turns):
        turn = {"text": given} if isinstance(given, str) else given
        if not isinstance(turn, dict):
            raise RowError(f"turns[{place}]: expected a text or an object, got {clip(turn)}")
        message = {"role": turn.get("role", "user"), "content": turn.get("text", turn.get("content"))}
        if message["role"] in ("system", "developer") and not items:
            head.append(message)
            continue
        native = {"messages": [*head, message], "session": session, "turn": len(items) + 1}
        native["output_tokens"] = turn.get("output_length", turn.get("output_tokens"))
        items.append(Timed(to_item(native)))
    if not items:
        raise RowError("turns: expected a turn of the user; a system turn alone is not a request")
    return items


ROWS = Format("rows", _rows)
TURNS = Format("sessions (turns)", _turns)
MOONCAKE = Format("mooncake", _rows, "ms", 512, drop_zero=True, trace=True)
AZURE = Format("azure", _azure, "wall clock", drop_zero=True, trace=True)
BURSTGPT = Format("burstgpt", _burstgpt, "s", drop_zero=True, trace=True)
LENGTHS = Format("lengths (etalon)", _lengths, drop_zero=True)

_CSV: tuple[tuple[frozenset[str], Format], ...] = (
    (frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), AZURE),
    (frozenset({"Timestamp", "Request tokens", "Response tokens"}), BURSTGPT),
    (frozenset({"num_prefill_tokens", "num_decode_tokens"}), LENGTHS),
)
_LATER: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"chat_id", "parent_chat_id"}), "Bailian"),
    (frozenset({"requests", "block_size"}), "weka (kv-cache-tester)"),
    (frozenset({"prefix_tokens", "newly_append_tokens"}), "TraceLab"),
    (frozenset({"conversations"}), "ShareGPT"),
    (frozenset({"custom_id", "body"}), "OpenAI batch"),
    (frozenset({"spans"}), "OpenTelemetry"),
)


def detect_csv(header: list[str], where: str) -> Format:
    """The format by the names of its columns, wherever they stand. Raises UsageError with the candidates."""
    for wanted, kind in _CSV:
        if wanted <= set(header):
            return kind
    wanted_text = "; ".join(f"{kind.name}: {', '.join(sorted(names))}" for names, kind in _CSV)
    raise UsageError(
        f"no known CSV: columns are {clip(', '.join(header), 120)}",
        where=where,
        hint=f"name the columns as one of: {wanted_text}; or write JSON Lines",
    )


def detect_json(rows: list[dict[str, Any]], context: Context, where: str) -> Format:
    """The format by the keys of the first rows. Raises UsageError with the candidates where two would fit."""
    keys = set(rows[0]) if rows else set()
    for wanted, name in _LATER:
        if wanted <= keys:
            raise UsageError(
                f"is a {name} file, which is not read yet", where=where, hint="convert it to JSON Lines items"
            )
    if "hash_ids" in keys and isinstance(rows[0]["hash_ids"], dict):
        raise UsageError(
            "is a RAGPulse file, which is not read yet", where=where, hint="convert it to JSON Lines items"
        )
    if "turns" in keys:
        return TURNS
    timed = [row for row in rows if "timestamp" in row]
    if not timed:
        if context.block_tokens is None and any("hash_ids" in row and "block_size" not in row for row in rows):
            raise UsageError(
                "hash_ids without the size of a block", where=where, hint="give --block-tokens 512 (or 16, 64)"
            )
        return ROWS
    blocks = [row for row in timed if "hash_ids" in row]
    if blocks and context.block_tokens is None:
        return _mooncake_like(blocks, where)
    if context.time_unit is None:
        raise UsageError(
            "timestamp: the unit is not known (ms in Mooncake and aiperf files, s in vLLM, GuideLLM and Bailian files)",
            where=where,
            hint="give --time-unit ms or --time-unit s; the span is told before the run",
        )
    return Format("rows with times", _rows, context.time_unit, context.block_tokens, trace=True)


def _mooncake_like(rows: list[dict[str, Any]], where: str) -> Format:
    fits = [size for size in (512, 64, 16) if all(_fits(row, size) for row in rows)]
    if fits == [512]:
        return MOONCAKE
    raise UsageError(
        "timestamp, input_length and hash_ids, but "
        + ("the blocks fit " + " and ".join(map(str, fits)) + " tokens" if fits else "no known block size fits"),
        where=where,
        hint="candidates: Mooncake (ms, 512), vLLM timed_trace (s, 16), ServeGen (16), weka (s, 64); "
        "say --time-unit and --block-tokens",
    )


def _fits(row: dict[str, Any], size: int) -> bool:
    tokens, ids = row.get("input_length", row.get("input_tokens")), row.get("hash_ids")
    if not isinstance(tokens, int) or not isinstance(ids, list):
        return True  # the row's own complaint comes later
    return len(ids) in block_counts(tokens, size)


def csv_rows(header: list[str], lines: Iterable[tuple[int, str]]) -> Iterable[tuple[int, dict[str, Any] | RowError]]:
    """Each line as a row by the names of the columns; a line with other than so many cells is a RowError."""
    for number, line in lines:
        try:
            cells = next(csv.reader([line], strict=True), [])
        except csv.Error as fault:
            yield number, RowError(f"is not CSV: {fault}")
            continue
        if len(cells) != len(header):
            yield number, RowError(f"expected {len(header)} cells, got {len(cells)}")
        else:
            yield number, dict(zip(header, cells, strict=True))
