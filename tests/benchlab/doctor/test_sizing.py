"""How many workers: arithmetic on a ceiling, and a figure that is kept for one boot, version and set of cores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.campaign.spec import Load, RunSpec
from benchlab.doctor import sizing
from benchlab.doctor.sizing import Kept, Need, keep, need_of, recall, size, workers_for
from benchlab.loadgen.arrivals import Arrival
from benchlab.loadgen.trace_times import TraceShape
from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import to_bytes

FIGURE = Kept(events_per_s=20_000, requests_per_s=10_000)


@pytest.mark.parametrize(
    ("events", "requests", "cores", "number"),
    [
        (100, 1, 16, 1),
        (9_000, 100, 16, 1),
        (12_800, 100, 16, 2),
        (50_000, 0, 16, 5),
        (0, 9_000, 16, 2),
        (10**6, 0, 4, 3),
    ],
)
def test_half_a_ceiling_a_worker_and_one_core_for_others(
    events: float, requests: float, cores: int, number: int
) -> None:
    found, words = workers_for(Need(requests, events), FIGURE, cores)

    assert found == number
    assert ("larger client host" in words) == (events == 10**6)


@given(st.floats(0, 1e7), st.floats(0, 1e6), st.integers(1, 256))
def test_there_is_always_one_and_never_more_than_the_cores_allow(events: float, requests: float, cores: int) -> None:
    number, words = workers_for(Need(requests, events), FIGURE, cores)

    assert 1 <= number <= max(1, min(sizing.MAX_WORKERS, cores - 1))
    assert words


def test_the_busiest_load_counts_and_what_is_assumed_is_said() -> None:
    assert need_of([("open", 10.0), ("open", 50.0)], 100.0) == Need(50.0, 5000.0)
    assert need_of([("open", 10.0)], None) == Need(10.0, 1280.0, "128 tokens a request")
    closed = need_of([("open", 1.0), ("closed", 64)], 100.0)
    assert closed.events_per_s == 6400 and "each user" in closed.assumed
    assert need_of([], 1.0) == Need(0, 0)


def test_the_figure_is_kept_and_recalled(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "ceiling.json"
    assert recall(file) is None
    keep(FIGURE, file)

    assert recall(file) == FIGURE
    assert [path.name for path in file.parent.iterdir()] == ["ceiling.json"]


@pytest.mark.parametrize(
    "change",
    [{"boot_id": "other"}, {"version": "0"}, {"cores": 4096}, {"events_per_s": 0}, {"events_per_s": "fast"},
     {"requests_per_s": float("nan")}, {"events_per_s": None}],
)  # fmt: skip
def test_another_boot_version_or_set_of_cores_has_no_figure(tmp_path: Path, change: dict) -> None:
    file = tmp_path / "ceiling.json"
    keep(FIGURE, file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    assert recall(file) is None


@pytest.mark.parametrize("text", ["", "[]", "nonsense", "\x00"])
def test_a_damaged_cache_is_no_figure(tmp_path: Path, text: str) -> None:
    (tmp_path / "ceiling.json").write_text(text)

    assert recall(tmp_path / "ceiling.json") is None


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keep(FIGURE, tmp_path / "file" / "ceiling.json")


def test_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sizing.cache_file() == tmp_path / "benchlab" / "ceiling.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sizing.cache_file() == tmp_path / ".cache" / "benchlab" / "ceiling.json"


def test_a_run_gets_its_workers_and_is_told_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sizing.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    keep(FIGURE)
    said: list[str] = []
    spec = RunSpec((Load("open", rate=250.0),), data=None, isl=8, osl=100)

    assert size(spec, said.append).workers == 3
    assert said == [
        "workers: 3 (25,000 token events/s due, one worker carries 20,000/s at most and should carry half of it)"
    ]


def test_a_figure_that_is_not_there_is_measured_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sizing, "measured", lambda: FIGURE)
    said: list[str] = []
    times = [WorkloadItem(id=str(n), prompt="x", output_tokens=10, arrival_s=n / 100) for n in range(201)]
    (tmp_path / "trace.jsonl").write_bytes(to_bytes(times))
    spec = RunSpec((Load("open", arrival=Arrival("trace")),), data=tmp_path / "trace.jsonl")

    assert size(spec, said.append).workers == 1
    assert said[0].startswith("measuring") and "1,005 token events/s due" in said[1]


def test_a_trace_that_is_played_faster_needs_more_and_turns_without_times_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep(FIGURE)
    said: list[str] = []
    first = [
        WorkloadItem(id=f"{n}.0", prompt="x", output_tokens=10, arrival_s=n / 100, session=str(n), turn=0)
        for n in range(201)
    ]
    later = [
        WorkloadItem(id=f"{n}.1", prompt="x", output_tokens=10, session=str(n), turn=1, depends_on=[f"{n}.0"])
        for n in range(201)
    ]
    (tmp_path / "trace.jsonl").write_bytes(to_bytes([*first, *later]))
    spec = RunSpec((Load("open", arrival=Arrival("trace")),), data=tmp_path / "trace.jsonl", trace=TraceShape(0.1))

    size(spec, said.append)
    assert "20,100 token events/s due" in said[0]
