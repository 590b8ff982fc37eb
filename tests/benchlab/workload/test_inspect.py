"""The facts of a workload, on small cases by hand and on the public traces where they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchlab.workload.inspect import arrivals, as_text, inspect, lengths, prefix_hits
from benchlab.workload.item import WorkloadItem
from benchlab.workload.read import read_items

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def blocks(tokens: int, ids: list[int]) -> WorkloadItem:
    return WorkloadItem(input_tokens=tokens, prefix_blocks=ids, block_tokens=10)


def test_hits_are_the_leading_run_alone() -> None:
    found = prefix_hits([blocks(30, [1, 2, 3]), blocks(30, [1, 9, 3]), blocks(25, [1, 2, 3])])
    assert found == {
        "items": 3,
        "token_hit_ratio": (10 + 25) / 85,
        "items_with_hit": 2 / 3,
        "items_with_two_blocks": 1 / 3,
        "shared_tokens": {"p50": 10.0, "p90": pytest.approx(22.0)},
        "blocks": 4,
        "first_blocks": 1,
    }
    assert prefix_hits([WorkloadItem(input_tokens=3)]) is None


def test_arrivals_by_hand() -> None:
    found = arrivals([0.0, 1.0, 2.0, 3.0])
    assert found is not None
    assert (found["span_s"], found["rate_rps"], found["cv"]) == (3.0, 1.0, 0.0)
    assert found["idc"] == {"1s": 0.0, "10s": None, "60s": None}
    assert arrivals([]) is None
    at_once = arrivals([5.0, 5.0])
    assert at_once is not None
    assert (at_once["rate_rps"], at_once["cv"]) == (None, None)


def test_lengths_by_hand() -> None:
    assert lengths([]) is None
    assert lengths([1, 2, 3]) == {
        "n": 3,
        "mean": 2.0,
        "min": 1,
        "p50": 2.0,
        "p90": pytest.approx(2.8),
        "p95": pytest.approx(2.9),
        "p99": pytest.approx(2.98),
        "max": 3,
    }


def test_the_text_of_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text(
        '{"prompt":"four","output_tokens":2,"arrival_s":0,"session":"s","tenant":"t"}\n'
        '{"input_tokens":20,"prefix_blocks":[1],"block_tokens":16,"output_tokens":4,"arrival_s":4}\n{"prompt":""}\n'
    )
    found = inspect(read_items(path, lenient=True))
    json.dumps(found, allow_nan=False)
    text = as_text(found)
    assert "3 read, 2 kept, 1 dropped; 1 rejected" in text
    assert "span 4.000 s, 0.2500 requests/s" in text
    assert "sessions   1" in text
    assert "tenants    t 1" in text
    assert "token hit ratio 0.000" in text


def test_untimed_is_said(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text('{"prompt":"a"}')
    assert "untimed: give a rate or a concurrency" in as_text(inspect(read_items(tmp_path / "w.jsonl")))


PUBLISHED = [
    ("azure_llm_2023/AzureLLMInferenceTrace_code.csv", 8819, 3435.9, 2.566, 13.15, (13.2, 71.6, 164), None),
    ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", 19366, 3501.7, 5.530, 1.09, (1.39, 3.86, 16.1), None),
    ("mooncake_fast25/conversation_trace.first_slice.jsonl", 6260, 1959.0, 3.195, 2.93, (7.49, 2.00, 2.71), 0.351),
    ("mooncake_fast25/synthetic_trace.jsonl", 3993, 1022.0, 3.906, 1.01, (1.09, 1.18, 1.19), 0.651),
]


@pytest.mark.skipif(not DATA.is_dir(), reason="the excerpts of public traces are not here")
@pytest.mark.parametrize(("name", "rows", "span", "rate", "cv", "idc", "hits"), PUBLISHED)
def test_published_figures_are_met(
    name: str, rows: int, span: float, rate: float, cv: float, idc: tuple[float, ...], hits: float | None
) -> None:
    found = inspect(read_items(DATA / name))
    times = found["arrivals"]
    assert found["rows"] == {"read": rows, "kept": rows, "dropped": {}}
    assert times["span_s"] == pytest.approx(span, abs=0.06)
    assert times["rate_rps"] == pytest.approx(rate, abs=0.0006)
    assert times["cv"] == pytest.approx(cv, abs=0.006)
    for width, figure in zip(("1s", "10s", "60s"), idc, strict=True):
        assert times["idc"][width] == pytest.approx(figure, rel=0.006)
    assert (found["prefix"] is None) == (hits is None)
    if hits is not None:
        assert found["prefix"]["token_hit_ratio"] == pytest.approx(hits, abs=0.0006)


LENGTHS = [
    ("azure_llm_2023/AzureLLMInferenceTrace_code.csv", "input", 2048, (1469, 5188, 7303, 7436, 7437)),
    ("azure_llm_2023/AzureLLMInferenceTrace_code.csv", "output", 27.9, (13, 55, 90, 251, 1899)),
    ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", "input", 1155, (1020, 2734, 4083, 4142, 14050)),
    ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", "output", 211, (129, 424, 451, 601, 1000)),
    ("mooncake_fast25/synthetic_trace.jsonl", "input", 15325, (11587, 38611, 48905, 66456, 191378)),
    ("mooncake_fast25/synthetic_trace.jsonl", "output", 149, (69, 389, 519, 768, 893)),
]
MINUTES = {
    "azure_llm_2023/AzureLLMInferenceTrace_code.csv": (0, 632),
    "azure_llm_2023/AzureLLMInferenceTrace_conv.csv": (191, 507),
    "mooncake_fast25/conversation_trace.first_slice.jsonl": (144, 240),
    "mooncake_fast25/synthetic_trace.jsonl": (208, 273),
}


@pytest.mark.skipif(not DATA.is_dir(), reason="the excerpts of public traces are not here")
@pytest.mark.parametrize(("name", "side", "mean", "shares"), LENGTHS)
def test_published_lengths_are_met(name: str, side: str, mean: float, shares: tuple[int, ...]) -> None:
    told = inspect(read_items(DATA / name))[f"{side}_tokens"]
    assert told["mean"] == pytest.approx(mean, rel=0.003)
    assert [told[share] for share in ("p50", "p90", "p95", "p99", "max")] == pytest.approx(shares, rel=0.002, abs=0.6)


@pytest.mark.skipif(not DATA.is_dir(), reason="the excerpts of public traces are not here")
@pytest.mark.parametrize("name", MINUTES)
def test_published_minutes_are_met(name: str) -> None:
    minute = inspect(read_items(DATA / name))["arrivals"]["per_minute"]
    assert (minute["min"], minute["max"]) == MINUTES[name]


@pytest.mark.skipif(not DATA.is_dir(), reason="the excerpts of public traces are not here")
def test_published_sharing_is_met() -> None:
    slice_ = inspect(read_items(DATA / "mooncake_fast25/conversation_trace.first_slice.jsonl"))
    assert slice_["arrivals"]["tick_s"] == pytest.approx(3.0, abs=0.001)
    assert slice_["arrivals"]["distinct_times"] == 654
    assert (slice_["prefix"]["blocks"], slice_["prefix"]["first_blocks"]) == (104_086, 1)
    assert slice_["prefix"]["items_with_hit"] == pytest.approx(0.9998, abs=0.0001)
    assert slice_["prefix"]["shared_tokens"] == pytest.approx({"p50": 512, "p90": 12_288})
    whole = inspect(read_items(DATA / "mooncake_fast25/synthetic_trace.jsonl"))["prefix"]
    assert (whole["blocks"], whole["first_blocks"]) == (43_924, 2_211)
    assert whole["items_with_hit"] == pytest.approx(0.446, abs=0.0006)
    assert whole["items_with_two_blocks"] == pytest.approx(0.438, abs=0.0006)
    assert whole["shared_tokens"] == pytest.approx({"p50": 0, "p90": 35_840})


@pytest.mark.skipif(not DATA.is_dir(), reason="the excerpts of public traces are not here")
def test_agent_traces_are_read_whole() -> None:
    claude = inspect(read_items(DATA / "kv_cache_tester_claude_code/traces"))
    assert (claude["rows"]["read"], claude["sessions"]["n"]) == (227, 14)
    assert claude["rows"]["dropped"] == {"no output tokens (a failed request of the source)": 2}
    lmcache = inspect(read_items(DATA / "lmcache_agent_trace/taubench"))
    assert (lmcache["rows"]["kept"], lmcache["sessions"]["n"]) == (107, 5)
    rounds = inspect(read_items(DATA / "tracelab_sample/round_trace.jsonl"))
    assert (rounds["rows"]["kept"], rounds["sessions"]["n"]) == (19, 2)
    assert (rounds["input_tokens"]["p50"], rounds["input_tokens"]["max"]) == (32_272, 48_303 + 2)
    replay = inspect(read_items(DATA / "tracelab_sample/multi_session_large.csv"))
    assert (replay["rows"]["kept"], replay["sessions"]["n"]) == (303, 48)
