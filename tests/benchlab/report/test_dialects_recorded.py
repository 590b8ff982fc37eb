"""A recorded run of ours, and what the tools themselves printed against the same server with the same plan.

Both are files (see the fixtures' READMEs): other prompts and another hour, so figures agree within a tenth, where the
definitions alone differ by factors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchlab.metrics.dialects import Figure, in_dialects
from benchlab.records.store import Run
from benchlab.report.dialects import _cells, _columns
from benchlab.selection.slo import parse_slos
from tests.benchlab.records.test_import import FILES, ROLE, imported
from tests.running import ROOT

RECORDED = ROOT / "tests" / "fixtures" / "dialects_run"


def figures(run: Run, tool: str) -> dict[str, Figure]:
    (stage,) = in_dialects(run.manifest, run.requests())
    return {f.key: f for speech in stage.speeches if speech.tool == tool for f in speech.figures}


def middle(figure: Figure) -> float | None:
    return figure.stats.get("p50", figure.stats.get("value"))


@pytest.mark.parametrize("tool", ["vllm", "guidellm", "genai-bench"])
def test_our_run_in_a_tools_words_is_what_that_tool_printed(tool: str, tmp_path: Path) -> None:
    ours, theirs = figures(Run(RECORDED), tool), figures(imported(FILES / ROLE[tool], tmp_path / "run"), tool)
    for key in ("itl", "tpot", "e2e", "completed_rps", "output_tps"):
        if ours[key].gap != "this tool has no such number":
            assert middle(ours[key]) == pytest.approx(middle(theirs[key]), rel=0.1), key
    if tool == "vllm":  # the role event: next to nothing, of which each client's own overhead is a good part
        assert middle(ours["ttft"]) < 5
        assert middle(theirs["ttft"]) < 5
    else:
        assert middle(ours["ttft"]) == pytest.approx(middle(theirs["ttft"]), rel=0.1)


def test_the_definitions_differ_by_factors() -> None:
    run = Run(RECORDED)
    ours = figures(run, "benchlab")
    ratio = {
        (tool, key): middle(figures(run, tool)[key]) / middle(ours[key])
        for tool, key in (("vllm", "ttft"), ("vllm", "tpot"), ("guidellm", "tpot"), ("aiperf", "itl"))
    }
    assert ratio["vllm", "ttft"] < 0.01
    assert ratio["vllm", "tpot"] == pytest.approx(2.05, abs=0.01)
    assert ratio["guidellm", "tpot"] == pytest.approx(1.93, abs=0.01)
    assert ratio["aiperf", "itl"] == pytest.approx(0.5, abs=0.01)
    assert middle(figures(run, "inference-perf")["itl"]) == 0


def test_the_published_page_is_of_this_run() -> None:
    page = (ROOT / "reports" / "dialects.html").read_text(encoding="utf-8")
    run = Run(RECORDED)
    stages = in_dialects(run.manifest, run.requests(), slo=parse_slos(run.manifest["slo"]["clauses"]))
    columns = _columns(stages)
    for speech in stages[0].speeches:
        assert all(part.replace("'", "&#39;") in page for part in speech.sentence.split("`"))
        for figure in speech.figures:
            for cell in _cells(figure, figure, columns):
                assert f">{cell}</td>" in page, (speech.tool, figure.key)
