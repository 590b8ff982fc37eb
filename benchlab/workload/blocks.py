"""Prefix blocks of a whole workload at once: whether the ids fit the lengths, and what an infinite cache would answer.

The one idea: ids are a chain, so the leading run of known ids counts, and one id stands for one size. Both are told by
arrays over all ids, since a long trace has tens of millions. It must not know formats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchlab.workload.columns import THEIRS, Columns

_CHUNK = 2**18


def dense(blocks: Any) -> tuple[Any, int]:
    """Ids as numbers from 0 to below the second value, the same where they were the same."""
    if not len(blocks):
        return blocks, 0
    low, high = int(blocks.min()), int(blocks.max())
    if high - low < 4 * len(blocks) + 2**20:
        return (blocks if low == 0 else blocks - blocks.dtype.type(low)), high - low + 1
    distinct, found = np.unique(blocks, return_inverse=True)
    return found.reshape(-1), len(distinct)


def check(columns: Columns) -> tuple[dict[int, str], str | None]:
    """Row -> complaint, for blocks of others' files; and how they round: "ceil", "floor", or None for either.

    The ids must be as many as full blocks (floor) or as blocks begun (ceil), the same way in the whole file, and one
    id must stand for one size.
    """
    rows = np.flatnonzero(columns.view("has_blocks") == THEIRS)
    if not len(rows):
        return {}, None
    tokens = columns.view("input").astype(np.int64)[rows]
    size = columns.view("size").astype(np.int64)[rows]
    count = np.diff(columns.view("ends"))[rows]
    floor, ceil = tokens // size, -(-tokens // size)
    down, up = count == floor, count == ceil
    told: dict[int, str] = {}
    for place in np.flatnonzero(~down & ~up)[:5000].tolist():
        low, high = floor[place], ceil[place]
        wanted = f"{high}" if low == high else f"{low} or {high}"
        told[int(rows[place])] = (
            f"hash_ids: expected {wanted} ids of {size[place]} tokens for {tokens[place]} tokens, got {count[place]}"
        )
    rounding: str | None = None
    decided = np.flatnonzero(down ^ up)
    if len(decided):
        rounding = "floor" if down[decided[0]] else "ceil"
        against = decided[(down if rounding == "ceil" else up)[decided]]
        for place in against[:5000].tolist():
            other = "ceil" if rounding == "floor" else "floor"
            told[int(rows[place])] = f"hash_ids: {count[place]} ids round {other}, but earlier rows round {rounding}"
    partial = np.flatnonzero(up & ~down)
    if len(partial) and rounding == "ceil":
        rest = tokens[partial] - (count[partial] - 1) * size[partial]
        told |= _sizes(columns, set(told), rows, rows[partial], rest)
    return told, rounding


def _sizes(columns: Columns, bad: set[int], rows: Any, partial: Any, rest: Any) -> dict[int, str]:
    """Rows in which a block has another size than in an earlier row."""
    ends = columns.view("ends")
    ids, number = dense(columns.view("blocks"))
    last = ends[partial + 1] - 1
    table = np.zeros(number, dtype=np.int32)
    table[ids[last]] = rest
    odd = set(ids[last[table[ids[last]] != rest]].tolist())
    for start in range(0, len(ids), _CHUNK):  # a partial block that is a full one elsewhere
        part = ids[start : start + _CHUNK]
        found = table[part] > 0
        here = last[(last >= start) & (last < start + len(part))] - start
        found[here] = False
        odd.update(part[found].tolist())
    if not odd:
        return {}
    return _odd_rows(columns, bad, ids, np.array(sorted(odd)), dict(zip(partial.tolist(), rest.tolist(), strict=True)))


def _odd_rows(columns: Columns, bad: set[int], ids: Any, odd: Any, rest: dict[int, int]) -> dict[int, str]:
    """In the order of the file, the first row that uses an id says its size."""
    ends = columns.view("ends")
    touched = np.unique(np.searchsorted(ends, np.flatnonzero(np.isin(ids, odd)), side="right") - 1)
    wanted: set[int] = set(odd.tolist())
    sizes: dict[int, int] = {}
    told: dict[int, str] = {}
    for row in touched.tolist():
        if row in bad or columns.get("has_blocks", row) != THEIRS:
            continue
        start, end = int(ends[row]), int(ends[row + 1])
        size = columns.get("size", row)
        here = {}
        for place in range(start, end):
            if (block := int(ids[place])) in wanted:
                here[block] = (rest.get(row, size) if place == end - 1 else size, place)
        clash = next((block for block, (tokens, _) in here.items() if sizes.get(block, tokens) != tokens), None)
        if clash is None:
            sizes |= {block: tokens for block, (tokens, _) in here.items()}
        else:
            tokens, place = here[clash]
            told[row] = (
                f"hash_ids: block {columns.blocks[place]} has {tokens} tokens here and {sizes[clash]} in an earlier row"
            )
    return told


def cache_hits(columns: Columns, rows: Any) -> dict[str, Any] | None:
    """What an infinite cache that starts cold would answer to these rows in this order; None where none has ids.

    token_hit_ratio: shared tokens over all tokens of the items that have ids.
    """
    kinds = columns.view("has_blocks")
    sizes = columns.view("size").astype(np.int64)
    inputs = columns.view("input").astype(np.int64)
    rows = rows[(kinds[rows] > 0) & (sizes[rows] > 0) & (inputs[rows] > 0)]
    if not len(rows):
        return None
    ids, number = dense(columns.view("blocks"))
    ends = columns.view("ends")
    starts, count = ends[rows], ends[rows + 1] - ends[rows]
    of_size = np.unique(sizes[rows])
    if len(of_size) > 1:  # an id of one size is not the id of another
        of_row = np.searchsorted(of_size, sizes)
        ids = ids.astype(np.int64) + np.repeat(of_row, np.diff(ends)) * number
        number *= len(of_size)
    first = np.full(number, len(rows), dtype=np.int32)
    step = max(1, len(rows) * _CHUNK // max(1, int(count.sum())))
    spans = list(range(0, len(rows), step))
    for begin in reversed(spans):  # backwards, so that the earliest row is the last to write
        at, of = _flat(starts[begin : begin + step], count[begin : begin + step])
        first[ids[at][::-1]] = (begin + of)[::-1]
    run = np.zeros(len(rows), dtype=np.int64)
    for begin in spans:
        part = count[begin : begin + step]
        at, of = _flat(starts[begin : begin + step], part)
        unknown = np.append(np.flatnonzero(first[ids[at]] >= begin + of), len(at))
        heads = np.cumsum(part) - part
        run[begin : begin + step] = np.minimum(unknown[np.searchsorted(unknown, heads)], heads + part) - heads
    shared = np.minimum(run * sizes[rows], inputs[rows])
    used = int((first < len(rows)).sum())
    total = int(inputs[rows].sum())
    return {
        "items": len(rows),
        "token_hit_ratio": int(shared.sum()) / total,
        "items_with_hit": float((run > 0).mean()),
        "items_with_two_blocks": float((run > 1).mean()),
        "shared_tokens": {f"p{share}": float(np.percentile(shared, share)) for share in (50, 90)},
        "blocks": used,
        "first_blocks": int(np.unique(ids[starts[count > 0]]).size),
    }


def _flat(starts: Any, count: Any) -> tuple[Any, Any]:
    """Places of all ids of some rows, one row after the other, and which of the rows each belongs to."""
    heads = np.cumsum(count) - count
    of = np.repeat(np.arange(len(count)), count)
    return np.arange(int(count.sum())) - heads[of] + starts[of], of
