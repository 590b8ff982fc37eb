"""The transport itself: many streams, cancellation, large bodies, connections out of step, TLS, what goes out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from benchlab.clients.base import Timeouts
from benchlab.clients.endpoint import parse_endpoint
from benchlab.clients.native import NativeClient
from benchlab.clients.openai import OpenAI
from benchlab.clock import SystemClock
from benchlab.errors import UsageError
from benchlab.records.event import Kind, Outcome
from benchlab.workload.item import WorkloadItem
from tests.support.certificates import self_signed
from tests.support.stub_server import (
    DONE,
    FIN,
    USE,
    C,
    Request,
    Script,
    Step,
    StubServer,
    answer,
    raw,
    sse,
)
from tests.support.talk import ITEM, Seen, ask, client_for, new_recorder, run, seen, send

TRANSPORTS = ("native", "aiohttp")
pytestmark = pytest.mark.usefixtures("transport")

GOOD = sse((0.0, C("a")), (0.01, FIN() + USE(3, 1) + DONE))
BODY = C("a") + FIN() + USE(3, 1) + DONE


@pytest.mark.parametrize("uvloop", [False, True])
def test_many_streams_at_once(uvloop: bool) -> None:
    """Each gets its own answer, and none shares a connection."""

    def mirror(request: Request) -> Script:
        words = request.json["messages"][0]["content"]
        return sse((0.1, C(words)), (0.2, C("!") + FIN() + USE(3, 2) + DONE))

    async def go() -> tuple[list[Seen], int]:
        async with StubServer(mirror) as server, client_for(server.url) as client:
            items = [WorkloadItem(messages=[{"role": "user", "content": f"number {i}"}]) for i in range(200)]
            found = await asyncio.gather(*(send(client, item, f"q{i}") for i, item in enumerate(items)))
            return list(found), server.accepts

    found, accepts = run(go(), uvloop=uvloop)
    assert accepts == 200
    for index, one in enumerate(found):
        assert one.record.outcome is Outcome.OK, one.record.error
        assert one.text == f"number {index}!"


@pytest.mark.parametrize("uvloop", [False, True])
def test_cancellation_closes_the_socket(uvloop: bool) -> None:
    async def go() -> None:
        script = sse((0.0, C("a")), then="hang", terminator=False)
        async with StubServer(script) as server, client_for(server.url) as client:
            recorder = new_recorder()
            task = asyncio.create_task(client.stream(ITEM, recorder))
            async with asyncio.timeout(5):
                while not recorder.visible:
                    await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert recorder.outcome is None  # left to whoever cancelled
            record = seen(recorder).record
            assert (record.outcome, len(record.visible_ns())) == (Outcome.UNFINISHED, 1)
            await server.until(lambda s: s.closed_by_client == 1 and s.open == 0)

    run(go(), uvloop=uvloop)


def test_cancellation_while_connecting_leaves_nothing_open() -> None:
    async def go() -> None:
        async with StubServer(GOOD) as server, client_for(server.url) as client:
            recorder = new_recorder()
            task = asyncio.create_task(client.stream(ITEM, recorder))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.05)  # the server may see a connection that came and went
            await server.until(lambda s: s.open == 0)
            assert recorder.record(0).outcome is Outcome.NOT_SENT

    run(go())


@pytest.mark.parametrize("uvloop", [False, True])
def test_slow_reader_of_a_large_request(uvloop: bool) -> None:
    item = WorkloadItem(prompt="x" * 2_000_000)

    async def go() -> None:
        async with StubServer(GOOD, read_pause_s=0.001) as server, client_for(server.url) as client:
            one = await send(client, item)
            assert one.record.outcome is Outcome.OK, one.record.error
            assert len(server.requests[0].body) > 2_000_000
            assert server.requests[0].json["messages"][0]["content"] == "x" * 2_000_000

    run(go(), uvloop=uvloop)


@pytest.mark.parametrize("then", ["keep", "close"])
def test_answer_before_the_request_was_read(then: str) -> None:
    """413 while the body is still on its way: the answer is told, and the connection is not used again."""

    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Too Large", b'{"error":"too large"}').steps[0].data)
        await writer.drain()
        if then == "keep":
            with contextlib.suppress(ConnectionError):
                while await reader.read(2**20):  # all the rest, until the client goes
                    pass
        else:
            await asyncio.sleep(0.1)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        gone.set()

    async def go() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, client_for(f"127.0.0.1:{port}") as client:
            one = await send(client, WorkloadItem(prompt="x" * 30_000_000))
            assert (one.record.outcome, one.record.http_status) == (Outcome.ERROR_HTTP, 413)
            assert one.record.error == "HTTP 413: too large"
            assert getattr(client, "_idle", []) == []
            await asyncio.wait_for(gone.wait(), 10)

    run(go())


STRAYS = {
    "a byte": b"X",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Le",
    "an answer": answer("200 OK", b"{}").steps[0].data,
    "blank lines": b"\r\n\r\n",
}


@pytest.mark.parametrize("name", STRAYS)
@pytest.mark.parametrize("later", [0.0, 0.03])
@pytest.mark.usefixtures("native_only")
def test_bytes_after_the_end_never_reach_the_next_answer(name: str, later: float) -> None:
    """With the end of the answer in one write, or on the idle connection afterwards."""
    steps = sse((0.0, BODY)).steps
    last = steps[-1]
    first = (*steps[:-1], Step(0.0, last.data + STRAYS[name])) if not later else (*steps, Step(later, STRAYS[name]))

    async def go() -> list[Seen]:
        async with StubServer([Script(first), GOOD]) as server, client_for(server.url) as client:
            one = await send(client)
            await asyncio.sleep(later * 2)
            return [one, await send(client), await send(client)]

    for one in run(go()):
        assert one.record.outcome is Outcome.OK, one.record.error
        assert one.text == "a"
        assert one.record.retries <= 1


def test_what_goes_out() -> None:
    async def go() -> tuple[Request, Seen]:
        headers = {"Authorization": "Bearer abc", "user-agent": "mine"}
        async with StubServer(GOOD) as server, client_for(server.url + "/base/v1", headers=headers) as client:
            one = await send(client, name="q\N{SNOWMAN}7")
            return server.requests[0], one

    request, one = run(go())
    lines = request.head.decode().split("\r\n")
    assert lines[0] == "POST /base/v1/chat/completions HTTP/1.1"
    fields = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in lines[1:] if line}
    assert len(fields) == len([line for line in lines[1:] if line])
    assert fields["authorization"] == "Bearer abc"
    assert fields["user-agent"] == "mine"
    assert fields["x-request-id"] == "q?7"
    assert fields["accept-encoding"] == "identity"
    assert int(fields["content-length"]) == len(request.body)
    assert request.json["stream"] is True and request.json["stream_options"] == {"include_usage": True}
    assert request.json["max_tokens"] == 8
    assert one.record.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("A", "b\r\nEvil: 1"), ("A\n", "b"), ("A: B", "c"), ("", "x"), (" ", "x"), ("A", "\0")],
        *[("Content-Length", "5"), ("Transfer-Encoding", "chunked"), ("X-Request-ID", "mine"), ("Connection", "close")],
    ],
)
def test_headers_that_cannot_be_sent(name: str, value: str) -> None:
    async def go() -> None:
        with pytest.raises(UsageError):
            NativeClient(parse_endpoint("127.0.0.1:1"), OpenAI("chat", "m"), clock=SystemClock(), headers={name: value})

    run(go())


def test_limits_do_not_spoil_an_answer_that_was_complete() -> None:
    """The total limit passes while only the end of the HTTP message is missing."""
    script = sse((0.1, BODY), terminator=False, then="hang")
    one = ask(script, timeouts=Timeouts(total_ns=200_000_000))
    assert one.record.outcome is Outcome.OK
    assert one.kinds[-1] is Kind.DONE


def test_our_own_fault_ends_the_request_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchlab.clients import openai

    def broken(choice: object) -> object:
        raise KeyError("surprise")

    monkeypatch.setattr(openai, "read_delta", broken)
    record = ask(GOOD).record
    assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "client")
    assert record.error is not None and "KeyError" in record.error


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    made = self_signed(tmp_path_factory.mktemp("tls"))
    if made is None:
        pytest.skip("needs the openssl command")
    return made


class TestTls:
    """TLS over memory buffers: the same events and the same stamps."""

    @staticmethod
    def server_context(pair: tuple[Path, Path]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        return context

    @pytest.mark.parametrize("uvloop", [False, True])
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_trusted(self, pair: tuple[Path, Path], version: ssl.TLSVersion, uvloop: bool) -> None:
        trusting = ssl.create_default_context(cafile=str(pair[0]))
        trusting.maximum_version = trusting.minimum_version = version

        async def go() -> tuple[list[Seen], int]:
            script = sse((0.05, C("a")), (0.1, C("b")), (0.12, FIN() + USE(3, 2) + DONE))
            server = StubServer(script, tls=self.server_context(pair))
            async with server, client_for(server.url, tls=trusting) as client:
                found = [await send(client) for _ in range(3)]
                found.append(await send(client, WorkloadItem(prompt="y" * 2_000_000)))
                return found, server.accepts

        found, accepts = run(go(), uvloop=uvloop)
        assert accepts == 1
        for one in found:
            assert one.record.outcome is Outcome.OK, one.record.error
            assert one.text == "ab"
            assert one.visible[1] - one.visible[0] > 0.03

    @pytest.mark.parametrize("uvloop", [False, True])
    def test_not_trusted(self, pair: tuple[Path, Path], uvloop: bool) -> None:
        async def go() -> Seen:
            async with StubServer(GOOD, tls=self.server_context(pair)) as server, client_for(server.url) as client:
                return await send(client)

        record = run(go(), uvloop=uvloop).record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_CONNECT, "tls")
        assert record.error is not None and "certificate is not trusted: self" in record.error

    def test_wrong_name(self, pair: tuple[Path, Path]) -> None:
        trusting = ssl.create_default_context(cafile=str(pair[0]))

        async def go() -> Seen:
            server = StubServer(GOOD, tls=self.server_context(pair), host="127.0.0.2")
            async with server, client_for(server.url, tls=trusting) as client:
                return await send(client)

        record = run(go()).record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_CONNECT, "tls")
        assert record.error is not None and "127.0.0.2" in record.error

    @pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
    def test_a_server_that_speaks_no_tls(self, data: bytes) -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(data)
            await writer.drain()
            writer.close()

        async def go() -> Seen:
            server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            async with server, client_for(f"https://127.0.0.1:{port}") as client:
                return await send(client)

        record = run(go()).record
        assert record.outcome is Outcome.ERROR_CONNECT
        assert record.error_kind == ("tls" if data else "reset")

    def test_cut_in_mid_stream(self, pair: tuple[Path, Path]) -> None:
        trusting = ssl.create_default_context(cafile=str(pair[0]))

        async def go() -> Seen:
            script = sse((0.0, C("a")), terminator=False, then="close")
            server = StubServer(script, tls=self.server_context(pair))
            async with server, client_for(server.url, tls=trusting) as client:
                return await send(client)

        one = run(go())
        assert (one.record.outcome, one.record.error_kind, one.text) == (Outcome.INCOMPLETE, "closed", "a")


def test_an_idle_close_is_noticed_and_costs_no_retry() -> None:
    async def go() -> None:
        ends = raw(*((step.at, step.data) for step in GOOD.steps), then="close")
        async with StubServer(ends) as server, client_for(server.url) as client:
            for _ in range(3):
                one = await send(client)
                assert (one.record.outcome, one.record.retries) == (Outcome.OK, 0)
                await asyncio.sleep(0.03)
            assert server.accepts == 3

    run(go())


def test_ipv6() -> None:
    async def go() -> tuple[Seen, Request]:
        try:
            async with StubServer(GOOD, host="::1") as server, client_for(server.url) as client:
                return await send(client), server.requests[0]
        except OSError:
            pytest.skip("no IPv6 on this host")

    one, request = run(go())
    assert one.record.outcome is Outcome.OK, one.record.error
    assert b"\r\nHost: [::1]:" in request.head


def test_an_upload_does_not_hold_up_the_streams_beside_it() -> None:
    """A prompt of 50,000 tokens to a server that reads slowly, while another stream runs on the same loop."""
    long = WorkloadItem(prompt="word " * 50_000)

    async def go() -> tuple[Seen, Seen]:
        words = sse(*((i * 0.01, C(f" w{i}")) for i in range(30)), (0.3, FIN() + USE(3, 30) + DONE))
        async with (
            StubServer(GOOD, read_pause_s=0.005) as slow,
            StubServer(words) as quick,
            client_for(slow.url) as one,
            client_for(quick.url) as other,
        ):
            return await asyncio.gather(send(one, long), send(other))

    upload, stream = run(go())
    assert upload.record.outcome is Outcome.OK and stream.record.outcome is Outcome.OK
    assert upload.visible[0] > 0.015  # the upload took its time, which is the server's doing and counts
    assert len(stream.visible) == 30
