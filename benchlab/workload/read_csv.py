"""Tables with a header: Azure 2023, 2024 and multimodal, BurstGPT 1 to 3, etalon's lengths, TraceLab's replay.

Columns are taken by their names, for two of these formats insert columns and break readers that go by place. It must
not know what a workload is sent for.
"""

from __future__ import annotations

import csv
import math
from typing import Any

from benchlab.workload.columns import Columns
from benchlab.workload.formats import Context, Format, Put, Timed, check_sizes, count_of, text_of
from benchlab.workload.item import WorkloadItem
from benchlab.workload.rows import RowError, clip
from benchlab.workload.times import number_text, scaled_ns, wall_ns


def _azure(row: dict[str, Any], context: Context) -> list[Timed]:
    ns = wall_ns(str(row.get("TIMESTAMP") or ""))
    asked, answered = count_of(row, "ContextTokens"), count_of(row, "GeneratedTokens")
    check_sizes(asked, answered)
    tags = []
    if row.get("NumImages"):
        images = count_of(row, "NumImages")
        tags = [f"images={images}"] if images else []
        if images:
            context.count("{n} requests had images; only their text tokens are asked for")
    return [Timed(WorkloadItem(input_tokens=asked, output_tokens=answered, tags=tags), ns)]


def _burstgpt(row: dict[str, Any], context: Context) -> list[Timed]:
    seconds = number_text(row.get("Timestamp"), "Timestamp")
    if not math.isfinite(seconds):
        raise RowError(f"Timestamp: expected seconds, got {clip(row.get('Timestamp'))}")
    ns = scaled_ns(seconds, context.time_unit or "s", "Timestamp")
    asked, answered = count_of(row, "Request tokens"), count_of(row, "Response tokens")
    check_sizes(asked, answered)
    model = text_of(row, "Model")
    item = WorkloadItem(
        input_tokens=asked,
        output_tokens=answered,
        session=text_of(row, "Session ID"),
        tags=[model] if model else [],
    )
    return [Timed(item, ns)]


def _lengths(row: dict[str, Any], context: Context) -> list[Timed]:
    asked, answered = count_of(row, "num_prefill_tokens"), count_of(row, "num_decode_tokens")
    check_sizes(asked, answered)
    return [Timed(WorkloadItem(input_tokens=asked, output_tokens=answered))]


REPLAY_BLOCK = 64


def chain(before: list[int], prefix_tokens: int, total_tokens: int, context: Context) -> list[int]:
    """Block ids of a prompt that shares so many tokens with the one before: full blocks only, new ids for the rest."""
    kept = before[: prefix_tokens // REPLAY_BLOCK]
    new = total_tokens // REPLAY_BLOCK - len(kept)
    first = context.state.get("blocks", 0)
    context.state["blocks"] = first + max(0, new)
    return [*kept[: total_tokens // REPLAY_BLOCK], *range(first, first + max(0, new))]


def _replay(row: dict[str, Any], context: Context) -> list[Timed]:
    """TraceLab's replay: `input_len` is the new part alone, and the wait stands in the row before."""
    name, turn = text_of(row, "session_id"), count_of(row, "round_idx")
    prefix, new, answered = (count_of(row, key) for key in ("prefix_len", "input_len", "output_len"))
    check_sizes(prefix + new, answered)
    if prefix + new >= 2**31:
        raise RowError(f"input_len: expected fewer tokens in all, got {prefix + new}")
    wait_ms = number_text(row.get("tool_wait_after_ms") or 0, "tool_wait_after_ms")
    if not 0 <= wait_ms < 1e12:
        raise RowError(f"tool_wait_after_ms: expected ms >= 0, got {clip(wait_ms)}")
    session = context.state.setdefault(("session", name), {"turn": -1, "blocks": [], "wait_s": None, "ends": None})
    if turn <= session["turn"]:
        raise RowError(f"round_idx: expected the rounds of a session in order, got {turn} after {session['turn']}")
    arrival = row.get("arrival_time")
    first = session["turn"] < 0
    ns = None
    if first and arrival not in (None, ""):
        ns = scaled_ns(number_text(arrival, "arrival_time"), context.time_unit or "ms", "arrival_time")
    blocks = chain(session["blocks"], prefix, prefix + new, context)
    item = WorkloadItem(
        input_tokens=prefix + new,
        output_tokens=answered,
        prefix_blocks=blocks,
        block_tokens=REPLAY_BLOCK,
        session=name,
        turn=turn,
        wait_s=session["wait_s"],
    )
    session |= {"turn": turn, "blocks": blocks, "wait_s": wait_ms / 1000}
    return [Timed(item, ns)]


def quick_numbers(header: list[str], form: Format) -> Put | None:
    """The fast way for the plain lines of an Azure table: no quotes, three or four cells, no zero."""
    wanted = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    if form is not AZURE or "NumImages" in header:
        return None
    when, asked_at, answered_at = (header.index(name) for name in wanted)
    cells_wanted = len(header)

    def put(line: bytes, number: int, columns: Columns) -> bool:
        cells = line.split(b",")
        if b'"' in line or len(cells) != cells_wanted:
            return False
        try:
            ns = wall_ns(cells[when].decode())
            asked, answered = int(cells[asked_at]), int(cells[answered_at])
        except (RowError, ValueError):
            return False
        if not (0 < asked < 2**31 and 0 < answered < 2**31):
            return False
        columns.put(number, ns, asked, answered)
        return True

    return put


AZURE = Format("azure", _azure, "wall clock", drop_zero=True, trace=True)
BURSTGPT = Format("burstgpt", _burstgpt, "s", drop_zero=True, trace=True, turn_by_time=True)
LENGTHS = Format("lengths (etalon)", _lengths, drop_zero=True)
REPLAY = Format("tracelab-replay", _replay, "ms", drop_zero=True, trace=True)

CSV_FORMATS: tuple[tuple[frozenset[str], Format], ...] = (
    (frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), AZURE),
    (frozenset({"Timestamp", "Request tokens", "Response tokens"}), BURSTGPT),
    (frozenset({"num_prefill_tokens", "num_decode_tokens"}), LENGTHS),
    (frozenset({"session_id", "round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms"}), REPLAY),
)


def csv_row(header: list[str], line: str) -> dict[str, Any] | RowError:
    """One line as a row by the names of the columns, or what is wrong with it."""
    try:
        cells = next(csv.reader([line], strict=True), [])
    except csv.Error as fault:
        return RowError(f"is not CSV: {fault}")
    if len(cells) != len(header):
        return RowError(f"expected {len(header)} cells, got {len(cells)}")
    return dict(zip(header, cells, strict=True))
