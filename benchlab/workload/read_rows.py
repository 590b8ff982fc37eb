"""JSON rows in our own names or in known spellings of others, with or without times and blocks; sessions a line.

Serves our own format, Mooncake, aiperf, GenAI-Perf, vLLM's custom and timed_trace, GuideLLM, SGLang, Dynamo and
ServeGen's batch jobs: they differ in spelling, unit and block size. It must not open files.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchlab.errors import UsageError
from benchlab.workload.columns import NATIVE, NO_TIME, THEIRS, Columns
from benchlab.workload.formats import Context, Format, Put, Timed, block_ids, check_sizes
from benchlab.workload.item import FIELDS, MAX_TOKENS
from benchlab.workload.rows import RowError, clip, to_item, unknown_field
from benchlab.workload.times import UNITS_NS, scaled_ns

SPELLINGS: dict[str, tuple[str, ...]] = {
    "prompt": ("text", "text_input"),
    "input_tokens": ("input_length", "prompt_tokens_count", "input_tokens_count"),
    "output_tokens": (
        "output_length", "max_tokens", "max_completion_tokens", "output_len", "output_tokens_count",
        "completion_tokens_count",
    ),
    "prefix_blocks": ("hash_ids",),
    "block_tokens": ("block_size",),
    "session": ("session_id",),
    "id": ("request_id",),
}  # fmt: skip
"""Native name -> spellings of others that mean the same."""

SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "stop", "seed", "frequency_penalty", "presence_penalty",
    "repetition_penalty", "ignore_eos", "min_tokens", "logit_bias", "response_format", "tool_choice", "logprobs", "n",
    "parallel_tool_calls", "reasoning_effort", "chat_template_kwargs",
)  # fmt: skip
"""Fields of a request body that files carry beside the prompt; they become `sampling`."""

_NATIVE = {theirs: ours for ours, spellings in SPELLINGS.items() for theirs in spellings}
_TIMES = {"timestamp": None, "timestamp_ms": "ms", "created_time": "ms"}
_WAITS = ("delay", "delay_ms")
KNOWN = (*FIELDS, *_NATIVE, *_TIMES, *_WAITS, "texts", "extra")


def _native(row: dict[str, Any], context: Context) -> tuple[dict[str, Any], dict[str, str], int | None]:
    """A row's fields by our names, how it spells each of them, and its time in ns."""
    native: dict[str, Any] = {}
    names: dict[str, str] = {}
    source_ns: int | None = None
    for name, value in row.items():
        ours, stands = _meaning(name, value)
        if name in _TIMES and value is not None:
            if source_ns is not None:
                raise RowError(f"{name}: another time than {names['arrival_s']}; expected one of them")
            source_ns = scaled_ns(value, _TIMES[name] or context.time_unit or "s", name)
        if ours in FIELDS:
            if native.get(ours) is not None:
                raise RowError(f"{name}: says the same as {names[ours]}; expected one of them")
            native[ours], names[ours] = stands, name
        elif name == "extra":
            if not isinstance(value, dict | None):
                raise RowError(f"extra: expected an object of request fields, got {clip(value)}")
        elif name not in SAMPLING and not _beside(name, row, context):
            raise RowError(unknown_field(name, KNOWN))
    beside = {**(row.get("extra") or {}), **{name: row[name] for name in SAMPLING if name in row}}
    given = native.get("sampling")
    if beside and isinstance(given, dict | None):
        native["sampling"] = {**beside, **(given or {})}
    return native, names, source_ns


def _meaning(name: str, value: Any) -> tuple[str, Any]:
    """The field that a name means, and what stands in it (nothing yet for a time, whose unit is the file's)."""
    if name in _TIMES:
        return "arrival_s", None
    if name in _WAITS:
        return "wait_s", scaled_ns(value or 0, "ms", name) / 1e9
    if name == "texts" and isinstance(value, list) and all(isinstance(text, str) for text in value):
        return "prompt", "\n".join(value)
    if name == "messages" and isinstance(value, str) and value.startswith("["):  # data sets keep them as text
        try:
            return name, msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return name, value
    return _NATIVE.get(name, name), value


def _beside(name: str, row: dict[str, Any], context: Context) -> bool:
    """Whether a field that says nothing to us may stand there."""
    if name == "role":  # aiperf's turns name the speaker, who is the user
        return bool(row[name] == "user")
    return context.allow_unknown or name == "img_ids" or (name in ("type", "duration") and "hash_ids" in row)


def rows(row: dict[str, Any], context: Context) -> list[Timed]:
    """A JSON row in our names or in known spellings of others."""
    native, names, source_ns = _native(row, context)
    if context.drop_zero:
        zero = [
            name for name in ("input_tokens", "output_tokens") if type(native.get(name)) is int and not native[name]
        ]
        if zero:
            check_sizes(*(0 if name in zero else 1 for name in ("input_tokens", "output_tokens")))
    for name in ("id", "session"):
        if isinstance(native.get(name), int) and not isinstance(native[name], bool):
            native[name] = str(native[name])
    theirs = names.get("prefix_blocks", "") == "hash_ids" and native["prefix_blocks"] is not None
    if theirs:
        native["prefix_blocks"] = block_ids(native["prefix_blocks"], context)
        native.setdefault("block_tokens", context.block_tokens)
    elif isinstance(native.get("prefix_blocks"), list):
        block_ids(native["prefix_blocks"], context, "prefix_blocks")
    item = to_item(native, names=names, exact=theirs)
    return [Timed(item, source_ns, theirs)]


def turns(row: dict[str, Any], context: Context) -> list[Timed]:
    """A session a line. A leading system turn is no request: it goes in front of each turn of the user."""
    given_turns = row.get("turns")
    if not isinstance(given_turns, list) or not given_turns:
        raise RowError(f"turns: expected a list of turns, got {clip(given_turns)}")
    session = row.get("session_id", row.get("session"))
    if session is not None and not isinstance(session, str):
        raise RowError(f"session_id: expected str, got {clip(session)}")
    category = row.get("category")
    head: list[dict[str, Any]] = []
    items: list[Timed] = []
    for place, given in enumerate(given_turns):
        turn = {"text": given} if isinstance(given, str) else given
        if not isinstance(turn, dict):
            raise RowError(f"turns[{place}]: expected a text or an object, got {clip(turn)}")
        message = {"role": turn.get("role", "user"), "content": turn.get("text", turn.get("content"))}
        if message["role"] in ("system", "developer") and not items:
            head.append(message)
            continue
        native: dict[str, Any] = {"messages": [*head, message], "session": session, "turn": len(items) + 1}
        native["output_tokens"] = turn.get("output_length", turn.get("output_tokens"))
        if items and turn.get("delay") is not None:
            native["wait_s"] = scaled_ns(turn["delay"], "ms", f"turns[{place}].delay") / 1e9
        if isinstance(category, str):
            native["tags"] = [category]
        items.append(Timed(to_item(native)))
    if not items:
        raise RowError("turns: expected a turn of the user; a system turn alone is not a request")
    return items


class _Mooncake(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]


def _put(columns: Columns, *row: Any) -> bool:
    try:
        columns.put(*row)
    except UsageError:  # ids of more than 64 bits: the slow way says in which line
        return False
    return True


def _quick_mooncake(context: Context) -> Put:
    decode = msgspec.json.Decoder(_Mooncake).decode
    scale, size = UNITS_NS[context.time_unit or "ms"], context.block_tokens or 512
    latest = min(10**18, (2**63 - 1) // scale)

    def put(line: bytes, number: int, columns: Columns) -> bool:
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        asked, answered = row.input_length, row.output_length
        if not (0 <= row.timestamp < latest and 0 < asked <= MAX_TOKENS and 0 < answered <= MAX_TOKENS):
            return False
        return _put(columns, number, row.timestamp * scale, asked, answered, size, row.hash_ids, THEIRS)

    return put


class _Numbers(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Our own rows that are numbers alone."""

    input_tokens: int
    id: str = ""
    output_tokens: int | None = None
    prefix_blocks: list[int] | None = None
    block_tokens: int | None = None
    arrival_s: float | None = None


def _quick_rows(context: Context) -> Put:
    decode = msgspec.json.Decoder(_Numbers).decode

    def put(line: bytes, number: int, columns: Columns) -> bool:
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        asked, answered, size, blocks, at = (
            row.input_tokens, row.output_tokens, row.block_tokens, row.prefix_blocks, row.arrival_s
        )  # fmt: skip
        if not all(value is None or 0 < value <= MAX_TOKENS for value in (asked, answered, size)):
            return False
        if (at is not None and not 0 <= at <= 1e9) or (size is None) != (blocks is None):
            return False
        if size is not None and blocks is not None and len(blocks) > -(-asked // size):
            return False
        if not _put(columns, number, NO_TIME, asked, answered or 0, size or 0, blocks, NATIVE if size else 0):
            return False
        if at is not None:
            columns.set("arrival_s", len(columns) - 1, at)
        if row.id:
            columns.set_name(len(columns) - 1, row.id)
        return True

    return put


ROWS = Format("rows", rows, quick=_quick_rows, again=True)
TURNS = Format("sessions (turns)", turns)
MOONCAKE = Format("mooncake", rows, "ms", 512, drop_zero=True, trace=True, quick=_quick_mooncake)
TIMED_TRACE = Format("timed_trace", rows, "s", 16, drop_zero=True, trace=True)
GUIDELLM = Format("guidellm", rows, "s", drop_zero=True, trace=True)
AIPERF = Format("aiperf", rows, "ms", 512, drop_zero=True, trace=True)
SERVEGEN_BATCH = Format("servegen-batch", rows, None, 16, drop_zero=True)


def timed(context: Context) -> Format:
    """Rows with times whose unit and block size the user says."""
    return Format("rows with times", rows, context.time_unit, context.block_tokens, trace=True, unit_by="--time-unit")
