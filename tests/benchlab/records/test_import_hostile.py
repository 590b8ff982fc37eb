"""Result files with anything in them: each ends as a run or as one error of file, place and next step."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.metrics.dialects import in_dialects
from benchlab.records.import_base import write_run
from benchlab.records.import_tools import BY_TOOL, read_result
from benchlab.records.store import Run
from benchlab.report.dialects import dialects_text
from benchlab.selection.judge import judge
from tests.running import ROOT

FILES = ROOT / "tests" / "fixtures" / "foreign_results"
JSON_FILES = {
    "vllm": "vllm-refuse.json",
    "sglang": "sglang-role.jsonl",
    "guidellm": "guidellm-refuse.json",
    "aiperf": "aiperf-refuse/profile_export.jsonl",
    "aiperf raw": "aiperf-role/profile_export_raw.jsonl",
    "inference-perf": "inference-perf-role.json",
    "genai-bench": "genai-bench-role.json",
}
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1e308, -1e308, float("nan"), float("inf"), 2**63, 10**30, 1e-320, 3.5, 1e9, 8.9e9]),
    st.text(max_size=8),
    st.sampled_from([[], {}, [1], {"a": 1}, "inf", "\ud800", "2026-01-01"]),
)


def _document(name: str) -> Any:
    text = (FILES / name).read_text(encoding="utf-8")
    if not name.endswith(".jsonl"):
        whole = json.loads(text)
        if isinstance(whole, list):
            return whole[:3]
        return whole
    return [json.loads(line) for line in text.splitlines()[:3]]


DOCUMENTS = {tool: _document(name) for tool, name in JSON_FILES.items()}


def _spots(value: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """(container, key) of every member, down to a depth at which documents repeat themselves."""
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = [(value, key) for key in value]
    elif isinstance(value, list):
        members = [(value, place) for place in range(min(len(value), 3))]
    return members + [deeper for holder, key in members if depth < 7 for deeper in _spots(holder[key], depth + 1)]


@pytest.mark.parametrize("tool", JSON_FILES)
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spoiled_file_is_a_run_or_an_error(tool: str, tmp_path: Path, data: st.DataObject) -> None:
    document = copy.deepcopy(DOCUMENTS[tool])
    for _ in range(data.draw(st.integers(1, 3))):
        spots = _spots(document)
        if not spots:
            break
        holder, key = spots[data.draw(st.integers(0, len(spots) - 1))]
        if isinstance(holder, dict) and data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(ANYTHING)
    path = tmp_path / "result"
    lines = JSON_FILES[tool].endswith(".jsonl")
    text = "\n".join(json.dumps(line) for line in document) if lines else json.dumps(document)
    path.write_text(text, encoding="utf-8")
    out = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
    try:
        write_run(read_result(path, tool.split()[0]), path, out, wall_ns=0, labels={})
    except UsageError as error:
        assert error.where.startswith(str(path)) or error.where.startswith(str(tmp_path))
        assert error.hint
        return
    run = Run(out)
    judge(run)
    stages = in_dialects(run.manifest, run.requests())
    for form in ("table", "md", "csv"):
        assert dialects_text(stages, form)


@given(
    st.recursive(
        ANYTHING, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner), max_leaves=8
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "any.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    for tool in (None, *BY_TOOL):
        with pytest.raises(UsageError):
            read_result(path, tool)
