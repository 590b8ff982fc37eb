"""The SSE parser against a reading of the whole input, for any bytes, any line ends and any split."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.clients.sse import Event, EventTooLongError, SseParser

PIECES = [b"data:", b"data: ", b"data", b"event: error", b"event:x", b"event", b"id: 7", b"retry: 10", b":", b": note"]
PIECES += [
    b"[DONE]",
    b'{"a":1}',
    b" ",
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\r\n\r\n",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\x00",
]
STREAMS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=40).map(b"".join)


def reference(whole: bytes) -> list[Event]:
    """The standard's algorithm on all of the input at once; an event that is not closed is delivered at the end."""
    whole = whole.removeprefix(b"\xef\xbb\xbf")
    events: list[Event] = []
    name, data = b"", []
    lines = re.split(rb"\r\n|\n|\r", whole)
    for line in [*lines, b""]:
        if not line:
            if data:
                events.append((name, b"\n".join(data)))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return events


def parse(pieces: list[bytes], limit: int = 2**20) -> list[Event]:
    parser = SseParser(limit)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def cut(whole: bytes, positions: list[int]) -> list[bytes]:
    cuts = [0, *sorted(p % (len(whole) + 1) for p in positions), len(whole)]
    return [whole[a:b] for a, b in itertools.pairwise(cuts)]


@settings(max_examples=200, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 500), max_size=12))
def test_any_bytes_any_split(whole: bytes, positions: list[int]) -> None:
    expected = reference(whole)
    assert parse([whole]) == expected
    assert parse(cut(whole, positions)) == expected


@settings(max_examples=60, deadline=None)
@given(STREAMS)
def test_byte_by_byte(whole: bytes) -> None:
    assert parse([whole[i : i + 1] for i in range(len(whole))]) == reference(whole)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_delivered_by_its_blank_line(end: bytes) -> None:
    parser = SseParser()
    assert parser.feed(b"data: a" + end) == []
    assert parser.pending
    assert parser.feed(end) == [(b"", b"a")]
    assert not parser.pending


def test_comments_are_counted_and_bound_no_event() -> None:
    parser = SseParser(50)
    for _ in range(100):
        assert parser.feed(b": keep-alive\n\n") == []
    assert parser.comments == 100


@settings(max_examples=60, deadline=None)
@given(st.integers(101, 400), st.lists(st.integers(0, 500), max_size=5))
def test_the_limit_holds_for_every_split(size: int, positions: list[int]) -> None:
    with pytest.raises(EventTooLongError, match="event longer than 100 bytes"):
        parse(cut(b"data: ok\n\ndata: " + b"x" * size + b"\n\n", positions), limit=100)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.lists(st.integers(0, 500), max_size=5))
def test_below_the_limit_nothing_is_refused(size: int, positions: list[int]) -> None:
    whole = b"data: " + b"x" * size + b"\n\n"
    assert len(parse(cut(whole * 5, positions), limit=100)) == 5
