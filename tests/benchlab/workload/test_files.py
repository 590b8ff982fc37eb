"""`workload inspect` word for word, and `convert` from the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchlab.cli.app import main
from benchlab.errors import Exit
from benchlab.workload.inspect import as_text, inspect
from benchlab.workload.plot import draw
from benchlab.workload.read import read_items
from tests.benchlab.workload.made_files import lines, mooncake_row, put, subagent, weka
from tests.running import ROOT

GOLDEN = ROOT / "tests" / "golden" / "inspect"
AGENTS = weka(
    1,
    [
        dict(t=0.0, n=1280, out=30, api=5.0),
        subagent(8.0, 20.0, [dict(t=0.0, n=640, out=2), dict(t=6.0, n=704, out=3, think=1.0)]),
        dict(t=30.0, n=2000, out=400, think=25.0),
        dict(t=60.0, n=2100, out=0),
    ],
)
TABLE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "".join(
    f"2023-11-16 18:{17 + n // 20}:{(n * 7) % 20 + 20}.{n:07d},{40 + 31 * n % 997},{5 + n % 50}\r\n" for n in range(60)
)
TRACE = [
    mooncake_row(3000 * (n // 4), 512 * (2 + n % 5) - n, [0, *range(8 * n + 1, 8 * n + 2 + n % 5)]) for n in range(40)
]
CASES = {
    "mooncake": ("trace.jsonl", lines(TRACE)),
    "azure": ("azure.csv", TABLE),
    "weka": ("agents.json", lines([AGENTS])),
    "prompts": ("prompts.txt", "Name a tree.\n\nWhy, though?\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_inspect_prints_is_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file, content = CASES[name]
    put(tmp_path, file, content)
    monkeypatch.chdir(tmp_path)
    found = read_items(file)
    shown = as_text(inspect(found)) + "\n\n" + draw(found.items, 80) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown)
    assert shown == golden.read_text()
    assert all(len(line) <= 80 for line in draw(found.items, 80).splitlines())


def test_nothing_to_draw_is_said() -> None:
    assert draw([]) == "nothing to draw: neither times nor lengths"


def test_convert_prints_what_a_change_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = put(tmp_path, "trace.jsonl", lines(TRACE))
    out = tmp_path / "out.jsonl"
    flags = ["--spread-ticks", "--slice", "0s..12s", "--max-input", "1500", "--rate-scale", "2", "--seed", "3"]
    assert main(["workload", "convert", str(source), "-o", str(out), *flags]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("step: ") == 4
    assert "token hit ratio" in shown.out and "before" in shown.out
    assert "wrote 16 items" in shown.err
    found = read_items(out)
    assert found.kept == 16
    assert max(item.input_tokens or 0 for item in found.items) == 1500
    again = tmp_path / "again.jsonl"
    assert main(["workload", "convert", str(source), "-o", str(again), *flags]) == 0
    assert again.read_bytes() == out.read_bytes()
    assert main(["workload", "convert", str(source), "-o", str(out)]) == Exit.USAGE


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--drop-longer"], "longer than what?"),
        (["--slice", "5"], "is no span"),
        (["--slice", "9s..5s"], "ends before it begins"),
        (["--slice", "900s..999s"], "nothing arrives in that span"),
        (["--from", "mooncack"], "did you mean 'mooncake'"),
        (["--thin", "0"], "a share of 0"),
        (["--idle-cap", "soon"], "--idle-cap"),
        (["--tokenizer", "nowhere"], "no such tokenizer"),
    ],
)
def test_convert_refuses_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    source = put(tmp_path, "trace.jsonl", lines(TRACE))
    assert main(["workload", "convert", str(source), "-o", str(tmp_path / "out.jsonl"), *flags]) == Exit.USAGE
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_several_files_become_tenants_and_a_shipped_name_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (put(tmp_path, name, lines([{"prompt": "a"}])) for name in ("one.jsonl", "two.jsonl"))
    assert main(["workload", "convert", str(one), str(two), "-o", str(tmp_path / "out.jsonl")]) == 0
    assert [(item.id, item.tenant) for item in read_items(tmp_path / "out.jsonl").items] == [
        ("one/1", "one"), ("two/1", "two"),
    ]  # fmt: skip
    assert main(["workload", "inspect", "chat-short", "--plot"]) == 0
    assert "characters of text" in capsys.readouterr().out
    assert main(["workload", "inspect", "chat-short", "--format", "xml"]) == Exit.USAGE
