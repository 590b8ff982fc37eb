"""Runs told in other tools' files: read back by the importers, they say the same in the tool's own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchlab.errors import UsageError
from benchlab.metrics.dialects import Figure, in_dialects
from benchlab.metrics.goodput import SloClause
from benchlab.records.event import Kind, Outcome
from benchlab.records.import_base import write_run
from benchlab.records.import_tools import read_result
from benchlab.records.store import Run
from benchlab.report.export_tools import EXPORTERS, exported
from benchlab.selection.judge import judge
from tests.made_runs import MadeStage, closed_stage, failed, made_run, open_stage, stream

SLO = (SloClause("ttft", 200, "ttft<=200ms"),)


def with_roles() -> MadeStage:
    """Streams with role, finish and [DONE] around two texts of three tokens each, and a refusal between them."""
    kinds = [Kind.ROLE, Kind.CONTENT, Kind.CONTENT, Kind.FINISH, Kind.DONE]
    records = [
        stream(
            i, [i + 0.01, i + 0.1 + i / 1000, i + 0.2, i + 0.21, i + 0.25], kinds=kinds, tokens=6, request_id=f"r{i}"
        )
        for i in range(8)
    ]
    refused = failed(8.5, outcome=Outcome.ERROR_HTTP, request_id="no", http_status=503, error="Service Unavailable")
    return MadeStage([*records, refused], 0, 10, offered_rps=0.9, name="0.9/s")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(made_run(tmp_path / "made", [with_roles()]))


def text_of(run: Run, tool: str, stage: int | None = None) -> Any:
    return json.loads(exported(run, judge(run, slo=SLO), tool, SLO, stage), parse_constant=pytest.fail)


def figures(run: Run, tool: str) -> dict[str, Figure]:
    (stage,) = in_dialects(run.manifest, run.requests(), slo=SLO)
    return {f.key: f for speech in stage.speeches if speech.tool == tool for f in speech.figures}


@pytest.mark.parametrize("tool", ["vllm", "guidellm"])
def test_there_and_back_it_says_the_same(tool: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "exported.json"
    path.write_text(json.dumps(text_of(run, tool)))
    found = read_result(path)
    assert found.tool == tool
    back = Run(write_run(found, path, tmp_path / "back", wall_ns=0, labels={}))
    there, again = figures(run, tool), figures(back, tool)
    assert there.keys() == again.keys()
    for key, figure in there.items():
        assert again[key].gap == figure.gap
        for name, value in figure.stats.items():
            wanted = None if value is None else pytest.approx(value, rel=1e-4, abs=2e-3)
            assert again[key].stats[name] == wanted, (key, name)
    outcomes = judge(back)["stages"][0]["outcomes"]
    assert (outcomes["ok"], outcomes["error_http"]) == (8, 1)
    assert back.manifest["stages"][0]["offered_rps"] == 0.9


def test_vllm_keys_are_those_of_vllm(run: Run) -> None:
    folder = Path(__file__).parents[2] / "fixtures" / "foreign_results"
    theirs = json.loads((folder / "vllm-role.json").read_text())
    ours = text_of(run, "vllm")
    lacking = {key for key in theirs if key not in ours and not key.startswith("std_")}
    assert lacking == {"queue_times", "max_output_tokens_per_s", "max_concurrent_requests", "rtfx"}
    assert ours["completed"] == 8
    assert ours["failed"] == 1
    assert ours["errors"][-1] == "Service Unavailable"
    assert ours["ttfts"][-1] == 0.0
    assert ours["mean_ttft_ms"] == pytest.approx(10)  # the role event, as vllm has it
    assert len(ours["itls"][0]) == 3


def test_one_stage_at_a_time(tmp_path: Path) -> None:
    run = Run(made_run(tmp_path / "two", [open_stage(2, 0, length=10), open_stage(4, 40, length=10)]))
    with pytest.raises(UsageError, match="has 2 stages") as caught:
        text_of(run, "vllm")
    assert "0, 1" in caught.value.hint
    assert text_of(run, "vllm", 1)["request_rate"] == 4
    with pytest.raises(UsageError, match="no stage 7"):
        text_of(run, "vllm", 7)
    with pytest.raises(UsageError, match="no stage 7"):
        text_of(run, "github-action", 7)
    assert len(text_of(run, "guidellm")["benchmarks"]) == 2
    assert len(text_of(run, "guidellm", 1)["benchmarks"]) == 1


def test_what_vllm_would_need_and_the_source_does_not_tell_is_refused(tmp_path: Path) -> None:
    records = [stream(i, [i + 0.1, i + 0.2], request_id=f"r{i}", unknown=("chunk_kind.silent",)) for i in range(4)]
    run = Run(made_run(tmp_path / "foreign", [MadeStage(records, 0, 10)]))
    with pytest.raises(UsageError, match=r"does not tell chunk_kind\.silent"):
        text_of(run, "vllm")


def test_github_action_has_names_that_stay(tmp_path: Path) -> None:
    run = Run(made_run(tmp_path / "runs", [open_stage(2, 0, length=30), closed_stage(4, 60)]))
    smaller, bigger = text_of(run, "github-action"), text_of(run, "github-action-bigger")
    assert {"name", "unit", "value", "extra"} <= smaller[0].keys()
    names = [row["name"] for row in smaller]
    assert len(set(names)) == len(names)
    assert "2/s / ttft.p50" in names
    assert not any("run" in name for name in names)
    middle = next(row for row in smaller if row["name"] == "2/s / ttft.p50")
    assert middle["range"].startswith("± ")
    assert all(isinstance(row["value"], int | float) for row in smaller + bigger)
    assert {row["name"].split(" / ")[1] for row in bigger} == {"completed_rps", "good_rps", "output_tps", "attainment"}
    assert not {row["name"] for row in bigger} & set(names)


def test_nothing_succeeded(tmp_path: Path) -> None:
    records = [failed(i, outcome=Outcome.ERROR_HTTP, request_id=f"r{i}") for i in range(5)]
    run = Run(made_run(tmp_path / "none", [MadeStage(records, 0, 10)]))
    assert text_of(run, "vllm")["mean_ttft_ms"] is None
    assert text_of(run, "vllm")["completed"] == 0
    (benchmark,) = text_of(run, "guidellm")["benchmarks"]
    assert benchmark["metrics"]["time_to_first_token_ms"]["successful"] is None
    assert [row["name"] for row in text_of(run, "github-action")] == ["failed_share"]


def test_no_stage_at_all(tmp_path: Path) -> None:
    run = Run(made_run(tmp_path / "empty", []))
    for tool in ("vllm", "guidellm"):
        with pytest.raises(UsageError):
            text_of(run, tool)
    assert text_of(run, "github-action") == []


def test_a_format_that_is_none(run: Run) -> None:
    with pytest.raises(UsageError, match="no format here") as caught:
        text_of(run, "excel")
    assert all(name in caught.value.hint for name in EXPORTERS)
