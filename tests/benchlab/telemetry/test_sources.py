"""Which sources a run has, from its flags."""

from __future__ import annotations

import pytest

from benchlab.errors import UsageError
from benchlab.telemetry.prometheus import ScrapeError
from benchlab.telemetry.sources import open_sources

PAGE = b"vllm:num_requests_running 1\n"


def names(sources):
    for source in sources.all:
        source.close()
    return [source.name for source in sources.all]


def test_an_endpoint_on_this_host_with_metrics(server):
    server.page = PAGE
    sources = open_sources(
        server.url.replace("/metrics", "/v1"), trees={"engine": 1}, environ={"CUDA_VISIBLE_DEVICES": ""}
    )

    assert names(sources) == ["host", "engine"]
    assert sources.scraper.url == server.url
    assert len(sources.notes) == 1 and sources.notes[0].startswith("no GPU telemetry: ")


def test_without_metrics_auto_is_a_note_and_a_named_page_an_error(server):
    server.status = 404
    sources = open_sources(server.url, gpu="off")

    assert names(sources) == ["host"]
    assert sources.notes == [
        f"no engine metrics: {server.url}: answered 404",
        "no GPU telemetry: switched off (--gpu off)",
    ]
    with pytest.raises(ScrapeError, match="answered 404") as caught:
        open_sources("http://127.0.0.1:1", gpu="off", scrape=server.url)
    assert caught.value.where == f"--scrape {server.url}"


def test_what_is_switched_off_is_said():
    sources = open_sources("http://192.0.2.1:8000", scrape="off")

    assert names(sources) == ["host"]
    assert sources.notes[0] == "the engine's metrics are not read (--scrape off)"
    assert "192.0.2.1) is not a loopback address" in sources.notes[1]


def test_a_page_named_by_the_user_gets_none_of_the_endpoints_headers(server):
    server.page = PAGE
    secret = {"Authorization": "Bearer x"}
    names(open_sources("http://127.0.0.1:1", gpu="off", scrape=server.url, headers=secret))
    assert server.headers[-1].get("Authorization") is None
    names(open_sources(server.url, gpu="off", headers=secret))
    assert server.headers[-1].get("Authorization") == "Bearer x"


def test_a_wrong_flag_is_refused_before_anything_is_opened():
    with pytest.raises(UsageError):
        open_sources("http://127.0.0.1:1", gpu="everything")
