"""Hypothesis strategies for the rooms that read and write records."""

from __future__ import annotations

from hypothesis import strategies as st

from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.records.record import Record

NS = st.integers(-(2**40), 2**60)
WORDS = st.text(max_size=12)
MAYBE_NS = st.none() | NS
MAYBE_COUNT = st.none() | st.integers(0, 2**31 - 1)


@st.composite
def records(draw: st.DrawFn, number: int = 0) -> Record:
    """Any record that fits the columns; it need not be plausible."""
    chunks = draw(st.lists(st.tuples(NS, st.integers(0, 2**40), MAYBE_COUNT, st.sampled_from(list(Kind))), max_size=6))
    return Record(
        request_id=f"q{number}",
        stage=draw(st.integers(0, 5)),
        item_id=draw(WORDS),
        outcome=draw(st.sampled_from(list(Outcome))),
        intended_ns=draw(NS),
        dispatched_ns=draw(MAYBE_NS),
        held_ns=draw(st.integers(0, 2**40)),
        connect_start_ns=draw(MAYBE_NS),
        connect_end_ns=draw(MAYBE_NS),
        sent_ns=draw(MAYBE_NS),
        headers_ns=draw(MAYBE_NS),
        chunk_ns=[c[0] for c in chunks],
        chunk_slack_ns=[c[1] for c in chunks],
        chunk_tokens=[c[2] if c[3] in VISIBLE else None for c in chunks],
        chunk_kind=[c[3] for c in chunks],
        end_ns=draw(MAYBE_NS),
        stamp_source=draw(st.sampled_from(["kernel", "callback"])),
        http_status=draw(st.none() | st.integers(100, 599)),
        error=draw(st.none() | WORDS),
        error_kind=draw(st.none() | WORDS),
        finish_reason=draw(st.none() | WORDS),
        prompt_tokens=draw(MAYBE_COUNT),
        output_tokens=draw(MAYBE_COUNT),
        reasoning_tokens=draw(MAYBE_COUNT),
        cached_tokens=draw(MAYBE_COUNT),
        tokens_source=draw(st.sampled_from([None, "usage", "tokenizer", "chunks"])),
        session_id=draw(st.none() | WORDS),
        turn=draw(st.none() | st.integers(0, 100)),
        tenant=draw(st.none() | WORDS),
        tags=tuple(draw(st.lists(WORDS, max_size=3))),
        requested_tokens=draw(MAYBE_COUNT),
        host=draw(WORDS),
        worker=draw(st.integers(0, 64)),
        retries=draw(st.integers(0, 3)),
        server_request_id=draw(st.none() | WORDS),
        unknown=tuple(draw(st.lists(st.sampled_from(["sent_ns", "chunk_ns"]), max_size=2))),
    )
