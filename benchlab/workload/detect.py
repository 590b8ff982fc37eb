"""Which format a file is, by the names it uses: the keys of its first rows, or its header. Doubt is an error.

A format fixes its unit of time and its block size, for both are guessed wrongly by a thousandfold and by 32 times
where they are guessed from the numbers. It must not open files.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from benchlab.errors import UsageError
from benchlab.workload import read_agents, read_chats, read_csv, read_rows, read_spans, read_texts
from benchlab.workload.formats import Context, Format
from benchlab.workload.rows import block_counts, clip

_Row = dict[str, Any]


def _has(*names: str) -> Callable[[_Row], bool]:
    return lambda row: all(name in row for name in names)


def _lists(row: _Row, name: str, kind: type) -> bool:
    value = row.get(name)
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)


_BY_KEYS: tuple[tuple[Callable[[_Row], bool], Format], ...] = (
    (_has("chat_id", "parent_chat_id"), read_chats.BAILIAN),
    (lambda row: isinstance(row.get("hash_ids"), dict), read_chats.RAGPULSE),
    (_has("requests", "block_size"), read_agents.WEKA),
    (_has("prefix_tokens", "newly_append_tokens"), read_agents.ROUNDS),
    (lambda row: _has("timestamp", "input", "session_id")(row) and "input_length" not in row, read_agents.LMCACHE),
    (_has("agentic"), read_texts.AGENTIC),
    (lambda row: _has("conversations")(row) or _has("conversation")(row), read_texts.SHAREGPT),
    (_has("custom_id", "body"), read_texts.BATCH),
    (lambda row: "body" in row and "custom_id" not in row, read_texts.EVALSCOPE),
    (lambda row: "payloads" in row or "payload" in row, read_texts.PAYLOADS),
    (lambda row: "spans" in row or "resourceSpans" in row or _has("trace_id", "attributes")(row), read_spans.SPANS),
    (_has("turns"), read_rows.TURNS),
    (
        lambda row: _has("request_id", "type", "input_length", "hash_ids")(row) and "timestamp" not in row,
        read_rows.SERVEGEN_BATCH,
    ),
    (lambda row: "model" in row and ("messages" in row or "prompt" in row), read_texts.BODIES),
)

_ALL = (
    *(form for _, form in _BY_KEYS),
    *(form for _, form in read_csv.CSV_FORMATS),
    read_rows.ROWS, read_rows.MOONCAKE, read_rows.TIMED_TRACE, read_rows.GUIDELLM, read_rows.AIPERF,
    read_texts.QUESTIONS,
)  # fmt: skip
NAMES: dict[str, Format] = {form.name.split(" ")[0]: form for form in _ALL}
"""What `--from` takes."""


def named(name: str) -> Format:
    """The format of that name. Raises UsageError with the nearest one."""
    if name in NAMES:
        return NAMES[name]
    near = difflib.get_close_matches(name, NAMES, 1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UsageError(
        f"no format '{clip(name)[1:-1]}'", where="--from", hint=f"{hint}there are: {', '.join(sorted(NAMES))}"
    )


def is_table(form: Format) -> bool:
    """Whether a format is a table with a header."""
    return any(form is one for _, one in read_csv.CSV_FORMATS)


def detect_csv(header: list[str], where: str) -> Format:
    """The format by the names of its columns, wherever they stand. Raises UsageError with the candidates."""
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise UsageError(f"the column {clip(doubled[0])} stands twice", where=where, hint="name each column once")
    fits = [form for wanted, form in read_csv.CSV_FORMATS if wanted <= set(header)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise _doubt(fits, where)
    wanted_text = "; ".join(f"{form.name}: {', '.join(sorted(names))}" for names, form in read_csv.CSV_FORMATS)
    raise UsageError(
        f"no known CSV: columns are {clip(', '.join(header), 120)}",
        where=where,
        hint=f"name the columns as one of: {wanted_text}; or write JSON Lines",
    )


def detect_json(rows: list[_Row], context: Context, where: str) -> Format:
    """The format by the keys of the first rows. Raises UsageError with the candidates where two would fit."""
    first = rows[0] if rows else {}
    fits = [form for fit, form in _BY_KEYS if fit(first)]
    if len(fits) > 1:
        raise _doubt(fits, where)
    if fits:
        return fits[0]
    timed = [row for row in rows if any(name in row for name in ("timestamp", "timestamp_ms", "created_time"))]
    if timed:
        return _timed(timed, context, where)
    if context.block_tokens is None and any("hash_ids" in row and "block_size" not in row for row in rows):
        raise UsageError(
            "hash_ids without the size of a block", where=where, hint="give --block-tokens 512 (or 16, 64)"
        )
    asks = ("messages", "prompt", "input_tokens", *(name for key in _ASKS for name in read_rows.SPELLINGS[key]))
    if rows and not any(name in row for row in rows for name in asks) and read_texts.question_of(first):
        return read_texts.QUESTIONS
    return read_rows.ROWS


_ASKS = ("prompt", "input_tokens")


def _doubt(fits: list[Format], where: str) -> UsageError:
    names = " or ".join(form.name for form in fits)
    return UsageError(
        f"could be {names}",
        where=where,
        hint=f"say which: --from {' or --from '.join(f.name.split(' ')[0] for f in fits)}",
    )


def _timed(rows: list[_Row], context: Context, where: str) -> Format:
    blocks = [row for row in rows if "hash_ids" in row]
    if blocks and context.block_tokens is None:
        return _mooncake_like(blocks, where)
    if context.time_unit is None and all("timestamp" not in row for row in rows):
        return read_rows.timed(context)  # the unit is in the name of the field
    if context.time_unit is None:
        raise UsageError(
            "timestamp: the unit is not known (ms in Mooncake and aiperf files, s in vLLM, GuideLLM and Bailian files)",
            where=where,
            hint="give --time-unit ms or --time-unit s; the span is told before the run",
        )
    return read_rows.timed(context)


def _mooncake_like(rows: list[_Row], where: str) -> Format:
    fits = [size for size in (512, 64, 16) if all(_fits(row, size) for row in rows)]
    if fits == [512]:
        return read_rows.MOONCAKE
    raise UsageError(
        "timestamp, input_length and hash_ids, but "
        + ("the blocks fit " + " and ".join(map(str, fits)) + " tokens" if fits else "no known block size fits"),
        where=where,
        hint="candidates: Mooncake (ms, 512), vLLM timed_trace (s, 16), ServeGen (16), weka (s, 64); "
        "say --time-unit and --block-tokens, or --from mooncake or --from timed_trace",
    )


def _fits(row: _Row, size: int) -> bool:
    tokens, ids = row.get("input_length", row.get("input_tokens")), row.get("hash_ids")
    if not isinstance(tokens, int) or not isinstance(ids, list):
        return True  # the row's own complaint comes later
    return len(ids) in block_counts(tokens, size)


def unwrap(row: _Row) -> list[_Row]:
    """The rows of an object that is only their wrapping, else the row itself."""
    if _lists(row, "conversations", list) and row["conversations"]:
        return [{"agentic": turns} for turns in row["conversations"]]
    if _lists(row, "data", dict) and row["data"] and not any(name in row for name in ("messages", "prompt", "body")):
        return list(row["data"])
    return [row]
