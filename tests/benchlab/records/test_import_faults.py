"""Whose result file it is, and what is said of one that is nobody's, a summary, or broken."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchlab.errors import UsageError
from benchlab.records.import_base import write_run
from benchlab.records.import_tools import BY_TOOL, IMPORTERS, read_result
from tests.benchlab.records.test_import import FILES, ROLE, load


@pytest.mark.parametrize("tool", ROLE)
def test_a_file_is_told_by_its_keys(tool: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "result"  # neither name nor ending helps
    elsewhere.write_bytes((FILES / ROLE[tool]).read_bytes())
    assert read_result(elsewhere).tool == tool
    assert read_result(elsewhere, tool).tool == tool
    for other in BY_TOOL.keys() - {tool}:
        with pytest.raises(UsageError, match="does not have the keys"):
            read_result(elsewhere, other)


def test_doubt_is_an_error(tmp_path: Path) -> None:
    both = load("vllm-role.json") | {"total_output_tokens_retokenized": 3}
    path = tmp_path / "both.json"
    path.write_text(json.dumps(both))
    with pytest.raises(UsageError, match="vllm and sglang") as caught:
        read_result(path)
    assert "--from vllm" in caught.value.hint
    assert read_result(path, "vllm").tool == "vllm"


def test_summaries_are_refused_with_the_way_out(tmp_path: Path) -> None:
    told = load("vllm-role.json")
    for key in ("ttfts", "itls"):
        del told[key]
    short = tmp_path / "short.json"
    short.write_text(json.dumps(told))
    line = json.loads((FILES / ROLE["sglang"]).read_text())
    del line["ttfts"]
    lines = tmp_path / "short.jsonl"
    lines.write_text(json.dumps(line) + "\n")
    for path, words in (
        (short, "--save-detailed"),
        (lines, "--output-details"),
        (FILES / "aiperf-role" / "profile_export_aiperf.json", "profile_export.jsonl"),
        (FILES / "inference-perf-role.summary.json", "per_request"),
        (FILES / "evalscope-role" / "benchmark_summary.json", "benchmark_data.db"),
    ):
        with pytest.raises(UsageError, match="without single requests") as caught:
            read_result(path)
        assert words in caught.value.hint


BROKEN: dict[str, tuple[str, Callable[[Any], None], str]] = {
    "a number is a word": ("vllm-role.json", lambda d: d["ttfts"].__setitem__(3, "soon"), r"ttfts\[3\]: is no number"),
    "below zero": ("vllm-role.json", lambda d: d["itls"][2].__setitem__(1, -1.0), r"itls\[2\]\[1\]: is -1.0"),
    "not finite": ("vllm-role.json", lambda d: d["itls"][0].__setitem__(0, float("nan")), r"itls\[0\]\[0\]: is nan"),
    "too few": ("vllm-role.json", lambda d: d["errors"].pop(), "errors: has 11 entries, and ttfts has 12"),
    "a key is gone": ("guidellm-role.json", lambda d: d["benchmarks"][0].pop("duration"), "has no 'duration'"),
    "no list": ("genai-bench-role.json", lambda d: d.__setitem__("individual_request_metrics", 5), "is no list"),
    "ends first": ("inference-perf-role.json", lambda d: d[4].__setitem__("end_time", 1.0), r"\[4\]: ends before"),
    "no unit": ("genai-bench-role.json", lambda d: d.__setitem__("_time_unit", "min"), "_time_unit: is 'min'"),
    "too long": ("vllm-role.json", lambda d: d["ttfts"].__setitem__(0, 1e300), r"ttfts\[0\]: is 1e\+300"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_value_is_named_with_its_place(case: str, tmp_path: Path) -> None:
    name, spoil, words = BROKEN[case]
    document = load(name)
    spoil(document)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=words) as caught:
        read_result(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


def contents() -> Iterator[tuple[bytes, str]]:
    yield b"", "is empty"
    yield b" \n", "is empty"
    yield b"\xff\xfe{}", "no UTF-8"
    yield b"[" * 100_000, "nested too deep|neither JSON"
    yield b'{"a": 1', "neither JSON nor JSON lines"
    yield b"[1, 2]", "no result that is known"
    yield b'"text"', "no result that is known"
    yield (FILES / ROLE["aiperf"]).read_bytes()[:-40], "line 12: is no JSON"
    yield (FILES / ROLE["evalscope"]).read_bytes()[:3000], "SQLite"
    yield b"SQLite format 3\x00" + b"\x00" * 200, "SQLite"


@pytest.mark.parametrize(("data", "words"), list(contents()), ids=lambda value: str(value)[:24])
def test_a_file_that_is_none(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=words):
        read_result(path)


def test_a_database_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE result (x INTEGER)")
    base.commit()
    base.close()
    with pytest.raises(UsageError, match="has no start_time"):
        read_result(path)


def test_nothing_is_written_where_nothing_was_found(tmp_path: Path) -> None:
    lists = ("ttfts", "itls", "errors", "start_times", "input_lens", "output_lens")
    empty = load("vllm-role.json") | {name: [] for name in lists}
    path = tmp_path / "empty.json"
    path.write_text(json.dumps(empty))
    with pytest.raises(UsageError, match="holds no request"):
        write_run(read_result(path), path, tmp_path / "run", wall_ns=0, labels={})
    assert not (tmp_path / "run").exists()


def test_every_importer_has_a_fixture() -> None:
    assert {importer.tool for importer in IMPORTERS} == ROLE.keys()
