"""Real pages of engines, under our names."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchlab.errors import UsageError
from benchlab.telemetry.names import rows_from, shipped_rows, translate
from benchlab.telemetry.prometheus import parse_exposition

PAGES = Path(__file__).with_name("pages")


def values(page):
    return {reading.metric + reading.labels: reading.value for reading in translate(parse_exposition(page))}


def test_a_real_page_of_vllm():
    page = parse_exposition((PAGES / "vllm.txt").read_text())
    found = values((PAGES / "vllm.txt").read_text())

    assert page.problems == []
    assert found["running"] == found["waiting"] == found["kv_usage_share"] == 0
    assert (found["prefix_queries"], found["prefix_hits"], found["preemptions"]) == (627, 0, 0)
    assert (found["prompt_tokens"], found["prompt_tokens_computed"], found["generation_tokens"]) == (627, 627, 252)
    assert found["requests_done"] == 20  # summed over reasons
    assert (found["server_ttft_s_count"], found["server_ttft_s_sum"]) == (21, pytest.approx(45.4844024))
    assert found['server_ttft_s_bucketle="+Inf"'] == 21
    assert found["process_started"] == pytest.approx(1.79596350849e9)


def test_a_real_page_of_llamacpp():
    found = values((PAGES / "llamacpp.txt").read_text())

    assert (found["running"], found["waiting"]) == (0, 0)
    assert (found["prompt_tokens_computed"], found["prompt_tokens_cached"]) == (117, 360)
    assert "prompt_tokens" not in found  # llama.cpp's figure leaves out what was cached: another meaning
    assert (found["generation_tokens"], found["steps"]) == (232, 224)


def test_series_of_several_engines_are_joined_by_their_row():
    found = values(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.6\n'
    )

    assert found == {"running": 7, "kv_usage_share": pytest.approx(0.4)}


def test_the_first_name_that_a_page_has_is_taken_and_nan_gives_nothing():
    assert values("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25") == {"kv_usage_share": 0.25}
    assert values("vllm:num_requests_running NaN") == {}


def test_units_are_made_ours():
    found = values(
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50\nDCGM_FI_DEV_POWER_USAGE{gpu="0"} 300\nDCGM_FI_DEV_POWER_USAGE{gpu="1"} 310'
    )

    assert found == {"gpu_utilization_share": pytest.approx(0.5), "gpu_power_w": 610}


def test_the_shipped_table_is_sound():
    rows = shipped_rows()

    assert {"running", "waiting", "kv_usage_share", "prefix_hits", "prefix_queries", "preemptions", "prompt_tokens",
            "generation_tokens"} <= {row.metric for row in rows}  # fmt: skip
    claimed = [(s.name, s.labels) for row in rows for s in row.selectors]
    assert len(claimed) == len(set(claimed))  # one foreign name means one thing


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kind": "gauge", "nmes": ["a"]}, "unknown: nmes"),
        ({"kind": "guage", "names": ["a"]}, "kind is none of"),
        ({"kind": "gauge", "names": []}, "names is not a list"),
        ({"kind": "gauge", "names": ["a{"]}, "no metric's name"),
        ({"kind": "gauge", "names": ["a"], "join": "median"}, "join is none of"),
        ("running", "unknown: the row"),
    ],
)
def test_a_wrong_table_is_refused_by_row(row, message):
    with pytest.raises(UsageError, match=message) as caught:
        rows_from({"mine": row}, "my.toml")
    assert "my.toml: [mine]" in str(caught.value)
