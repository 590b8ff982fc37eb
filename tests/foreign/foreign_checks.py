"""What every foreign server must come through, whoever started it: a small sweep, and its records looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchlab.shipped import shipped_workloads
from tests.running import Done, benchlab


def sweep(url: str, out: Path, *more: str) -> Done:
    """A small sweep over two rates; exit 4 (a late client on a busy machine) is a result too."""
    argv = ["sweep", "-u", url, "-d", "chat-short", "-r", "1,2", "-n", "4", "--warmup", "1req", "--timeout", "60s"]
    argv += ["--objective", "ttft.p90<=60s", "--format", "json", "-o", str(out), *more]
    done = benchlab(*argv, timeout=280)
    assert done.code in (0, 4), done
    return done


def check_records(out: Path, done: Done, *, usage: bool = True) -> list[dict[str, Any]]:
    """All requests ended well, with text, in the order of time, and with the server's own counts."""
    summary = json.loads(done.out)
    assert [stage["outcomes"]["ok"] for stage in summary["stages"]] == [4, 4], done
    rows: list[dict[str, Any]] = pq.read_table(out / "requests.parquet").to_pylist()
    assert len(rows) == 10
    for row in rows:
        assert row["outcome"] == "ok", row
        assert row["finish_reason"] in ("stop", "length"), row
        assert row["dispatched_ns"] <= row["sent_ns"] <= row["headers_ns"] <= row["chunk_ns"][0], row
        assert row["chunk_ns"] == sorted(row["chunk_ns"])
        assert row["chunk_ns"][-1] <= row["end_ns"]
        if usage:
            assert row["tokens_source"] == "usage", row
            assert row["prompt_tokens"] > 0
            assert 0 < row["output_tokens"] <= row["requested_tokens"]
    shipped = (shipped_workloads() / "chat-short.jsonl").read_text(encoding="utf-8").splitlines()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["workload"]["items"] == len(shipped)
    return rows


def check_all(url: str, folder: Path, *more: str) -> None:
    """Both APIs. `more`: flags such as -m NAME."""
    for api in ("chat", "completions"):
        out = folder / api
        check_records(out, sweep(url, out, "--api", api, *more))
