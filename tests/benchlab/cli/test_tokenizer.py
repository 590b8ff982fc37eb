"""`benchlab run --tokenizer`: the prompts that an engine counts have the length that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest


def manifest(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


def prompt_tokens(out: Path) -> list[int]:
    return pq.read_table(out / "requests.parquet").column("prompt_tokens").to_pylist()


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_the_engine_counts_what_was_asked_for(api: str, engine, call, tmp_path) -> None:
    load = ["--isl", "300", "--osl", "2", "-n", "6", "-c", "2", "--warmup", "none", "--progress", "none"]
    out = tmp_path / "run"
    done = call("run", "-u", engine, "--api", api, *load, "--tokenizer", "endpoint", "-o", out)
    assert done.code in (0, 4), done
    assert prompt_tokens(out) == [300] * 6
    found = manifest(out)["workload"]
    assert found["tokenizer"] == "endpoint"
    assert any("exact lengths by the tokenizer" in note for note in found["notes"])


def test_a_tokenizer_that_is_none_is_told_before_the_load(engine, call, told, tmp_path) -> None:
    words = ["--isl", "30", "--osl", "2", "-n", "2", "-c", "1", "-o", tmp_path]
    lines = told(call("run", "-u", engine, *words, "--tokenizer", "no-such-file"), 2)
    assert any("no such tokenizer" in line for line in lines)
    lines = told(call("run", "-u", engine, *words[:1], "5", *words[2:], "--tokenizer", "endpoint"), 2)
    assert any("the shortest has" in line for line in lines)
