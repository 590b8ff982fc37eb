"""`import`, `export` and `report --dialects` as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchlab.cli.conftest import Call
from tests.running import ROOT, Done

FILES = ROOT / "tests" / "fixtures" / "foreign_results"


def test_import_then_ask_in_its_own_words(call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = call("import", FILES / "vllm-role.json", "-o", run, "-l", "who=me", "--format", "json")
    assert done.code == 0, done
    assert json.loads(done.out)["verdict"]["state"] == "WARN"
    assert "imported 12 requests of vllm" in done.err
    assert "not told: cached_tokens, chunk_kind," in done.err
    assert {p.name for p in run.iterdir()} == {"manifest.json", "requests.parquet", "summary.json", "report.html"}
    assert json.loads((run / "manifest.json").read_text())["labels"] == {"who": "me"}
    spoken = call("report", run, "--dialects", "--slo", "ttft=65ms", "--format", "json")
    assert spoken.code == 0
    (stage,) = json.loads(spoken.out)
    vllm = next(speech for speech in stage["speeches"] if speech["tool"] == "vllm")
    told = json.loads((FILES / "vllm-role.json").read_text())
    assert vllm["figures"][0]["stats"]["p99"] == pytest.approx(told["p99_ttft_ms"], rel=1e-6)
    assert (run / "dialects.html").exists()
    for command in ("show", "validate", "report"):
        assert call(command, run).code == 0


@pytest.mark.parametrize(
    "name",
    ["sglang-role.jsonl", "guidellm-refuse.json", "aiperf-role/profile_export_raw.jsonl", 
     "genai-bench-role.json", "evalscope-role/benchmark_data.db"],
)  # fmt: skip
def test_every_tools_run_is_a_run_to_every_command(name: str, call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert call("import", FILES / name, "-o", run).code == 0
    assert call("report", run, "--dialects").code == 0
    assert call("show", run, "--metric", "ttft").code == 0
    if "guidellm" in name:
        assert call("report", run, "-v").code == 0
        assert call("compare", run, run).code == 0
        assert call("gate", run, "--assert", "completed_rps>0").code == 0


@pytest.mark.parametrize("form", ["table", "csv"])
def test_dialects_of_a_run_of_ours(form: str, call: Call, stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "dialects.html"
    done = call("report", stored, "--dialects", "--html", page, "--format", form)
    assert done.code == 0, done
    assert "mlperf" in done.out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (stored / "dialects.html").exists()


def test_export_to_stdout_and_to_a_file(call: Call, stored: Path, tmp_path: Path) -> None:
    done = call("export", stored, "--to", "github-action")
    assert done.code == 0
    assert {row["unit"] for row in json.loads(done.out)} <= {"ms", "share"}
    out = tmp_path / "ci" / "guidellm.json"
    done = call("export", stored, "--to", "guidellm", "-o", out)
    assert (done.code, done.out) == (0, "")
    assert call("import", out, "-o", tmp_path / "back").code == 0


def test_an_invalid_run_gives_no_point_on_a_chart(call: Call, stored: Path, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "invalid"
    shutil.copytree(stored, run)
    manifest = json.loads((run / "manifest.json").read_text())
    for stage in manifest["stages"]:
        stage["planned"] = 10**6
    (run / "manifest.json").write_text(json.dumps(manifest))
    done = call("export", run, "--to", "github-action", "-o", tmp_path / "chart.json")
    assert done.code == 4
    assert not (tmp_path / "chart.json").exists()
    assert "nothing was written" in done.err


def test_faults_have_the_one_shape(
    call: Call, told: Callable[[Done, int], list[str]], stored: Path, tmp_path: Path
) -> None:
    file = FILES / "vllm-role.json"
    folder = tmp_path / "taken"
    folder.mkdir()
    (folder / "x").write_text("x")
    short = tmp_path / "short.json"
    short.write_bytes(file.read_bytes()[:900])
    for words in (
        ("import", tmp_path / "nothing.json"),
        ("import", tmp_path),
        ("import", short),
        ("import", FILES / "README.md"),
        ("import", FILES / "inference-perf-role.summary.json"),
        ("import", file, "--from", "jmeter"),
        ("import", file, "--from", "aiperf"),
        ("import", file, "-o", folder),
        ("import", file, "-l", "nolabel"),
        ("import", file, "--format", "xml"),
        ("export", stored, "--to", "jmeter"),
        ("export", stored, "--to", "vllm", "--stage", "99"),
        ("export", tmp_path / "nowhere", "--to", "vllm"),
        ("report", tmp_path / "nowhere", "--dialects"),
    ):
        told(call(*words), 2)
    assert list(folder.iterdir()) == [folder / "x"]
