"""What ships: every byte made again, the schema, the cards, and the names by which it is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchlab.errors import UsageError
from benchlab.shipped import shipped_workloads
from benchlab.workload.find import resolve, shipped_names
from benchlab.workload.item import FIELDS
from benchlab.workload.read import read_items
from benchlab.workload.schema import item_schema, published_schema
from benchlab.workload.ship import SHIPPED, shipped_files, write_shipped

FILES = shipped_files()


@pytest.mark.parametrize("name", FILES)
def test_a_shipped_file_is_what_its_recipe_makes(name: str) -> None:
    assert (shipped_workloads() / name).read_bytes() == FILES[name], "run: python -m benchlab.workload.ship"


def test_nothing_else_lies_there_and_all_is_small() -> None:
    there = {path.name: path.stat().st_size for path in shipped_workloads().iterdir()}
    assert there.keys() == FILES.keys()
    assert max(there.values()) < 300_000


def test_they_are_written_anew(tmp_path: Path) -> None:
    written = write_shipped(tmp_path / "w")
    assert {path.name for path in written} == FILES.keys()


@pytest.mark.parametrize("name", [one.name for one in SHIPPED])
def test_a_shipped_workload_reads_clean(name: str) -> None:
    found = read_items(resolve(name))
    assert found.kept == found.read == len(found.items)
    assert found.notes == () or found.timed


def test_the_published_schema_is_the_types() -> None:
    assert published_schema().read_text() == item_schema()
    schema = json.loads(item_schema())
    assert list(schema["$defs"]["WorkloadItem"]["properties"]) == sorted(FIELDS)


def test_the_schema_judges_as_the_reader_does() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs the extra 'quality'")
    judge = jsonschema.Draft202012Validator(json.loads(item_schema()))
    for name in shipped_names():
        for line in resolve(name).read_text().splitlines():
            judge.validate(json.loads(line))
    for row in ({"prompt": ""}, {"prompt": "a", "input_tokens": 3}, {"prompt": "a", "output_tokens": 0}, {"a": 1}, {}):
        assert not judge.is_valid(row)
    assert judge.is_valid({"prompt": "a", "messages": None})


@pytest.mark.parametrize(
    "name", ["chat-short", "chat-short.jsonl", "workloads/chat-short.jsonl", "workloads/chat-short"]
)
def test_a_name_is_found_from_anywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(name) == shipped_workloads() / "chat-short.jsonl"


def test_a_path_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chat-short").write_text("{}")
    assert resolve("chat-short") == Path("chat-short")


@pytest.mark.parametrize("name", ["chat-shrot", "", "a\0b", "x" * 5000, "workloads/none.jsonl"])
def test_an_unknown_name_lists_the_shipped_ones(name: str) -> None:
    with pytest.raises(UsageError, match="shipped workloads: agent-platform, azure-code, azure-conv, chat-short"):
        resolve(name)
