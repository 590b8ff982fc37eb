"""Requests given up on purpose: which ones is a matter of the seed, and each is one record that says `cancelled`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.loadgen.abandon import Abandon, CountingRecorder, check_rules, check_tags, parse_abandon, rule_for
from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Identity
from benchlab.units import NS_PER_MS, NS_PER_S
from benchlab.workload.item import WorkloadItem
from tests.benchlab.loadgen.fake_client import Answer, FakeClient, closed_job, drive, open_job

WHO = Identity("s0-0", 0, "i0", 0)


def test_rules_are_read() -> None:
    assert parse_abandon("after=2s:share=10%") == Abandon(2 * NS_PER_S, None, 0.1)
    assert parse_abandon("tokens=20") == Abandon(None, 20, 1.0)
    assert parse_abandon(str(Abandon(None, 20, 0.05))) == Abandon(None, 20, 0.05)
    for text in ("", "after=2", "tokens=0", "share=0.1", "after=1s:tokens=2", "after=1s:share=2", "when=1s"):
        with pytest.raises(UsageError):
            parse_abandon(text)
    with pytest.raises(UsageError, match="more than 100%"):
        check_rules([Abandon(1, None, 0.6), Abandon(None, 1, 0.6)])


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), stage=st.integers(0, 9))
def test_shares_hold_and_lie_side_by_side(seed: int, stage: int) -> None:
    rules = [Abandon(1, None, 0.3), Abandon(None, 1, 0.2)]

    found = [rule_for(rules, (), seed=seed, stage=stage, sequence=n) for n in range(1000)]

    assert 220 < found.count(rules[0]) < 380 and 130 < found.count(rules[1]) < 270
    assert found[:50] == [rule_for(rules, (), seed=seed, stage=stage, sequence=n) for n in range(50)]


def test_a_tag_outranks_the_rules() -> None:
    tags = ("other", "abandon:tokens=3")

    assert rule_for([Abandon(1, None, 1.0)], tags, seed=0, stage=0, sequence=0) == Abandon(None, 3)


def test_a_tag_with_a_share_asks_for_that_share_alone() -> None:
    found = [rule_for([], ("abandon:tokens=3:share=0.3",), seed=1, stage=0, sequence=n) for n in range(1000)]

    assert 220 < found.count(Abandon(None, 3, 0.3)) < 380
    assert found.count(None) == 1000 - found.count(Abandon(None, 3, 0.3))


def test_tags_are_checked_before_anything_is_sent() -> None:
    good = WorkloadItem(id="a", prompt="x", tags=["abandon:after=2s", "mine"])

    assert check_tags([good, WorkloadItem(id="b", prompt="x", tags=["abandonment"])]) == 1
    with pytest.raises(UsageError, match="not known here") as caught:
        check_tags([good, WorkloadItem(id="c", prompt="x", tags=["abandon:soon"])])
    assert "item 'c'" in str(caught.value)


def test_tokens_are_counted_however_they_come() -> None:
    seen: list[int] = []
    recorder = CountingRecorder(WHO, 10)
    recorder.enough = lambda: seen.append(recorder.visible)

    recorder.chunk(1, Kind.ROLE)
    recorder.chunk(2, Kind.CONTENT, tokens=4, text="a")
    recorder.content(3, 0, "b")
    recorder.contents(3, 4, 0, [])
    assert not seen
    recorder.chunk(5, Kind.REASONING, text="c")
    recorder.content(6, 0, "d")

    assert seen == [7]  # ten tokens, in seven events


@pytest.mark.parametrize("rule", [Abandon(30 * NS_PER_MS, None, 0.5), Abandon(None, 2, 0.5)], ids=str)
def test_abandoned_requests_are_cancelled_and_nothing_else_is(tmp_path: Path, rule: Abandon) -> None:
    client = FakeClient(Answer(gap_s=0.02, chunks=6))
    job = open_job([n / 200 for n in range(60)], until_s=0.3, abandon=[rule], seed=3)

    (done,) = drive(tmp_path, client, job)

    wanted = {f"s0-{n}" for n in range(60) if rule_for([rule], (), seed=3, stage=0, sequence=n)}
    cancelled = {r.request_id: r for r in done.records if r.outcome is Outcome.CANCELLED}
    assert 10 < len(wanted) < 50 and set(cancelled) == wanted
    assert done.outcomes() == {"cancelled": len(wanted), "ok": 60 - len(wanted)}
    assert done.counts.failed == 0 and client.inflight == 0
    for record in cancelled.values():
        assert record.error_kind == "abandoned" and "on purpose" in (record.error or "")
        assert len(record.chunk_ns) < 6
        if rule.tokens is not None:
            assert len(record.chunk_ns) == 2


def test_a_user_who_gives_up_asks_again(tmp_path: Path) -> None:
    job = closed_job(2, count=12, abandon=[Abandon(None, 1)])

    (done,) = drive(tmp_path, FakeClient(), job)

    assert done.outcomes() == {"cancelled": 12}


def test_an_answer_that_is_whole_before_the_patience_ends_is_ok(tmp_path: Path) -> None:
    job = open_job([0.0, 0.01], until_s=0.05, abandon=[Abandon(10 * NS_PER_S)])

    (done,) = drive(tmp_path, FakeClient(), job)

    assert done.outcomes() == {"ok": 2}
