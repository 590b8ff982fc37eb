"""A run in several tools' words: text, Markdown, CSV and page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from benchlab.metrics.dialects import StageSpeeches, in_dialects
from benchlab.metrics.goodput import SloClause
from benchlab.records.store import Run
from benchlab.report.dialects import as_json, dialects_page, dialects_text
from benchlab.selection.judge import judge
from tests.made_runs import MadeStage, made_run, open_stage, steady

SLO = (SloClause("ttft", 500, "ttft<=500ms"),)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    odd = MadeStage([steady(30 + i, ttft=0.1, gap=0.01, tokens=4, request_id=f"x{i}") for i in range(3)], 30, 40,
                    name="<b>| odd `name`\x1b[31m")  # fmt: skip
    return Run(made_run(tmp_path_factory.mktemp("runs") / "two", [open_stage(2, 0, length=20), odd]))


@pytest.fixture(scope="module")
def stages(run: Run) -> list[StageSpeeches]:
    return in_dialects(run.manifest, run.requests(), slo=SLO)


def test_every_tool_stands_in_every_block_with_its_reason(stages: list[StageSpeeches]) -> None:
    text = dialects_text(stages, "table")
    blocks = text.split("\n\n")
    first = next(block for block in blocks if "Time to first token" in block)
    for tool in ("benchlab", "vllm", "aiperf", "guidellm", "inference-perf", "genai-bench", "sglang", "mlperf"):
        assert any(line.startswith(tool) for line in first.splitlines()), tool
    assert "role-only event stops the clock" in first
    assert max(map(len, text.splitlines())) <= 140
    assert "\x1b" not in text


def test_csv_has_the_same_columns_in_every_row(stages: list[StageSpeeches]) -> None:
    rows = list(csv.reader(io.StringIO(dialects_text(stages, "csv"))))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows[0][:6] == ["stage", "name", "quantity", "tool", "checked", "word"]
    assert {row[3] for row in rows[1:]} >= {"benchlab", "mlperf"}


def test_markdown_cannot_be_broken_out_of(stages: list[StageSpeeches]) -> None:
    text = dialects_text(stages, "md")
    assert "## 2/s" in text
    assert "<b>" not in text
    tables = [line for line in text.splitlines() if line.startswith("| ") and "tool" not in line]
    assert tables


def test_json_is_strict(stages: list[StageSpeeches]) -> None:
    text = json.dumps(as_json(stages), allow_nan=False)
    assert json.loads(text)[0]["speeches"][0]["tool"] == "benchlab"


def test_the_page_says_whose_numbers_they_are(run: Run, stages: list[StageSpeeches]) -> None:
    page = dialects_page(run, judge(run), stages)
    assert "<b>|" not in page
    assert "Content-Security-Policy" in page
    for words in ("The tools", "vllm bench serve 0.32.0", "loadgen&#39;s results.cc; not run here", "why it differs"):
        assert words in page, words
    assert page.count("<h2>") == len(stages) + 1


def test_a_gap_is_a_dash_with_its_reason(tmp_path: Path) -> None:
    silent = [
        steady(i, ttft=0.1, gap=0.01, tokens=4, request_id=f"x{i}", unknown=("chunk_kind.silent",)) for i in range(4)
    ]
    run = Run(made_run(tmp_path / "run", [MadeStage(silent, 0, 10)]))
    text = dialects_text(in_dialects(run.manifest, run.requests()), "table")
    assert "none: the source does not tell chunk_kind.silent" in text
