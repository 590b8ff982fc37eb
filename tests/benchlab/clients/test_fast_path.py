"""The quick ways through the parser and the dialect give the very record that the plain way gives, whatever the bytes
and however they are cut; and every fixture may be cut at every place."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchlab.clients.openai import OpenAIConversation
from benchlab.clients.sse import Event, SseParser
from benchlab.records.record import Identity, Record
from benchlab.records.recorder import Recorder

WIRE = Path(__file__).parents[2] / "fixtures" / "wire"
MARK = b"\n=====RESPONSE BYTES FROM THE NEXT LINE ON=====\n"


def body_of(path: Path) -> bytes:
    """The stream of a capture, its chunked framing taken off; empty where the answer was no stream."""
    head, rest = path.read_bytes().split(MARK, 1)[1].split(b"\r\n\r\n", 1)
    if b"text/event-stream" not in head.lower() or b"chunked" not in head.lower():
        return b""
    out, at = b"", 0
    while at < len(rest):
        line_end = rest.index(b"\r\n", at)
        size = int(rest[at:line_end], 16)
        out += rest[line_end + 2 : line_end + 2 + size]
        at = line_end + 2 + size + 2
    return out


@functools.cache
def fixtures() -> dict[str, bytes]:
    found = {str(path.relative_to(WIRE))[: -len(".http")]: body_of(path) for path in sorted(WIRE.rglob("*.http"))}
    return {name: body for name, body in found.items() if body}


class PlainParser(SseParser):
    """Line by line, always."""

    __slots__ = ()

    def _whole_events(self, read: bytes) -> list[Event] | None:
        return None


class PlainConversation(OpenAIConversation):
    """Every event parsed as JSON."""

    __slots__ = ()

    def _learn(self, data: bytes, document: dict[str, Any]) -> None:
        pass


def record_of(reads: Sequence[bytes], *, quick: bool, keep_text: bool = True, choices: int = 1) -> tuple[Record, str]:
    """What is recorded of these reads, as an exchange would feed them: merged events have their slack."""
    parser = SseParser() if quick else PlainParser()
    recorder = Recorder(Identity("q", 0, "i", 0), keep_text=keep_text)
    recorder.dispatched_ns = recorder.sent_ns = recorder.headers_ns = 1
    conversation = (OpenAIConversation if quick else PlainConversation)(recorder, choices)
    deliver(conversation, recorder, [parser.feed(read) for read in reads] + [parser.close()], quick=quick)
    if recorder.outcome is None:
        conversation.ended(10_000)
    return recorder.record(0), recorder.all_text()


def deliver(conversation: OpenAIConversation, recorder: Recorder, reads: list[list[Event]], *, quick: bool) -> None:
    for at, events in enumerate(reads):
        index, last = 0, len(events) - 1
        while index < len(events) and recorder.outcome is None:
            taken = conversation.plain_run(events, index, last, 100 + at, 7) if quick else 0
            if not taken:
                conversation.event(*events[index], 100 + at, 7 if index < last else 0)
            index += taken or 1


def cut(whole: bytes, positions: Sequence[int]) -> list[bytes]:
    cuts = [0, *sorted(p % (len(whole) + 1) for p in positions), len(whole)]
    return [whole[a:b] for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("name", fixtures())
def test_every_fixture_cut_at_every_place(name: str) -> None:
    """The parser gives the same events for each split in two, and the record of a plain reading."""
    whole = fixtures()[name]
    plain = PlainParser()
    expected = plain.feed(whole) + plain.close()
    assert expected
    for at in range(len(whole) + 1):
        parser = SseParser()
        assert parser.feed(whole[:at]) + parser.feed(whole[at:]) + parser.close() == expected, at


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(fixtures())), st.lists(st.integers(0, 2**20), max_size=40), st.booleans())
def test_fixtures_give_one_record(name: str, positions: list[int], keep_text: bool) -> None:
    reads = cut(fixtures()[name], positions)
    choices = 2 if name.endswith("n2") else 1
    quick = record_of(reads, quick=True, keep_text=keep_text, choices=choices)
    assert quick == record_of(reads, quick=False, keep_text=keep_text, choices=choices)


def around(text: bytes, head: bytes = b'"id":"r",', tail: bytes = b',"finish_reason":null') -> bytes:
    return b"{" + head + b'"choices":[{"index":0,"delta":{"content":"' + text + b'"}' + tail + b"}]}"


TEXTS = st.sampled_from(
    [b"a", b" word", b"", b"\\n", b'\\"', b"caf\xc3\xa9", b"\xff", b"\xe2\x80\xa8", b"\x00", b"\x7f", b"\t", b"?"]
)
EVENTS = st.one_of(
    st.builds(around, TEXTS),
    st.builds(around, TEXTS, st.sampled_from([b'"id":"s",', b'"error":null,', b'"error":1,', b'"content":"x",', b""])),
    st.builds(around, TEXTS, tail=st.sampled_from([b',"finish_reason":"stop"', b',"delta":{}', b',"text":"z"', b""])),
    st.sampled_from(
        [
            b"[DONE]",
            b"",
            b"nul",
            b'{"choices":[{"index":0,"text":"a","finish_reason":null}]}',
            b'{"choices":[{"index":0,"text":"bc","finish_reason":null}]}',
            b'{"choices":[{"index":0,"delta":null,"text":"bc"}]}',
            b'{"choices":[{"index":0,"delta":{"refusal":"no","text":"a"}}]}',
            b'{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}',
            b'{"choices":[{"index":1,"delta":{"content":"a"}}]}',
            b'{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}',
            b'{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"completion_tokens":3}}',
            b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}',
            b'{"choices":[{"index":0,"delta":{"reasoning_content":"a"}}]}',
            json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}).encode(),
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(EVENTS, st.integers(1, 4), st.sampled_from([b"data: ", b"data:", b"event: error\ndata: "]))),
    st.lists(st.integers(0, 2**12), max_size=8),
    st.booleans(),
    st.integers(1, 2),
)
@example([(around(b"a"), 3, b"data: "), (around(b"b"), 1, b"event: error\ndata: ")], [], True, 1)
@example([(around(b"a"), 3, b"data: "), (around(b"\xff"), 1, b"data: ")], [], True, 1)
@example([(around(b"a"), 3, b"data: "), (around(b"\x00"), 1, b"data: ")], [], True, 1)
def test_any_stream_gives_one_record(
    events: list[tuple[bytes, int, bytes]], positions: list[int], keep_text: bool, choices: int
) -> None:
    whole = b"".join((prefix + event + b"\n\n") * times for event, times, prefix in events)
    reads = cut(whole, positions)
    quick = record_of(reads, quick=True, keep_text=keep_text, choices=choices)
    assert quick == record_of(reads, quick=False, keep_text=keep_text, choices=choices)


def test_the_quick_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred words all but the first few are never parsed."""
    from benchlab.clients import openai

    parsed: list[bytes] = []
    read = openai.read_object

    def counted(recorder: Recorder, data: bytes, ns: int) -> dict[str, Any] | None:
        parsed.append(data)
        return read(recorder, data, ns)

    monkeypatch.setattr(openai, "read_object", counted)
    whole = b"".join(b"data: " + around(b"w%d" % n) + b"\n\n" for n in range(100))
    for reads in ([whole], [part + b"\n\n" for part in whole.split(b"\n\n")[:-1]]):
        parsed.clear()
        assert len(record_of(reads, quick=True)[0].chunk_ns) == 100
        assert len(parsed) == 1
