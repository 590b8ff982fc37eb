"""Faults that users met elsewhere, kind "wire parsing": C01 to C10, each through a real socket."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchlab.clients.base import ByteLimits, Timeouts
from benchlab.records.event import VISIBLE, Kind, Outcome
from tests.support.stub_server import (
    DELTA,
    DONE,
    FIN,
    USE,
    C,
    Script,
    Step,
    StubServer,
    answer,
    event,
    raw,
    sse,
    usage,
)
from tests.support.talk import Seen, ask, client_for, run, send

TRANSPORTS = ("native", "aiohttp")
pytestmark = pytest.mark.usefixtures("transport")

GOOD = FIN() + USE(3, 2) + DONE


@pytest.mark.parametrize("uvloop", [False, True])
def test_C01_character_split_across_reads(uvloop: bool) -> None:
    data = C("caf\N{LATIN SMALL LETTER E WITH ACUTE} ok")

    async def every_split() -> list[tuple[int, Seen]]:
        def cut(position: int) -> list[tuple[float, bytes]]:
            first, second = data[:position], data[position:]
            return [(0.0, first), (0.01, second)] if first and second else [(0.0, data)]

        async def one(position: int) -> tuple[int, Seen]:
            script = sse(*cut(position), (0.06, FIN() + USE(5, 3) + DONE))
            async with StubServer(script) as server, client_for(server.url) as client:
                return position, await send(client)

        step = 1 if not uvloop else 7
        return await asyncio.gather(*(one(position) for position in range(1, len(data), step)))

    for position, seen in run(every_split(), uvloop=uvloop):
        assert seen.record.outcome is Outcome.OK, position
        assert seen.text == "caf\N{LATIN SMALL LETTER E WITH ACUTE} ok"
        assert len(seen.visible) == 1
        assert seen.visible[0] >= 0.009  # the write that completes the event, not the one that begins it


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_C02_unicode_line_separators_are_text(separator: str) -> None:
    seen = ask(sse((0.0, C(f"a{separator}b")), (0.01, FIN() + USE(4, 1) + DONE)))
    assert seen.record.outcome is Outcome.OK
    assert (seen.text, len(seen.visible)) == (f"a{separator}b", 1)


CR_STREAMS = {
    "split": [b'data: {"choices":[{"index":0,\r', b'\ndata: "delta":{"content":"hi"}}]}\r', b"\n\r\n"],
    "lone CR": [b'data: {"choices":[{"index":0,\r', b'data: "delta":{"content":"hi"}}]}\r', b"\r"],
    "mixed": [b'data: {"choices":[{"index":0,\n', b'data: "delta":{"content":"hi"}}]}\n', b"\r\n"],
}


@pytest.mark.parametrize("name", CR_STREAMS)
def test_C04_line_ends_split_between_reads(name: str) -> None:
    pieces = CR_STREAMS[name]
    steps = [(0.01 * i, piece) for i, piece in enumerate(pieces)]
    seen = ask(sse(*steps, (0.3, FIN() + DONE)))
    assert seen.record.outcome is Outcome.OK
    assert seen.text == "hi"
    assert seen.kinds == [Kind.CONTENT, Kind.FINISH, Kind.DONE]
    assert seen.visible[0] < 0.25  # not held back until the next read


def test_C05_data_without_a_space() -> None:
    first = b'id:7\nevent:message\ndata:{"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
    finish = b'data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    seen = ask(sse((0.0, first), (0.01, finish + b"data:[DONE]\n\n")))
    assert seen.record.outcome is Outcome.OK
    assert seen.text == "one"
    assert Kind.DONE in seen.kinds


USAGE_CHUNKS = {
    "empty": USE(6, 1),
    "null": USE(6, 1, choices=None),
    "missing": event({"id": "r1", "usage": usage(6, 1)}),
}


@pytest.mark.parametrize("name", USAGE_CHUNKS)
def test_C07_usage_chunk_without_choices(name: str) -> None:
    seen = ask(sse((0.0, C("a")), (0.01, FIN() + USAGE_CHUNKS[name] + DONE)))
    record = seen.record
    assert record.outcome is Outcome.OK
    assert (record.prompt_tokens, record.output_tokens, len(seen.visible)) == (6, 1, 1)
    assert seen.kinds == [Kind.CONTENT, Kind.FINISH, Kind.USAGE, Kind.DONE]


class TestC08:
    """A single event, or a header block, longer than the limits that libraries have."""

    def test_long_event(self) -> None:
        long = DELTA({"content": ""}, logprobs="0" * 700_000)
        seen = ask(sse((0.0, long), (0.02, C("ok")), (0.03, FIN() + USE(3, 2) + DONE)))
        assert seen.record.outcome is Outcome.OK
        assert seen.text == "ok"
        assert seen.kinds[:2] == [Kind.EMPTY, Kind.CONTENT]

    def test_long_cookies(self) -> None:
        cookies = {f"Set-Cookie-{i}": "c" * 1000 for i in range(20)}
        seen = ask(sse((0.0, C("ok")), (0.01, GOOD), headers=cookies))
        assert seen.record.outcome is Outcome.OK

    def test_above_the_limit_says_so(self) -> None:
        long = DELTA({"content": "x" * 10_000})
        seen = ask(sse((0.0, C("ok")), (0.02, long), (0.03, GOOD)), limits=ByteLimits(event=5000))
        assert (seen.record.outcome, seen.record.error_kind) == (Outcome.ERROR_PROTOCOL, "size")
        assert seen.record.error == "event longer than 5000 bytes"
        assert seen.text == "ok"

    def test_response_limit(self) -> None:
        script = sse(*((0.001 * i, C("y" * 1000)) for i in range(30)), (0.1, GOOD))
        record = ask(script, limits=ByteLimits(response=20_000)).record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "size")
        assert record.error == "the response is longer than 20000 bytes"

    def test_header_limit(self) -> None:
        endless = raw((0.0, b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: %s\r\n" % (i, b"b" * 900) for i in range(400))))
        record = ask(endless, limits=ByteLimits(headers=100_000)).record
        assert record.outcome is Outcome.ERROR_PROTOCOL
        assert record.error == "response headers longer than 100000 bytes"


class TestC10:
    """The request decides whether an answer is a stream, and its first byte; not the content type."""

    def test_stream_under_another_type(self) -> None:
        steps = [(0.02, C("a")), (0.1, C("b")), (0.12, FIN() + USE(4, 2) + DONE)]
        seen = ask(sse(*steps, headers={"Content-Type": "text/plain; charset=utf-8"}))
        assert seen.record.outcome is Outcome.OK
        assert (seen.record.output_tokens, len(seen.visible)) == (2, 2)
        assert seen.visible[1] - seen.visible[0] > 0.04

    @pytest.mark.parametrize("blank", [b"", b"\n\n ", b"\xef\xbb\xbf"])
    def test_one_json_body(self, blank: bytes) -> None:
        body = (
            blank + json.dumps({"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]}).encode()
        )
        record = ask(answer("200 OK", body)).record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "not_streamed")
        assert record.error is not None and "did not stream" in record.error
        assert not [kind for kind in record.chunk_kind if kind in VISIBLE]

    def test_blank_chunk_before_one_json_body(self) -> None:
        record = ask(sse((0.0, b"\r\n"), (0.03, b'{"error":{"message":"busy","code":"full"}}'))).record
        assert (record.outcome, record.error) == (Outcome.ERROR_STREAM, "busy (full)")

    def test_compressed_answer_has_no_event_times(self) -> None:
        record = ask(sse((0.0, b"\x1f\x8b\x08\x00"), headers={"Content-Encoding": "gzip"})).record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "encoding")


HTML = b"<!doctype html><html><body>Bad gateway</body></html>"


@pytest.mark.parametrize(
    ("status", "body", "outcome", "kind", "words"),
    [
        ("200 OK", HTML, Outcome.ERROR_PROTOCOL, "body", "the server answered HTML"),
        ("502 Bad Gateway", HTML, Outcome.ERROR_HTTP, None, "HTTP 502: the server answered HTML, not JSON"),
        ("302 Found", b"", Outcome.ERROR_HTTP, None, "HTTP 302: (empty body)"),
        ("401 Unauthorized", b'{"error":"no key"}', Outcome.ERROR_HTTP, None, "HTTP 401: no key"),
        ("404 Not Found", b'{"detail":"Not Found"}', Outcome.ERROR_HTTP, None, "HTTP 404: Not Found"),
        ("429 Slow Down", b'{"error":{"message":"quota","code":429}}', Outcome.ERROR_HTTP, "limited", "quota (429)"),
        ("503 Busy", b'{"object":"error","message":"full","type":"x"}', Outcome.ERROR_HTTP, "shed", "full (x)"),
        ("529 Overloaded", b"plain\n words", Outcome.ERROR_HTTP, "shed", "HTTP 529: plain words"),
        ("500 Oops", b"\xff\xfe", Outcome.ERROR_HTTP, None, "HTTP 500: "),
        ("500 Oops", b"[" * 5000, Outcome.ERROR_HTTP, None, "HTTP 500: [[["),
    ],
)
def test_answers_that_are_no_stream(status: str, body: bytes, outcome: Outcome, kind: str | None, words: str) -> None:
    record = ask(answer(status, body)).record
    assert (record.outcome, record.error_kind, record.http_status) == (outcome, kind, int(status[:3]))
    assert record.error is not None and words in record.error
    assert len(record.error) < 600


def test_a_redirect_is_not_followed() -> None:
    async def go() -> None:
        elsewhere = StubServer(sse((0.0, GOOD)))
        async with elsewhere:
            moved = answer("307 Temporary Redirect", b"")
            step = moved.steps[0]
            data = step.data.replace(b"\r\n\r\n", f"\r\nLocation: {elsewhere.url}\r\n\r\n".encode())
            async with StubServer(raw((0.0, data))) as server, client_for(server.url) as client:
                record = (await send(client)).record
        assert (record.outcome, record.http_status) == (Outcome.ERROR_HTTP, 307)
        assert elsewhere.accepts == 0

    run(go())


def test_large_error_body_keeps_its_beginning() -> None:
    record = ask(answer("500 Oops", b"first words " + b"x" * 300_000)).record
    assert record.error is not None and record.error.startswith("HTTP 500: first words xxx")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"\x16\x03\x01\x00\xff" * 10,
    ],
)
def test_malformed_http(data: bytes) -> None:
    record = ask(raw((0.0, data), then="hang"), timeouts=Timeouts(total_ns=3 * 10**9)).record
    assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "http")
    assert record.error and not record.error.startswith("unparsable")


@pytest.mark.usefixtures("native_only")
def test_valid_events_before_malformed_framing_are_kept() -> None:
    good = sse((0.0, C("a") + C("b")), terminator=False).steps
    seen = ask(raw((0.0, good[0].data + good[1].data + b"zz\r\n"), then="hang"))
    assert seen.record.outcome is Outcome.ERROR_PROTOCOL
    assert seen.text == "ab"


BODY = C("a") + GOOD
FRAMINGS = {
    "content-length": raw((0.0, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))),
    "connection end": sse((0.0, BODY), chunked=False),
    "http/1.0": raw((0.0, b"HTTP/1.0 200 OK\r\n\r\n" + BODY), then="close"),
    "100-continue": raw(
        (0.0, b"HTTP/1.1 100 Continue\r\n\r\n"), *((s.at + 0.02, s.data) for s in sse((0, BODY)).steps)
    ),
    "early hints": raw(
        (0.0, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + sse((0, BODY)).steps[0].data),
        (0.01, sse((0, BODY)).steps[1].data),
    ),
    "chunk extensions": raw(
        (
            0.0,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x;a=b\r\n%s\r\n0\r\nTrail: er\r\n\r\n"
            % (len(BODY), BODY),
        )
    ),
    "upgrade offered": sse((0.0, BODY), headers={"Upgrade": "h2,h2c", "Connection": "Upgrade, Keep-Alive"}),
}


@pytest.mark.parametrize("name", FRAMINGS)
def test_framings(name: str) -> None:
    seen = ask(FRAMINGS[name])
    assert seen.record.outcome is Outcome.OK, seen.record.error
    assert (seen.text, seen.record.output_tokens, seen.record.http_status) == ("a", 2, 200)


@pytest.mark.usefixtures("native_only")
@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: ",
        sse((0, C("a"))).steps[0].data + b"5;x=",
    ],
)
def test_framing_without_end_is_no_endless_answer(begin: bytes) -> None:
    """Headers, trailers or chunk extensions that never end, though something arrives all the time."""
    more = b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" if not begin else b"x" * 8000
    script = Script((Step(0.0, begin), Step(0.0, more * 500)), repeat_every=0.001)
    record = ask(script, limits=ByteLimits(headers=20_000)).record
    assert (record.outcome, record.error) == (Outcome.ERROR_PROTOCOL, "response headers longer than 20000 bytes")


def test_204_has_no_answer() -> None:
    record = ask(raw((0.0, b"HTTP/1.1 204 No Content\r\n\r\n"))).record
    assert (record.outcome, record.error) == (Outcome.INCOMPLETE, "the answer has no content")


def test_body_with_a_length_that_is_cut() -> None:
    record = ask(raw((0.0, b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + BODY[:80]), then="close")).record
    assert (record.outcome, record.error_kind) == (Outcome.INCOMPLETE, "closed")
