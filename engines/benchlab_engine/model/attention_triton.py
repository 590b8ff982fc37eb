# ruff: noqa: ANN001, ANN201, N803, PLR0915  (the kernel language's own ways: no annotations, constants in capitals)
# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""The kernels of the fast attention path, in Triton.

The one idea: a program attends with a tile of queries that lie one after another in one sequence, all query heads of
one key/value head side by side, walking the block table with a running maximum (the online softmax of Milakov and
Gimelshein 2018; over a block table: Kwon et al. 2023). A long context can be split over several programs, whose parts
a second kernel joins (the split of Flash-Decoding). It must not know batches. Imported only where triton is installed.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend_tiles(
    queries,  # [rows, heads + 2 kv_heads, DIM]
    rows,  # one layer's [slots, 2 KV_HEADS, DIM]
    scales,  # one layer's [slots, 2 KV_HEADS]; anything where not QUANTISED
    found,  # [rows, heads, DIM], or with splits [SPLITS, rows, heads, DIM] float32
    maxima,  # [SPLITS, rows, heads] float32
    totals,  # [SPLITS, rows, heads] float32
    tables,  # [sequences, table_width] int32
    sequence_of,  # [tiles] int32, as the next three
    row_of,
    count_of,
    position_of,
    query_stride,
    table_width,
    num_rows,
    window,
    scale,
    KV_HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLITS: tl.constexpr,
    QUANTISED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid (tiles, KV_HEADS, SPLITS). count_of[tile] queries from row_of[tile] on, at position_of[tile] and after."""
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence = tl.load(sequence_of + tile)
    count = tl.load(count_of + tile)
    first = tl.load(position_of + tile)

    lane = tl.arange(0, BLOCK_M)
    query, member = lane // SHARED, lane % SHARED
    live = query < count
    position = first + query
    row = (tl.load(row_of + tile) + query).to(tl.int64)
    query_head = head * SHARED + member
    dim = tl.arange(0, BLOCK_D)
    in_dim = dim < DIM
    asked = tl.load(
        queries + row[:, None] * query_stride + query_head[:, None] * DIM + dim[None, :],
        mask=live[:, None] & in_dim[None, :],
        other=0.0,
    )

    end = first + count
    begin = tl.maximum(first - window + 1, 0) // BLOCK_N * BLOCK_N
    share = tl.cdiv(tl.cdiv(end - begin, BLOCK_N), SPLITS) * BLOCK_N
    low = begin + split * share
    high = tl.minimum(low + share, end)
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(low, high, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        inside = key < high
        block = tl.load(tables + sequence * table_width + key // BLOCK_SIZE, mask=inside, other=0)
        slot = block.to(tl.int64) * BLOCK_SIZE + key % BLOCK_SIZE
        place = slot[:, None] * (2 * KV_HEADS * DIM) + head * DIM + dim[None, :]
        there = inside[:, None] & in_dim[None, :]
        keys = tl.load(rows + place, mask=there, other=0.0).to(asked.dtype)
        scores = tl.dot(asked, tl.trans(keys), input_precision=PRECISION) * scale
        if QUANTISED:
            scores *= tl.load(scales + slot * (2 * KV_HEADS) + head, mask=inside, other=0.0).to(tl.float32)[None, :]
        visible = inside[None, :] & (key[None, :] <= position[:, None]) & (key[None, :] > position[:, None] - window)
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        anchor = tl.where(higher == float("-inf"), 0.0, higher)  # a row that has seen nothing yet
        weight = tl.exp(scores - anchor[:, None])
        fade = tl.exp(best - anchor)
        total = total * fade + tl.sum(weight, 1)
        values = tl.load(rows + place + KV_HEADS * DIM, mask=there, other=0.0).to(asked.dtype)
        if QUANTISED:
            weight *= tl.load(scales + slot * (2 * KV_HEADS) + KV_HEADS + head, mask=inside, other=0.0).to(tl.float32)[
                None, :
            ]
        sums = sums * fade[:, None] + tl.dot(weight.to(asked.dtype), values, input_precision=PRECISION)
        best = higher

    heads = KV_HEADS * SHARED
    stored = live[:, None] & in_dim[None, :]
    if SPLITS == 1:
        target = found + (row * heads + query_head)[:, None] * DIM + dim[None, :]
        whole = sums / tl.where(live, total, 1.0)[:, None]
        tl.store(target, whole.to(found.dtype.element_ty), mask=stored)
    else:
        part = (split * num_rows + row) * heads + query_head
        tl.store(found + part[:, None] * DIM + dim[None, :], sums, mask=stored)
        tl.store(maxima + part, best, mask=live)
        tl.store(totals + part, total, mask=live)


@triton.jit
def join_splits(
    parts,  # [SPLITS, rows, HEADS, DIM] float32
    maxima,  # [SPLITS, rows, HEADS]
    totals,  # [SPLITS, rows, HEADS]
    found,  # [rows, HEADS, DIM]
    num_rows,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Grid (rows, HEADS)."""
    place = tl.program_id(0).to(tl.int64) * HEADS + tl.program_id(1)
    part = tl.arange(0, SPLITS) * num_rows * HEADS + place
    dim = tl.arange(0, BLOCK_D)
    in_dim = dim < DIM
    best = tl.load(maxima + part)
    weight = tl.exp(best - tl.max(best, 0))
    total = tl.sum(weight * tl.load(totals + part), 0)
    sums = tl.load(parts + part[:, None] * DIM + dim[None, :], mask=in_dim[None, :], other=0.0)
    whole = tl.sum(weight[:, None] * sums, 0) / total
    tl.store(found + place * DIM + dim, whole.to(found.dtype.element_ty), mask=in_dim)
