"""The parts of a run on several machines: clocks within their stated error, lost requests counted, nodes refused."""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchlab.clients.endpoint import parse_endpoint
from benchlab.clock import ManualClock
from benchlab.errors import BenchlabError, TargetError, UsageError
from benchlab.loadgen.cluster import Cluster, check_nodes, unique_names
from benchlab.loadgen.cluster_clock import measure_offset
from benchlab.loadgen.cluster_lost import account
from benchlab.loadgen.cluster_ray import check_address, connect
from benchlab.loadgen.job import StageJob
from benchlab.records import spool
from benchlab.records.event import Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.schema import records_from
from benchlab.records.spool import Spool
from benchlab.units import NS_PER_MS
from benchlab.workload.item import WorkloadItem
from tests.benchlab.loadgen.near_channel import ME, FakeAgent, NearChannel, node
from tests.running import ROOT

ITEMS = [
    WorkloadItem(id=f"row{n}", messages=[{"role": "user", "content": f"row {n}"}], output_tokens=8, tags=["a"])
    for n in range(8)
]


# -- clocks


@given(
    offset=st.integers(-(10**12), 10**12),
    trips=st.lists(st.tuples(st.integers(1, 10**8), st.integers(1, 10**8)), min_size=1, max_size=40),
)
def test_the_offset_is_within_its_error_whatever_the_way_there_and_back(
    offset: int, trips: list[tuple[int, int]]
) -> None:
    clock = ManualClock(now_ns=10**13)
    left = iter(trips)

    def ask() -> tuple[int, int]:
        out, back = next(left)
        clock.advance(out)
        reading = clock.now_ns + offset, clock.now_ns + offset + 77
        clock.advance(back)
        return reading

    found = measure_offset(ask, clock, tries=len(trips))

    made = trips[: found.trips]
    assert abs(found.offset_ns - offset) <= found.error_ns == min(-(-(out + back) // 2) for out, back in made)
    assert found.wall_ns == 77
    assert found.trips == len(trips) or sum(map(sum, made)) > 500 * NS_PER_MS


# -- what is lost


def begin(folder: Path, worker: int, *, ok: list[int], begun: list[int], stage: int = 0) -> None:
    """A worker's spool: requests that ended well, and requests that were under way."""
    file = Spool(folder, worker)
    for sequence in [*ok, *begun]:
        who = Identity(f"s{stage}-{sequence}", stage, f"row{sequence % 8}", 0, worker=worker, host="b")
        file.begin(who, intended_ns=sequence * 10, dispatched_ns=sequence * 10 + 1)
    file.flush()
    for sequence in ok:
        name = f"s{stage}-{sequence}"
        file.add(Record(name, stage, f"row{sequence % 8}", Outcome.OK, sequence * 10, end_ns=5000, worker=worker))
    file.close()


def slice_of(kind: str, **more: Any) -> StageJob:
    return StageJob(stage=0, kind=kind, start_ns=0, until_ns=None, drain_ns=0, offset=0, **more)


def lose(folder: Path, job: StageJob, items: list[WorkloadItem] = ITEMS, **more: Any) -> dict[str, Record]:
    facts = {"worker": 1, "host": "b", "start_ns": 1000, "lost_ns": 1055, "why": "node b was lost"} | more
    found = account(folder, job, items=items, **facts)
    records = {r.request_id: r for r in records_from(spool.merge(folder, why_unfinished="x")) if r.worker == 1}
    assert found.total == len(records)
    assert found.made == sum(r.error_kind == "lost" for r in records.values())
    assert [fault for record in records.values() for fault in record.audit()] == []
    return records


def test_each_request_of_a_lost_slice_has_one_record_and_says_what_is_known(tmp_path: Path) -> None:
    begin(tmp_path, 0, ok=[0, 2], begun=[])
    begin(tmp_path, 1, ok=[1], begun=[3])
    job = slice_of("open", at_ns=[10, 30, 50, 70, 90], sequences=[1, 3, 5, 7, 9])

    records = lose(tmp_path, job)

    assert {name: r.outcome.value for name, r in records.items()} == {
        "s0-1": "ok",
        "s0-3": "unfinished",
        "s0-5": "unfinished",  # due before the loss: it may have been sent
        "s0-7": "not_sent",
        "s0-9": "not_sent",
    }
    assert records["s0-3"].dispatched_ns == 31 and records["s0-3"].error == "node b was lost"
    assert records["s0-5"].unknown == ("dispatched_ns", "sent_ns", "chunk_ns")
    assert "not known" in (records["s0-5"].error or "")
    assert [records[f"s0-{n}"].intended_ns for n in (5, 7, 9)] == [1050, 1070, 1090]
    assert records["s0-9"].item_id == "row1" and records["s0-9"].host == "b" and records["s0-9"].tags == ("a",)


def test_accounting_twice_counts_once(tmp_path: Path) -> None:
    begin(tmp_path, 1, ok=[1], begun=[3])
    job = slice_of("open", at_ns=[10, 30, 50], sequences=[1, 3, 5])
    once = lose(tmp_path, job)
    assert account(tmp_path, job, worker=1, host="b", start_ns=1000, lost_ns=1055, items=ITEMS, why="again").made == 0
    assert len(once) == 3


def test_a_lost_closed_loop_of_so_many_requests_is_filled_up(tmp_path: Path) -> None:
    begin(tmp_path, 1, ok=[1, 3, 5], begun=[7, 9])
    job = slice_of("closed", users=[1, 3], count=10, first=1, step=2)

    records = lose(tmp_path, job)

    assert Counter(r.outcome.value for r in records.values()) == {"ok": 3, "unfinished": 2 + 2, "not_sent": 3}
    assert set(records) == {f"s0-{n}" for n in range(1, 21, 2)}


def test_a_closed_loop_by_time_wanted_no_certain_number(tmp_path: Path) -> None:
    begin(tmp_path, 1, ok=[1], begun=[3])
    records = lose(tmp_path, slice_of("closed", users=[1, 3], first=1, step=2))
    assert {name: r.outcome.value for name, r in records.items()} == {"s0-1": "ok", "s0-3": "unfinished"}


def test_every_turn_of_a_lost_session_is_counted(tmp_path: Path) -> None:
    items = [
        WorkloadItem(id=f"{name}{turn}", prompt="x", session=name, turn=turn) for name in "abc" for turn in range(3)
    ]
    begin(tmp_path, 1, ok=[3], begun=[])
    job = slice_of("open", sessions=True, at_ns=[20, 80], sequences=[1, 2])

    records = lose(tmp_path, job, items)

    assert {name: (r.outcome.value, r.item_id) for name, r in records.items() if name != "s0-3"} == {
        "s0-4": ("unfinished", "b1"),
        "s0-5": ("unfinished", "b2"),
        "s0-6": ("not_sent", "c0"),
        "s0-7": ("not_sent", "c1"),
        "s0-8": ("not_sent", "c2"),
    }


@given(
    num=st.integers(1, 30),
    ok=st.sets(st.integers(0, 29)),
    begun=st.sets(st.integers(0, 29)),
    lost=st.integers(0, 400),
)
def test_no_slice_is_ever_smaller_than_planned(num: int, ok: set[int], begun: set[int], lost: int) -> None:
    ok, begun = {n for n in ok if n < num}, {n for n in begun - ok if n < num}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin(folder, 1, ok=sorted(ok), begun=sorted(begun))
        job = slice_of("open", at_ns=[10 * n for n in range(num)], sequences=list(range(num)))
        records = lose(folder, job, start_ns=0, lost_ns=lost)
    assert set(records) == {f"s0-{n}" for n in range(num)}
    for n in range(num):
        wanted = "ok" if n in ok else "unfinished" if n in begun or 10 * n <= lost else "not_sent"
        assert records[f"s0-{n}"].outcome.value == wanted


# -- which nodes take part


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"python": "3.12.1"}, r"host1 \(10.0.0.1\) has Python 3.12, this host 3.11"),
        ({"benchlab": "0.9"}, r"has benchlab 0.9, this host 1.0"),
        ({"benchlab": ""}, r"has no benchlab; here it is 1.0"),
    ],
)
def test_another_version_on_a_node_is_refused_with_both_named(theirs: dict[str, str], words: str) -> None:
    check_nodes([node(0), node(2, python="3.11.0")], ME)
    with pytest.raises(UsageError, match=words):
        check_nodes([node(0), node(1, **theirs)], ME)


def test_nodes_of_one_host_have_names_of_their_own() -> None:
    same = {"hostname": "pod", "address": "10.0.0.9"}
    nodes = [node(1), node(2, hostname="pod"), node(3, **same), node(4, **same)]
    assert unique_names(nodes) == ["host1", "pod/10.0.0.2", "pod/10.0.0.9/key3", "pod/10.0.0.9/key4"]


def test_an_endpoint_that_is_another_host_elsewhere_is_refused() -> None:
    channel = NearChannel([node(1), node(2, boot_id="other")], agent=FakeAgent)
    with Cluster(channel, workers=1, me=ME) as cluster:
        cluster.check_endpoint(parse_endpoint("http://10.1.2.3:80"))
        with pytest.raises(UsageError, match="is this host alone, and the load would come from host2"):
            cluster.check_endpoint(parse_endpoint("http://127.0.0.1:80"))
        FakeAgent.why = "Connection refused"
        try:
            with pytest.raises(TargetError, match="node host1 cannot connect: Connection refused"):
                cluster.check_endpoint(parse_endpoint("http://10.1.2.3:80"))
        finally:
            FakeAgent.why = ""
    assert channel.closed and channel.gone == {"key1", "key2"}


def test_a_node_that_does_not_come_up_is_named_and_the_cluster_left() -> None:
    channel = NearChannel([node(1), node(2)], agent=FakeAgent, silent=lambda node, method: node.key == "key2")
    with pytest.raises(TargetError, match=r"node host2 did not start its load generator within 60 s"):
        Cluster(channel, workers=3, me=ME)
    assert channel.closed


# -- the way to Ray


@pytest.mark.parametrize("text", ["auto", "ray://head:10001", "ray://[::1]:10001"])
def test_an_address_of_a_cluster(text: str) -> None:
    assert check_address(text) == text


@pytest.mark.parametrize(
    "text", ["", "ray", "ray://", "ray://head", "ray://head:x", "http://head:1", "ray://u:p@head:1", "ray://h:1/x"]
)
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="no address of a Ray cluster"):
        check_address(text)


def fake_ray(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def init(**options: Any) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: None))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_ray_that_is_not_installed_is_said_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="Ray is not installed here") as caught:
        connect("auto")
    assert "pip install 'benchlab[cluster]'" in caught.value.hint and caught.value.exit_code == 2


@pytest.mark.parametrize(("address", "variable"), [("ray://127.0.0.1:9", ""), ("auto", "127.0.0.1:9")])
def test_a_cluster_that_does_not_answer_is_told_at_once(
    address: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ray(monkeypatch, AssertionError("not asked"))
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(TargetError, match="no Ray cluster answers") as caught:
        connect(address)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RuntimeError("Version mismatch: The cluster was started with: Ray: 2.1"), UsageError, "other versions: .*2.1"),
        (RuntimeError("Python minor versions differ between client and server"), UsageError, "other versions"),
        (TimeoutError("nothing came"), TargetError, "cannot be joined: TimeoutError: nothing came"),
    ],
)
def test_what_ray_raises_is_told_in_our_words(
    error: Exception, kind: type[BenchlabError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ray(monkeypatch, error)
    before = sys.stdout
    with pytest.raises(kind, match=words):
        connect("auto")
    assert sys.stdout is before


def test_the_page_holds_yaml_and_flags_that_there_are() -> None:
    page = (ROOT / "benchlab" / "loadgen" / "CLUSTER.md").read_text()
    cluster, job = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert cluster["kind"] == "RayCluster" and cluster["spec"]["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--cluster") + 1] == f"ray://{cluster['metadata']['name']}-head-svc:10001"
    help_text = (ROOT / "tests" / "golden" / "help" / "run.txt").read_text()
    assert {word for word in command if word.startswith("-")} <= set(re.findall(r"--?[a-z][a-z-]*", help_text))
