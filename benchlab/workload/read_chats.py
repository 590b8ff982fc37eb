"""Traces of chat services: Bailian (a chain of parents, 16-token blocks) and RAGPulse (components with their lengths).

It must not open a trace; RAGPulse's lengths lie in files beside it and are read here, once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchlab.workload.formats import Context, Format, Timed, block_ids, check_sizes, count_of, text_of
from benchlab.workload.item import WorkloadItem
from benchlab.workload.rows import RowError, clip, unknown_field
from benchlab.workload.times import number_text, scaled_ns

_BAILIAN = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "type", "turn", "hash_ids")
_CUT = "{n} rows continue a chat that began before the file; the oldest chat known names their session"


def _bailian(row: dict[str, Any], context: Context) -> list[Timed]:
    """Each row carries its full context, so turns stand by themselves; the session is the root of the chain."""
    for name in row:
        if name not in _BAILIAN and not context.allow_unknown:
            raise RowError(unknown_field(name, _BAILIAN))
    chat, parent = row.get("chat_id"), row.get("parent_chat_id")
    for name, value in (("chat_id", chat), ("parent_chat_id", parent)):
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise RowError(f"{name}: expected an id, got {clip(value)}")
    asked, answered = count_of(row, "input_length"), count_of(row, "output_length")
    roots = context.state
    if parent in (-1, "-1"):
        root = roots[chat] = chat
    else:
        if parent not in roots:
            context.count(_CUT)
        root = roots[chat] = roots.setdefault(parent, parent)
    check_sizes(asked, answered)
    turn = row.get("turn")
    if turn is not None:
        turn = count_of(row, "turn")
    kind = text_of(row, "type")
    blocks = row.get("hash_ids")
    item = WorkloadItem(
        input_tokens=asked,
        output_tokens=answered,
        prefix_blocks=None if blocks is None else block_ids(blocks, context),
        block_tokens=None if blocks is None else context.block_tokens,
        session=f"chat {root}",
        turn=turn,
        tags=[kind] if kind else [],
    )
    ns = scaled_ns(row.get("timestamp"), context.time_unit or "s", "timestamp")
    return [Timed(item, ns, blocks is not None)]


_PARTS = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
_LENGTHS = ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search")
_UNKNOWN = (
    "{n} rows without shared blocks: the lengths of their components are not beside the file (1_sys_prompt.jsonl, ...)"
)
_GRID = 16


def _ragpulse(row: dict[str, Any], context: Context) -> list[Timed]:
    """Ids name components of their own lengths; laid out one after the other they give a chain of 16-token blocks."""
    parts = row.get("hash_ids")
    if not isinstance(parts, dict):
        raise RowError(f"hash_ids: expected an object of components, got {clip(parts)}")
    for name in parts:
        if name not in _PARTS and not context.allow_unknown:
            raise RowError(unknown_field(name, _PARTS))
    layout = [one for name in _PARTS for one in block_ids(parts.get(name) or [], context, f"hash_ids.{name}")]
    asked, answered = count_of(row, "input_length"), count_of(row, "output_length")
    check_sizes(asked, answered)
    seconds = number_text(row.get("timestamp"), "timestamp")
    blocks = _grid(layout, asked, context)
    if blocks is None:
        context.count(_UNKNOWN)
    item = WorkloadItem(
        input_tokens=asked,
        output_tokens=answered,
        prefix_blocks=blocks,
        block_tokens=None if blocks is None else _GRID,
        session=text_of(row, "session_id"),
    )
    return [Timed(item, scaled_ns(seconds, context.time_unit or "s", "timestamp"))]


def _grid(layout: list[int], tokens: int, context: Context) -> list[int] | None:
    """The chain of full blocks that a row of components covers; None where a length is not known."""
    lengths = context.state.get("lengths")
    if lengths is None:
        lengths = context.state["lengths"] = _component_lengths(context.path)
    chains: dict[tuple[int, tuple[int, ...]], int] = context.state.setdefault("chains", {})
    blocks: list[int] = []
    before, open_parts, filled, left = -1, [], 0, tokens
    for component in layout:
        length = lengths.get(component)
        if length is None:
            return None
        length = min(length, left)
        left -= length
        at = 0
        while at < length:
            step = min(_GRID - filled, length - at)
            open_parts += [component, at, step]
            filled, at = filled + step, at + step
            if filled == _GRID:
                before = chains.setdefault((before, tuple(open_parts)), len(chains))
                blocks.append(before)
                open_parts, filled = [], 0
    return blocks


def _component_lengths(path: str) -> dict[int, int]:
    """Component id -> tokens, from the files beside the trace; what is missing or broken there is not known."""
    found: dict[int, int] = {}
    for name in _LENGTHS:
        try:
            lines = (Path(path).parent / f"{name}.jsonl").read_bytes().splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            try:
                values = list(msgspec.json.decode(line).values())
            except (msgspec.DecodeError, AttributeError, UnicodeDecodeError, RecursionError):
                continue
            if len(values) == 2 and all(type(value) is int for value in values) and 0 <= values[1] < 2**31:
                found[values[0]] = values[1]
    return found


BAILIAN = Format("bailian", _bailian, "s", 16, drop_zero=True, trace=True)
RAGPULSE = Format("ragpulse", _ragpulse, "s", drop_zero=True, trace=True, turn_by_time=True)
