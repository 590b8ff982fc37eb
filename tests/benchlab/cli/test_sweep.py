"""A whole sweep as a user runs it, against the paced engine in a process of its own: summary, knee, selection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.running import Done, benchlab, paced_engine

NUMBER = (int, float, type(None))
STAGE: dict[str, Any] = {
    "stage": int,
    "condition": str,
    "load": {"kind": str, "offered_rps": NUMBER, "concurrency": NUMBER},
    **dict.fromkeys(("achieved_rps", "completed_rps", "good_rps", "attainment", "input_tps", "output_tps"), NUMBER),
    "outcomes": dict,
    "metrics": dict,
    "verdict": {"state": str, "rules": list},
}
SUMMARY: dict[str, Any] = {
    "schema": int,
    "run_id": str,
    "verdict": {"state": str, "rules": [{"name": str, "state": str, "value": object, "limit": object, "hint": str}]},
    "stages": [STAGE],
    "selection": {"mode": str, "objectives": list, "selected_stage": NUMBER, "bracket_rps": list, "reason": str},
    "gates": [{"name": str, "passed": bool, "value": NUMBER, "limit": NUMBER}],
}
METRIC = {
    "unit": str,
    "n": int,
    "mean": NUMBER,
    "p50": NUMBER,
    "p90": NUMBER,
    "p95": NUMBER,
    "p99": NUMBER,
    "ci95": dict,
}
OUTCOMES = "ok incomplete error_stream error_http error_connect error_protocol timeout cancelled unfinished not_sent"


def check(value: Any, shape: Any, where: str = "summary") -> None:
    """The value has at least the keys of the shape, with these types."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), where
        for key, inner in shape.items():
            assert key in value, f"{where}.{key} is missing"
            check(value[key], inner, f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for number, each in enumerate(value):
            check(each, shape[0], f"{where}[{number}]")
    else:
        assert isinstance(value, shape), f"{where} is {value!r}"


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Done, dict[str, Any], Path]]:
    """Four slots of 20 ms + 15 x 10 ms: 23 requests a second is all it can do, 200 is far too much.

    A measurement that a busy machine made INVALID is taken once more; then conditions and selection alone are judged.
    """
    folder = tmp_path_factory.mktemp("sweep")
    with paced_engine("ttft=20ms,itl=10ms", "--max-seqs", "4", "--queue-limit", "100000") as url:
        for attempt in range(2):
            path = folder / str(attempt)
            argv = ["sweep", "-u", url, "-r", "6,10,200", "--duration", "4s", "--warmup", "500ms", "--drain", "2s"]
            argv += ["--isl", "32", "--osl", "16", "--objective", "ttft.p90<=1s", "--slo", "ttft=500ms"]
            argv += ["--assert", "failed_share<=100%", "--format", "json", "-o", str(path)]
            done = benchlab(*argv, timeout=120)
            if done.code != 4:
                break
        yield done, json.loads(done.out, parse_constant=refuse), path


def test_exit_code_and_streams(swept) -> None:
    done, summary, _ = swept
    assert done.code == (4 if summary["verdict"]["state"] == "INVALID" else 0), done.err
    assert done.err.splitlines()[-1].startswith(f"benchlab: exit {done.code} ")
    assert "stage 3/3" in done.err


def test_summary_has_its_schema(swept) -> None:
    _, summary, path = swept
    check(summary, SUMMARY)
    assert summary["schema"] == 1
    assert summary["verdict"]["state"] in ("VALID", "WARN", "INVALID")
    for stage in summary["stages"]:
        assert set(stage["outcomes"]) == set(OUTCOMES.split())
        for name in ("ttft", "itl", "tpot", "e2e", "dispatch_lag", "stall"):
            check(stage["metrics"][name], METRIC, name)
            assert "left_out" in stage["metrics"][name]
    assert json.loads((path / "summary.json").read_text(), parse_constant=refuse) == summary


def test_last_stage_is_overloaded_and_a_stable_one_selected(swept) -> None:
    done, summary, _ = swept
    conditions = [stage["condition"] for stage in summary["stages"]]
    assert conditions[-1] == "overloaded"
    if done.code == 0:
        assert conditions[1] == "stable"
        assert summary["selection"]["selected_stage"] == 1
        low, high = summary["selection"]["bracket_rps"]
        assert low < 20 < high
    assert summary["selection"]["selected_stage"] != 2


def test_every_request_has_one_row(swept) -> None:
    _, _, path = swept
    table = pq.read_table(path / "requests.parquet")
    planned = sum(stage["planned"] for stage in json.loads((path / "manifest.json").read_text())["stages"])
    assert table.num_rows == planned == len(set(table.column("request_id").to_pylist()))
    assert set(table.column("outcome").to_pylist()) <= set(OUTCOMES.split())


def test_run_directory_is_whole(swept) -> None:
    _, _, path = swept
    names = {each.name for each in path.iterdir()}
    wanted = {"manifest.json", "requests.parquet", "telemetry.parquet", "items.parquet", "summary.json", "report.html"}
    assert wanted <= names
    assert "spool" not in names
