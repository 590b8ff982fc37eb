"""The engine's own times into the run directory: fetched when the load is over, kept where they are of this run.

The one idea: a request id may have been used before, by another run at the same engine; a row counts only if the engine
accepted it while our request was under way. What is missing is counted, never made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchlab.campaign.spec import RunSpec
from benchlab.clients.endpoint import Endpoint
from benchlab.records.schema import ENGINE
from benchlab.records.store import write_parquet
from benchlab.telemetry.timeline import EngineRow, EngineTimes, fetch_timeline
from benchlab.units import NS_PER_S

_TOLERANCE_NS = NS_PER_S
"""Beyond the reading's error: hosts of a cluster, and clocks that drift over a long run."""
_PLAIN = ("accepted", "queued", "admitted", "prefill_start", "prefill_end", "blocks_freed", "released")
_LISTS = ("token_ready", "token_written", "preempted", "resumed")
_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "finish_reason")


def store_engine_times(
    path: Path, spec: RunSpec, endpoint: Endpoint, requests: pa.Table, t0_ns: int
) -> dict[str, Any] | None:
    """Fetch them, write `engine.parquet` where there are any, answer the manifest's `engine_times`.

    None: not asked, because `--scrape off` says that nothing is to be asked of the engine.
    """
    if spec.scrape == "off":
        return None
    told = fetch_timeline(endpoint.base, headers=spec.headers, began_ns=t0_ns)
    table, others = engine_table(told, requests, t0_ns)
    if table.num_rows:
        write_parquet(path / "engine.parquet", table)
    sent = requests.num_rows - requests.column("sent_ns").null_count
    why = told.why or ("" if table.num_rows else "the engine's /timeline holds no request of this run")
    return {
        "rows": table.num_rows,
        "of": sent,
        "others": others,
        "engine_ns": told.engine_ns,
        "t_ns": told.ours_ns - t0_ns,
        "error_ns": told.error_ns,
        "why": why,
    }


def engine_table(told: EngineTimes, requests: pa.Table, t0_ns: int) -> tuple[pa.Table, int]:
    """(the rows of these requests, how many rows of their ids are of other requests)."""
    slack = told.error_ns + _TOLERANCE_NS
    ids = requests.column("request_id").to_pylist()
    begun = requests.column("sent_ns").to_pylist()
    ended = requests.column("end_ns").to_pylist()
    rows, others = [], 0
    for name, sent, end in zip(ids, begun, ended, strict=True):
        row = told.rows.get(name)
        if row is None or sent is None:
            continue
        accepted = None if row.accepted is None else row.accepted - told.engine_ns + told.ours_ns - t0_ns
        late = accepted is not None and end is not None and accepted > end + slack
        if accepted is None or accepted < sent - slack or late:
            others += 1
        else:
            rows.append(row)
    return _table(rows), others


def _table(rows: list[EngineRow]) -> pa.Table:
    columns: dict[str, pa.Array] = {"request_id": pa.array([row.request_id for row in rows], pa.string())}
    for name in _PLAIN:
        columns[f"{name}_ns"] = pa.array([getattr(row, name) for row in rows], pa.int64())
    for name in _LISTS:
        columns[f"{name}_ns"] = _list([getattr(row, name) for row in rows])
    for name in _COUNTS:
        columns[name] = pa.array([getattr(row, name) for row in rows], ENGINE.field(name).type)
    return pa.Table.from_arrays([columns[name] for name in ENGINE.names], schema=ENGINE)


def _list(rows: list[list[int]]) -> pa.ListArray:
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    flat = np.fromiter((ns for row in rows for ns in row), dtype=np.int64, count=int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
