"""The end of a run, however it ended: spool to Parquet, windows, judgement, report; `recover` is the same, late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchlab.campaign.stages import after_warmup
from benchlab.errors import UsageError
from benchlab.records import spool
from benchlab.records.manifest import Manifest, read_manifest, write_json
from benchlab.records.store import Run, drop_spool, write_manifest, write_parquet
from benchlab.report.export import write_report
from benchlab.selection.judge import judge

KILLED = "the run was killed while this request was under way"


def store_records(path: Path, *, keep_text: bool, why_unfinished: str) -> pa.Table:
    """`requests.parquet` (and `texts.parquet`) from the spool, which stays until everything is written."""
    folder = path / "spool"
    requests = spool.merge(folder, why_unfinished=why_unfinished)
    write_parquet(path / "requests.parquet", requests)
    if keep_text:
        write_parquet(path / "texts.parquet", spool.merge_texts(folder))
    return requests


def stage_times(requests: pa.Table, stage: int, start_ns: int) -> tuple[list[int], list[int]]:
    """Intended and end times of a stage's requests, ns from the stage's start."""
    rows = requests.filter(pc.equal(requests.column("stage"), stage))
    intended = [ns - start_ns for ns in rows.column("intended_ns").to_pylist()]
    ends = [ns - start_ns for ns in rows.column("end_ns").to_pylist() if ns is not None]
    return intended, ends


def judge_and_report(path: Path, *, report: bool = True, **options: Any) -> dict[str, Any]:
    """Judge a stored run, write `summary.json` and `report.html`, return the summary."""
    run = Run(path)
    summary = judge(run, **options)
    write_json(path / "summary.json", summary)
    if report:
        write_report(run, summary, path / "report.html")
    return summary


def recover(path: Path) -> dict[str, Any]:
    """A run directory from what a killed run left behind; at most its last second of records is missing.

    Requests that were under way come in as `unfinished`. Raises UsageError when there is nothing to recover.
    """
    if not path.is_dir():
        raise UsageError("no such run directory", where=str(path), hint="`ls runs/` shows what there is")
    if not (path / "spool").is_dir():
        done = (path / "requests.parquet").exists()
        raise UsageError(
            "this run has no spool" + (": it is complete" if done else " and no records"),
            where=str(path),
            hint=f"benchlab report {path}" if done else "give the directory that the run was writing to",
        )
    with spool.held(path / "spool") as free:
        if not free:
            raise UsageError("this run is still going", where=str(path), hint="wait for its end, or end it with Ctrl-C")
        return _recover(path)


def _recover(path: Path) -> dict[str, Any]:
    manifest = read_manifest(path / "manifest.json")
    if not spool.merge(path / "spool", why_unfinished=KILLED).num_rows:
        raise UsageError(
            "its spool holds no request that can be read",
            where=str(path),
            hint="nothing was sent yet, or its files are damaged; they are kept: measure again with another -o/--out",
        )
    requests = store_records(path, keep_text=any((path / "spool").glob("*.texts.arrow")), why_unfinished=KILLED)
    _close_stages(manifest, requests)
    manifest |= {"state": "recovered", "reason": "the run did not end by itself; its spool was recovered"}
    write_manifest(path, manifest)
    summary = judge_and_report(path)
    drop_spool(path)
    return summary


def _close_stages(manifest: Manifest, requests: pa.Table) -> None:
    """Windows for stages that never got them: what was sent, up to the last thing that is known."""
    for entry in manifest.get("stages") or []:
        if entry.get("complete"):
            continue
        stage = int(entry["stage"])
        rows = requests.filter(pc.equal(requests.column("stage"), stage))
        if rows.num_rows == 0:
            entry |= {"why": "not run"}
            continue
        intended = rows.column("intended_ns")
        start = entry.get("start_ns") or pc.min(intended).as_py()
        last = max(pc.max(intended).as_py(), pc.max(rows.column("end_ns")).as_py() or 0) + 1
        w1 = min(entry.get("w1_ns") or last, last)
        w0 = entry.get("w0_ns")
        if w0 is None:  # a warm-up of so many requests: only the records tell
            w0 = after_warmup(int(entry.get("warmup_requests") or 0), [ns - start for ns in intended.to_pylist()])
            w0 = w1 if w0 is None else start + w0
        w0 = min(w0, last)
        entry |= {
            "start_ns": start,
            "w0_ns": w0,
            "w1_ns": max(w1, w0),
            "drain_end_ns": last,
            "complete": False,
            "why": "the run was killed during this stage",
        }


def write_items(path: Path, items: list[dict[str, Any]]) -> None:
    """`items.parquet`: what judging may need of the workload, so that it never needs the workload itself."""
    schema = pa.schema(
        [
            ("item_id", pa.string()),
            ("expect", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("tenant", pa.string()),
            ("requested_tokens", pa.int64()),
        ]
    )
    write_parquet(path / "items.parquet", pa.Table.from_pylist(items, schema=schema))
