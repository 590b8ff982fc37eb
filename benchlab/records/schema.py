"""The columns of the evidence files, as Arrow schemas, and the fast way from records to a batch of columns.

Chunk lists go in as flat buffers with offsets: a request of 128 tokens costs four copies, not 512 Python objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import pyarrow as pa

from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Record
from benchlab.records.sample import Sample

SCHEMA_VERSION = 1

_KIND_NAMES = [kind.value for kind in Kind]
_KIND_INDEX = {kind: index for index, kind in enumerate(Kind)}
_KIND_TYPE = pa.dictionary(pa.int8(), pa.string())

REQUESTS = pa.schema(
    [
        ("request_id", pa.string()),
        ("stage", pa.int32()),
        ("item_id", pa.string()),
        ("session_id", pa.string()),
        ("turn", pa.int32()),
        ("tenant", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("requested_tokens", pa.int64()),
        ("host", pa.string()),
        ("worker", pa.int32()),
        ("intended_ns", pa.int64()),
        ("dispatched_ns", pa.int64()),
        ("held_ns", pa.int64()),
        ("connect_start_ns", pa.int64()),
        ("connect_end_ns", pa.int64()),
        ("sent_ns", pa.int64()),
        ("headers_ns", pa.int64()),
        ("chunk_ns", pa.list_(pa.int64())),
        ("chunk_slack_ns", pa.list_(pa.int64())),
        ("stamp_source", pa.string()),
        ("chunk_tokens", pa.list_(pa.int32())),
        ("chunk_kind", pa.list_(_KIND_TYPE)),
        ("end_ns", pa.int64()),
        ("outcome", pa.string()),
        ("http_status", pa.int32()),
        ("error", pa.string()),
        ("error_kind", pa.string()),
        ("finish_reason", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("reasoning_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("tokens_source", pa.string()),
        ("retries", pa.int32()),
        ("server_request_id", pa.string()),
        ("unknown", pa.list_(pa.string())),
    ]
)
"""`requests.parquet`: one row an intended request; times in ns from the host's t0."""

SAMPLES = pa.schema(
    [
        ("t_ns", pa.int64()),
        ("source", pa.string()),
        ("entity", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("counter", pa.bool_()),
        ("labels", pa.string()),
        ("reason", pa.string()),
    ]
)
"""`telemetry.parquet`: one row a reading."""

ENGINE = pa.schema(
    [
        ("request_id", pa.string()),
        ("accepted_ns", pa.int64()),
        ("queued_ns", pa.int64()),
        ("admitted_ns", pa.int64()),
        ("prefill_start_ns", pa.int64()),
        ("prefill_end_ns", pa.int64()),
        ("token_ready_ns", pa.list_(pa.int64())),
        ("token_written_ns", pa.list_(pa.int64())),
        ("blocks_freed_ns", pa.int64()),
        ("released_ns", pa.int64()),
        ("preempted_ns", pa.list_(pa.int64())),
        ("resumed_ns", pa.list_(pa.int64())),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("finish_reason", pa.string()),
    ]
)
"""`engine.parquet`: one row a request that the engine tells of; times in ns of the engine's own clock.

The manifest's `engine_times` says where that clock stood on ours.
"""

BEGUN = pa.schema(
    [
        ("request_id", pa.string()),
        ("stage", pa.int32()),
        ("item_id", pa.string()),
        ("session_id", pa.string()),
        ("turn", pa.int32()),
        ("tenant", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("requested_tokens", pa.int64()),
        ("host", pa.string()),
        ("worker", pa.int32()),
        ("intended_ns", pa.int64()),
        ("dispatched_ns", pa.int64()),
    ]
)
"""Spool only: requests under way, so that a killed run loses no request, only the times of what was in flight."""

TEXTS = pa.schema([("request_id", pa.string()), ("item_id", pa.string()), ("text", pa.string())])
"""`texts.parquet`, only with `--keep-text`."""


def _lists(rows: Sequence[Sequence[int]], typecode: str, value_type: pa.DataType) -> pa.Array:
    offsets, values = array("i", [0]), array(typecode)
    for row in rows:
        values.extend(row)
        offsets.append(len(values))
    flat = pa.array(memoryview(values), type=value_type) if len(values) else pa.array([], type=value_type)
    return pa.ListArray.from_arrays(pa.array(memoryview(offsets), type=pa.int32()), flat)


def _kinds(rows: Sequence[Sequence[Kind]]) -> pa.Array:
    offsets, codes = array("i", [0]), array("b")
    for row in rows:
        codes.extend(map(_KIND_INDEX.__getitem__, row))
        offsets.append(len(codes))
    indices = pa.array(memoryview(codes), type=pa.int8()) if len(codes) else pa.array([], type=pa.int8())
    dictionary = pa.DictionaryArray.from_arrays(indices, pa.array(_KIND_NAMES))
    return pa.ListArray.from_arrays(pa.array(memoryview(offsets), type=pa.int32()), dictionary)


def requests_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """A batch of `REQUESTS` from records, in their order."""
    columns: list[pa.Array] = []
    rows = map(attrgetter(*REQUESTS.names), records)
    by_column = zip(*rows, strict=True) if records else repeat(())
    for column, values in zip(REQUESTS, by_column, strict=False):
        if column.name in ("chunk_ns", "chunk_slack_ns"):
            columns.append(_lists(values, "q", pa.int64()))
        elif column.name == "chunk_kind":
            columns.append(_kinds(values))
        else:
            columns.append(pa.array(values, type=column.type))
    return pa.RecordBatch.from_arrays(columns, schema=REQUESTS)


def records_from(table: pa.Table) -> Iterator[Record]:
    """The records of a requests table, in its order. Columns that an older file lacks take their defaults."""
    names = [name for name in table.column_names if name in Record.__dataclass_fields__]
    for batch in table.select(names).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield record_from_row(row)


def record_from_row(row: dict[str, Any]) -> Record:
    """One record from a row as pyarrow's `to_pylist` gives it. A null takes the field's default, if it has one."""
    row = {name: value for name, value in row.items() if value is not None}
    row["outcome"] = Outcome(row["outcome"])
    row["chunk_kind"] = [Kind(kind) for kind in row.get("chunk_kind") or ()]
    for name in ("tags", "unknown"):
        row[name] = tuple(row.get(name) or ())
    for name in ("chunk_ns", "chunk_slack_ns", "chunk_tokens"):
        row[name] = row.get(name) or ()
    return Record(**row)


def samples_batch(samples: Iterable[Sample]) -> pa.RecordBatch:
    """A batch of `SAMPLES`."""
    rows = list(samples)
    columns = [pa.array([getattr(s, column.name) for s in rows], type=column.type) for column in SAMPLES]
    return pa.RecordBatch.from_arrays(columns, schema=SAMPLES)
