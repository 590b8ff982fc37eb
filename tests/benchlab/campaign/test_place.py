"""Where load comes from: what one host alone can do is refused on several, before anything is sent."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import Any

import pytest

from benchlab.campaign.place import find_place
from benchlab.campaign.spec import Load, RunSpec
from benchlab.errors import UsageError
from benchlab.loadgen import cluster_ray
from tests.benchlab.loadgen.near_channel import ME, FakeAgent, NearChannel, node

SPEC = RunSpec((Load("closed", concurrency=4),), None, url="http://10.0.0.1:80", workers=2, cluster="auto")


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> NearChannel:
    channel = NearChannel([node(1), node(2), node(3)], agent=FakeAgent)
    monkeypatch.setattr(cluster_ray, "connect", lambda address: channel)
    monkeypatch.setattr(cluster_ray, "here", lambda: ME)
    return channel


def place(spec: RunSpec, said: list[str] | None = None) -> tuple[RunSpec, Any]:
    with contextlib.ExitStack() as stack:
        return find_place(spec, 4, (said if said is not None else []).append, stack)


def test_the_workers_of_all_nodes_are_the_runs(channel: NearChannel) -> None:
    said: list[str] = []
    spec, _ = place(SPEC, said)
    assert spec.workers == 6
    assert said[-1] == "load comes from 3 nodes with 2 workers each: host1, host2, host3"
    assert channel.closed and len(channel.gone) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_inflight": 5}, "5 in flight cannot be shared out among the 6 workers"),
        ({"source_addresses": ("10.0.0.7",)}, "is an address of this host"),
    ],
)
def test_what_needs_one_host_is_refused(channel: NearChannel, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        place(replace(SPEC, **more))
    assert channel.gone == set(channel.agents)


def test_a_run_of_this_host_has_no_cluster_and_loads_nothing_of_one() -> None:
    before = set(sys.modules)
    spec, cluster = place(replace(SPEC, cluster=None))
    assert spec.workers == 2 and cluster is None
    assert "ray" not in set(sys.modules) - before
