"""`benchlab workload make` from the command line: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchlab.shipped import shipped_workloads


def test_a_recipe_goes_to_stdout_and_its_nearness_to_stderr(call) -> None:
    done = call("workload", "make", "azure-conv", "--seed", "0", "-n", "500")
    assert done.code == 0
    assert done.out.encode() == (shipped_workloads() / "azure-conv.jsonl").read_bytes()
    lines = {line.split()[0]: line.split()[1:] for line in done.err.splitlines() if line.count("  ")}
    assert lines["cv"][0] == "1.090"
    assert lines["input.p50"][0] == "1,020"


def test_few_rows_are_said_to_be_few(call) -> None:
    assert "show from 20,000 items on; here are 5" in call("workload", "make", "azure-code", "-n", "5").err


def test_made_to_order(call, tmp_path: Path) -> None:
    out = tmp_path / "w.jsonl"
    words = (
        "--isl lognormal:400:0.5 --osl 50 --reuse 0.5 --prefix-tree 1x4 --turns 2 --wait-ms 1500 --tenants 2 --rate 3"
    )
    done = call("workload", "make", "custom", *words.split(), "--cv", "2", "--zipf", "0", "-n", "60", "-o", out)
    assert (done.code, done.out) == (0, "")
    assert "wrote" in done.err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 60
    assert {row["turn"] for row in rows} == {1, 2}
    assert {row.get("wait_s") for row in rows} == {None, 1.5}
    assert call("workload", "check", out).code == 0


def test_text_of_exact_length(call, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'tokens'")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = ("workload", "make", "fixed", "--isl", "30", "--osl", "4", "-n", "3", "--text")
    done = call(*words, "--tokenizer", tmp_path)
    assert [len(json.loads(line)["prompt"].replace(".", " .").split()) for line in done.out.splitlines()] == [30] * 3
    assert "exact lengths by the tokenizer" in done.err
    assert "no chat template" in done.err
    assert "estimate" in call(*words).err


REFUSED = {
    "figures of another recipe": (["azure-conv", "--reuse", "0.5"], ["--reuse", "only the recipe custom"]),
    "lengths of another recipe": (["azure-conv", "--isl", "5"], ["--isl", "own lengths"]),
    "no lengths": (["custom"], ["--isl, --osl", "two lengths"]),
    "no number for fixed": (["fixed", "--isl", "gamma:9:1", "--osl", "1"], ["--isl", "recipe custom"]),
    "no distribution": (["custom", "--isl", "beta:1:2", "--osl", "1"], ["--isl", "lognormal"]),
    "no tree": (["custom", "--isl", "1", "--osl", "1", "--prefix-tree", "x"], ["--prefix-tree", "1x4x16"]),
    "share above one": (["custom", "--isl", "1", "--osl", "1", "--reuse", "2"], ["--reuse", "0 to 1"]),
    "tokenizer without text": (["fixed", "--isl", "1", "--osl", "1", "--tokenizer", "x"], ["--tokenizer", "--text"]),
    "no tokenizer": (["fixed", "--isl", "1", "--osl", "1", "--text", "--tokenizer", "x"], ["no such tokenizer"]),
    "no api": (["fixed", "--isl", "1", "--osl", "1", "--text", "--api", "tgi"], ["--api", "chat or completions"]),
    "there already": (["chat-short", "-o", "."], ["nothing is ever overwritten"]),
    "no place to write": (["chat-short", "-n", "1", "-o", "no/such/folder/w.jsonl"], ["cannot be written"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_flag(name: str, call, told) -> None:
    words, parts = REFUSED[name]
    done = call("workload", "make", *words)
    lines = told(done, done.code)
    assert done.code == (1 if "cannot be written" in parts else 2)
    for part in parts:
        assert part in "\n".join(lines), lines
