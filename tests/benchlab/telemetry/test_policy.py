"""Whose GPUs may be sampled."""

from __future__ import annotations

import pytest

from benchlab.errors import UsageError
from benchlab.telemetry.policy import gpu_policy, is_loopback


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8000", "http://localhost:8000/v1", "127.3.2.1:80", "http://[::1]:8000", "http://0.0.0.0:1",
     "http://[::ffff:127.0.0.1]:1", "localhost.:80"],
)  # fmt: skip
def test_loopback_addresses(url):
    assert is_loopback(url)


@pytest.mark.parametrize("url", ["http://10.0.0.5:8000", "https://api.example.com", "http://localhost.evil.com", ""])
def test_other_addresses(url):
    assert not is_loopback(url)


def test_a_remote_endpoints_gpus_are_not_this_hosts():
    answer = gpu_policy("http://10.0.0.5:8000", "auto", launched=False)

    assert not answer.sample
    assert "10.0.0.5" in answer.reason and "--scrape" in answer.reason


def test_where_it_runs_here_or_is_named():
    assert gpu_policy("http://127.0.0.1:1", "auto", launched=False).sample
    assert gpu_policy("http://10.0.0.5:8000", "auto", launched=True).sample
    named = gpu_policy("http://10.0.0.5:8000", "0, 1", launched=False)
    assert (named.sample, named.devices) == (True, "0,1")
    assert not gpu_policy("http://127.0.0.1:1", "off", launched=True).sample


def test_a_list_of_nonsense_is_refused():
    with pytest.raises(UsageError, match="names no GPUs"):
        gpu_policy("http://127.0.0.1:1", "all", launched=False)
