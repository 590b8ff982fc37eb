"""Any order of events folds into one record that holds together, or that says by name what does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.recorder import Recorder

NS = st.integers(0, 1000)
STEPS = st.one_of(
    st.tuples(st.just("chunk"), NS, st.sampled_from(list(Kind)), st.none() | st.integers(0, 9)),
    st.tuples(st.just("end"), NS),
    st.tuples(st.just("fail"), NS, st.sampled_from([o for o in Outcome if o is not Outcome.OK])),
    st.tuples(st.just("usage"), st.none() | st.integers(0, 99)),
    st.tuples(st.just("set"), st.sampled_from(["dispatched_ns", "sent_ns", "headers_ns"]), NS),
    st.tuples(st.just("finish")),
)
FAULTS = {
    "a gap below zero",
    "times out of order: intended, dispatched, sent, headers, end",
    "a chunk before the request was sent",
    "ok without an end",
    "not_sent, yet it was sent",
}


def new() -> Recorder:
    return Recorder(Identity("q0", 1, "i0", 0, tags=("a",)), keep_text=True)


def play(recorder: Recorder, step: tuple[Any, ...]) -> None:
    match step:
        case ("chunk", ns, kind, tokens):
            recorder.chunk(ns, kind, tokens=tokens, text="x" if kind in VISIBLE else "")
        case ("end", ns):
            recorder.end(ns)
        case ("fail", ns, outcome):
            recorder.fail(outcome, "why", ns=ns, kind="k")
        case ("usage", count):
            recorder.usage(prompt=None, output=count, reasoning=None, cached=None)
        case ("set", name, ns):
            setattr(recorder, name, ns)
        case ("finish",):
            recorder.finish_reason = "stop"


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_any_order_of_events(steps: list[tuple[Any, ...]]) -> None:
    recorder = new()
    first: Outcome | None = None
    for step in steps:
        play(recorder, step)
        first = first or recorder.outcome
        record = recorder.record(0)
        assert set(record.audit()) <= FAULTS
        assert recorder.outcome is first  # the first terminal word wins
    record = recorder.record(0)
    visible = sum(step[0] == "chunk" and step[2] in VISIBLE for step in steps)
    assert len(record.visible_ns()) == recorder.visible == visible
    assert len(recorder.all_text()) == visible
    assert record.outcome is (first or (Outcome.UNFINISHED if recorder.sent_ns is not None else Outcome.NOT_SENT))
    if record.outcome is Outcome.OK:
        assert ("finish",) in steps
        assert record.end_ns is not None and record.error is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=4, max_size=12), st.booleans())
def test_events_in_order_audit_clean(gaps: list[int], finished: bool) -> None:
    recorder, now = new(), 0
    recorder.dispatched_ns = recorder.sent_ns = 0
    for gap in gaps:
        now += gap
        recorder.chunk(now, Kind.CONTENT)
    recorder.finish_reason = "stop" if finished else None
    recorder.end(now)
    record = recorder.record(0)
    assert record.audit() == []
    assert record.outcome is (Outcome.OK if finished else Outcome.INCOMPLETE)


def test_a_record_is_not_changed_by_what_comes_later() -> None:
    recorder = new()
    recorder.sent_ns = 0
    recorder.chunk(10, Kind.CONTENT, slack_ns=3)
    early = recorder.record(0)
    recorder.chunk(20, Kind.CONTENT, slack_ns=4)
    assert early.audit() == []
    assert (list(early.chunk_ns), list(early.chunk_slack_ns), list(early.chunk_kind)) == ([10], [3], [Kind.CONTENT])


def test_times_are_relative_to_t0() -> None:
    recorder = Recorder(Identity("q0", 0, "i0", 1_000))
    recorder.dispatched_ns, recorder.sent_ns, recorder.headers_ns = 1_010, 1_020, 1_030
    recorder.connect_start_ns, recorder.connect_end_ns = 1_011, 1_012
    recorder.chunk(1_040, Kind.CONTENT, slack_ns=5)
    recorder.fail(Outcome.TIMEOUT, "slow", ns=1_050, kind="gap")
    record = recorder.record(900)
    assert (record.intended_ns, record.dispatched_ns, record.sent_ns, record.headers_ns) == (100, 110, 120, 130)
    assert (record.connect_start_ns, record.connect_end_ns, record.end_ns) == (111, 112, 150)
    assert (list(record.chunk_ns), list(record.chunk_slack_ns)) == ([140], [5])


@pytest.mark.parametrize(
    ("usage", "visible", "expected"),
    [(7, 3, (7, "usage")), (0, 0, (0, "usage")), (None, 3, (3, "chunks")), (None, 0, (None, None))],
)
def test_output_tokens_and_their_source(
    usage: int | None, visible: int, expected: tuple[int | None, str | None]
) -> None:
    recorder = new()
    for ns in range(visible):
        recorder.chunk(ns, Kind.CONTENT)
    recorder.usage(prompt=1, output=usage, reasoning=None, cached=None)
    record = recorder.record(0)
    assert (record.output_tokens, record.tokens_source) == expected
    assert ("output_tokens" in record.unknown) == (expected[1] != "usage")


def test_cumulative_counts() -> None:
    recorder = new()
    assert [recorder.tokens_so_far(n) for n in (1, 5, 5, 3, 4)] == [1, 4, 0, None, 1]


def test_texts() -> None:
    recorder = new()
    recorder.chunk(1, Kind.REASONING, text="hm ")
    recorder.chunk(2, Kind.CONTENT, text="yes")
    assert (recorder.text(), recorder.all_text()) == ("yes", "hm yes")
    silent = Recorder(Identity("q", 0, "i", 0))
    silent.chunk(1, Kind.CONTENT, text="yes")
    assert (silent.text(), silent.visible) == ("", 1)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"chunk_ns": [2, 1]}, "chunk lists differ in length"),
        ({"chunk_ns": [2, 1]}, "a gap below zero"),
        ({"sent_ns": 5, "dispatched_ns": 6}, "times out of order: intended, dispatched, sent, headers, end"),
        ({"sent_ns": 5, "chunk_ns": [4]}, "a chunk before the request was sent"),
        ({}, "ok without an end"),
        ({"outcome": Outcome.NOT_SENT, "sent_ns": 1}, "not_sent, yet it was sent"),
    ],
)
def test_audit_names_what_is_impossible(fields: dict[str, Any], fault: str) -> None:
    record = Record(
        **({"request_id": "q", "stage": 0, "item_id": "i", "outcome": Outcome.OK, "intended_ns": 0} | fields)
    )
    assert fault in record.audit()
