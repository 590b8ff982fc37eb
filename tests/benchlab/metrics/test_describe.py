"""One table: the page, the command and the CSV header say what computes."""

from __future__ import annotations

import json

from benchlab.cli.app import main
from benchlab.metrics.describe import markdown, rows, text
from benchlab.metrics.table import METRICS
from benchlab.report.tables import csv
from benchlab.selection.judge import judge
from tests.made_runs import open_run, open_stage
from tests.running import ROOT


def test_the_page_is_made_from_the_table():
    page = ROOT / "benchlab" / "metrics" / "METRICS.md"
    assert page.read_text(encoding="utf-8") == markdown(), "benchlab metrics --format md > benchlab/metrics/METRICS.md"


def test_every_metric_is_told_with_unit_direction_and_needs():
    assert [row["name"] for row in rows()] == [metric.name for metric in METRICS]
    for row in rows():
        assert row["meaning"].endswith(".") and row["unit"] and row["needs"]
    assert max(map(len, text().splitlines())) <= 80
    assert text("ttft").startswith("ttft  [ms]  lower is better") and text("ttft").count("[") == 1


def test_the_command(capsys):
    assert main(["metrics", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(METRICS)
    assert main(["metrics", "queue"]) == 0
    assert "engine's own times" in capsys.readouterr().out
    assert main(["--help", "metrics"]) == 0
    assert capsys.readouterr().out == text()
    assert main(["metrics", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("name,unit,better,of,needs,meaning\r\nttft,ms,lower,request,")
    assert main(["metrics", "tftt"]) == 2
    assert "did you mean ttft?" in capsys.readouterr().err


def test_the_csv_header_holds_every_metric(tmp_path):
    header = csv(judge(open_run(tmp_path / "run", [open_stage(5, 0.0)]))).splitlines()[0].split(",")
    for metric in METRICS:
        if metric.scope == "session":
            continue  # a run without sessions has none
        assert (metric.name if metric.scope == "run" else f"{metric.name}_n") in header
