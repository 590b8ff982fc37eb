"""The metrics page, read the way that the harness and vLLM's dashboards read it."""

from __future__ import annotations

import pytest

from benchlab.telemetry.names import shipped_rows, translate
from benchlab.telemetry.prometheus import find_duplicates, parse_exposition
from benchlab_engine.serve.exposition import Histogram, Page
from tests.support.engine_server import ask, chat, metric, open_stream, served, wait_for


@pytest.fixture(scope="module")
def page():
    flags = ("--speculate", "ngram:3", "--queue-limit", "0", "--max-seqs", "2", "--served-model-name", 'a "b"\\c')
    with served(*flags, runner="paced:ttft=1ms,itl=1ms,accept=0.5") as it:
        body = {"prompt": "abcabcabcabc" * 4, "max_tokens": 60, "n": 2, "seed": 0}
        for _ in range(2):
            assert ask(it.url, "/v1/completions", body)[0] == 200
        runs = open_stream(it.url, max_tokens=5000)
        runs.recv(4096)
        assert ask(it.url, "/v1/chat/completions", chat(n=2))[0] == 503
        runs.close()
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_running") == 0)
        assert ask(it.url, "/v1/chat/completions", chat(stop=["a", "b", "c", "d", "e", " "], max_tokens=50))[0] == 200
        assert wait_for(lambda: metric(it.url, "benchlab:request_success_total") == 6)
        yield parse_exposition(ask(it.url, "/metrics")[2], where="here")


def value(page, name, **labels):
    found = [s.value for s in page.series if s.name == name and labels.items() <= dict(s.labels).items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_the_page_is_whole_and_every_series_names_the_model(page):
    assert not page.problems
    assert not find_duplicates(page.series)
    assert all(series.label("model_name") == 'a "b"\\c' for series in page.series if ":" in series.name)


def test_the_harness_reads_it_under_its_own_names(page):
    seen = {reading.metric: reading.value for reading in translate(page)}
    assert seen["prompt_tokens"] == 2 * 48 + 2 * (len("user: hello\nassistant: ") + 1)
    assert seen["prompt_tokens_cached"] == 32 + 16
    assert seen["requests_done"] == 6
    assert seen["requests_refused"] == 1
    assert seen["draft_tokens"] >= seen["accepted_draft_tokens"] > 0
    for name in ("server_prefill_s", "server_decode_s", "server_ttft_s", "server_queue_s"):
        assert seen[f"{name}_count"] == 6
    missing = {row.metric for row in shipped_rows()} - {name.rsplit("_", 1)[0] for name in seen} - set(seen)
    assert missing <= {"busy_slots", "prompt_tokens_computed", "gpu_utilization_share", "gpu_power_w", "gpu_energy_j",
                       "gpu_memory_used_bytes"}  # fmt: skip


def test_what_means_the_same_has_vllms_name_and_the_same_value(page):
    for ours, theirs in (
        ("kv_cache_usage_share", "kv_cache_usage_perc"),
        ("generation_tokens_total", "generation_tokens_total"),
        ("time_to_first_token_seconds_count", "time_to_first_token_seconds_count"),
        ("step_tokens_sum", "iteration_tokens_total_sum"),
        ("spec_decode_num_drafts_total", "spec_decode_num_drafts_total"),
    ):
        assert value(page, f"benchlab:{ours}") == value(page, f"vllm:{theirs}", engine="0")
    assert value(page, "vllm:request_success_total", finished_reason="length") == 4
    assert value(page, "vllm:request_success_total", finished_reason="stop") == 1
    assert value(page, "vllm:request_success_total", finished_reason="abort") == 1
    assert value(page, "vllm:admission_rejections_total", reason="max_num_queued_reqs") == 1
    by_position = [
        value(page, "vllm:spec_decode_num_accepted_tokens_per_pos_total", position=str(position))
        for position in range(3)
    ]
    assert by_position == sorted(by_position, reverse=True)
    assert sum(by_position) == value(page, "vllm:spec_decode_num_accepted_tokens_total")


def test_a_histogram_counts_by_upper_bound():
    histogram = Histogram((1.0, 2.0))
    for each in (0.5, 1.0, 1.5, 9.0):
        histogram.add(each)
    page = Page("x:", {})
    page.histogram("h", histogram)
    assert page.lines == [
        "# TYPE x:h histogram", 'x:h_bucket{le="1.0"} 2', 'x:h_bucket{le="2.0"} 3', 'x:h_bucket{le="+Inf"} 4',
        "x:h_sum 12", "x:h_count 4",
    ]  # fmt: skip
