"""Faults that users met elsewhere, kind "failure handling": C94, C95, C97, C98, C100. A failure is never a success."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchlab.clients.base import Timeouts
from benchlab.records.event import Kind, Outcome
from benchlab.units import NS_PER_MS
from benchlab.workload.item import WorkloadItem
from tests.support.stub_server import DONE, FIN, USE, C, Script, StubServer, answer, event, raw, sse
from tests.support.talk import Seen, ask, client_for, new_recorder, run, seen, send

TRANSPORTS = ("native", "aiohttp")
pytestmark = pytest.mark.usefixtures("transport")

STOPPED = event({"error": {"message": "engine stopped", "code": 500}})
TGI = event({"error": "text of the fault"})
ANTHROPIC = event({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "error")
PLAIN = json.dumps({"error": {"message": "no such thing", "code": 400}}).encode()


class TestC94:
    """An error event inside a 200 stream."""

    @pytest.mark.parametrize(
        ("script", "words", "kind", "visible"),
        [
            (sse((0.0, C("Once")), (0.03, STOPPED), (0.04, DONE)), "engine stopped", "500", 1),
            (sse((0.0, STOPPED), (0.02, DONE)), "engine stopped", "500", 0),
            (sse((0.0, C("Once")), (0.03, TGI)), "text of the fault", None, 1),
            (sse((0.0, C("Once")), (0.03, ANTHROPIC)), "busy", "overloaded_error", 1),
            (answer("200 OK", PLAIN), "no such thing", "400", 0),
            (sse((0.0, C("Once") + FIN() + STOPPED + DONE)), "engine stopped", "500", 1),
        ],
        ids=["in mid-stream", "first", "a string", "named event", "one JSON body", "after the finish reason"],
    )
    def test_fails(self, script: Script, words: str, kind: str | None, visible: int) -> None:
        got = ask(script)
        assert got.record.outcome is Outcome.ERROR_STREAM
        assert (got.record.http_status, got.record.error_kind) == (200, kind)
        assert got.record.error is not None and words in got.record.error
        assert len(got.visible) == visible
        assert got.kinds[-1] is Kind.ERROR

    def test_control(self) -> None:
        text = C("Once", error=None)
        got = ask(sse((0.0, text), (0.01, FIN() + USE(3, 1) + DONE)))
        assert (got.record.outcome, got.record.error, got.text) == (Outcome.OK, None, "Once")


class TestC95:
    """A stream that ends early, however cleanly."""

    item = WorkloadItem(id="i1", prompt="x", output_tokens=64, sampling={"ignore_eos": True})

    def test_clean_end_without_a_finish_reason(self) -> None:
        got = ask(sse((0.0, C("a")), (0.02, C("b"))), item=self.item)
        assert got.record.outcome is Outcome.INCOMPLETE
        assert got.record.error == "the stream ended without a finish reason"
        assert got.text == "ab"

    def test_done_alone_is_no_finish_reason(self) -> None:
        assert ask(sse((0.0, C("a") + DONE)), item=self.item).record.outcome is Outcome.INCOMPLETE

    def test_finished(self) -> None:
        record = ask(sse((0.0, C("a")), (0.02, C("b") + FIN() + USE(4, 2) + DONE)), item=self.item).record
        assert (record.outcome, record.output_tokens) == (Outcome.OK, 2)

    def test_only_done_is_missing(self) -> None:
        record = ask(sse((0.0, C("a")), (0.02, FIN())), item=self.item).record
        assert (record.outcome, record.finish_reason) == (Outcome.OK, "stop")
        assert Kind.DONE not in record.chunk_kind

    @pytest.mark.parametrize("then", ["close", "reset"])
    def test_finish_reason_without_a_clean_end(self, then: str) -> None:
        script = sse((0.0, C("a")), (0.02, FIN()), terminator=False, then=then)  # type: ignore[arg-type]
        record = ask(script, item=self.item).record
        assert (record.outcome, record.error_kind) == (Outcome.INCOMPLETE, "closed")
        assert record.error is not None and record.error.endswith("in mid-stream")

    @pytest.mark.parametrize("then", ["close", "reset"])
    def test_cut_before_any_byte(self, then: str) -> None:
        record = ask(raw((0.0, b""), then=then)).record  # type: ignore[arg-type]
        assert (record.outcome, record.retries) == (Outcome.INCOMPLETE, 0)
        assert record.error is not None and record.error.endswith("before any response byte")

    def test_last_event_without_its_blank_line(self) -> None:
        got = ask(sse((0.0, C("a")), (0.02, FIN().rstrip(b"\n"))))
        assert (got.record.outcome, got.text) == (Outcome.OK, "a")


@pytest.mark.parametrize("limit_ms", [325, None])
def test_C97_total_timeout(limit_ms: int | None) -> None:
    services = [0.0, 0.05, 0.1, 0.15, 0.2, 0.6, 0.7, 0.8]
    timeouts = Timeouts(total_ns=limit_ms * NS_PER_MS if limit_ms else None)

    async def go() -> list[Seen]:
        scripts = [sse((at, C("a") + FIN() + USE(1, 1) + DONE)) for at in services]
        async with StubServer(scripts) as server, client_for(server.url, timeouts=timeouts) as client:
            return await asyncio.gather(*(send(client, name=f"q{i}") for i in range(8)))

    records = [one.record for one in run(go())]
    failed = [record for record in records if record.outcome is Outcome.TIMEOUT]
    assert sum(record.outcome is Outcome.OK for record in records) == (8 if limit_ms is None else 5)
    assert len(failed) == (0 if limit_ms is None else 3)
    for record in failed:
        assert (record.error_kind, record.error) == ("total", "client timeout after 325 ms")


class TestC98:
    """A limit that every byte starts anew never fires."""

    def test_drip_of_comments(self) -> None:
        script = sse((0.0, b":\n"), repeat_every=0.02)
        script = Script((script.steps[0], type(script.steps[0])(0.0, b"2\r\n:\n\r\n")), repeat_every=0.02)
        got = ask(script, timeouts=Timeouts(total_ns=300 * NS_PER_MS))
        assert (got.record.outcome, got.record.error_kind) == (Outcome.TIMEOUT, "total")
        assert 0.29 <= got.end < 1.0
        assert got.visible == []

    def test_first_token(self) -> None:
        limits = Timeouts(first_content_ns=100 * NS_PER_MS, gap_ns=5000 * NS_PER_MS)
        got = ask(sse((0.0, b":\n\n"), then="hang", terminator=False), timeouts=limits)
        assert (got.record.outcome, got.record.error_kind) == (Outcome.TIMEOUT, "first_content")
        assert got.record.error == "client timeout after 100 ms without a first token"
        assert got.record.headers_ns is not None

    def test_gap(self) -> None:
        limits = Timeouts(first_content_ns=5000 * NS_PER_MS, gap_ns=100 * NS_PER_MS)
        script = sse((0.0, C("a")), (0.05, C("b")), (0.08, b": ping\n\n"), then="hang", terminator=False)
        got = ask(script, timeouts=limits)
        assert (got.record.outcome, got.record.error_kind) == (Outcome.TIMEOUT, "gap")
        assert got.text == "ab"
        assert got.end - got.visible[-1] >= 0.09

    def test_slot_is_freed(self) -> None:
        async def go() -> None:
            script = sse((0.0, C("a")), then="hang", terminator=False)
            limits = Timeouts(total_ns=50 * NS_PER_MS)
            async with StubServer(script) as server, client_for(server.url, timeouts=limits) as client:
                await send(client)
                await server.until(lambda s: s.open == 0 and s.closed_by_client == 1)

        run(go())

    @pytest.mark.parametrize("uvloop", [False, True])
    def test_connecting(self, uvloop: bool) -> None:
        """A listener whose backlog is full answers no further connection attempt."""
        import socket

        async def go() -> Seen:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                listener.listen(0)
                port = listener.getsockname()[1]
                fillers = [socket.socket() for _ in range(4)]
                for filler in fillers:
                    filler.setblocking(False)
                    filler.connect_ex(("127.0.0.1", port))
                try:
                    limits = Timeouts(connect_ns=100 * NS_PER_MS)
                    async with client_for(f"127.0.0.1:{port}", timeouts=limits) as client:
                        return await send(client)
                finally:
                    for filler in fillers:
                        filler.close()

        record = run(go(), uvloop=uvloop).record
        assert (record.outcome, record.error_kind) == (Outcome.TIMEOUT, "connect")
        assert record.error == "client timeout: no connection after 100 ms"
        assert record.sent_ns is None and record.connect_start_ns is not None


def test_C100_a_failure_has_its_own_true_times() -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def go() -> None:
        recorder = new_recorder()
        async with client_for(f"127.0.0.1:{port}") as client:
            await client.stream(WorkloadItem(prompt="x"), recorder)
        record = seen(recorder).record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_CONNECT, "refused")
        assert record.connect_start_ns is not None and record.end_ns is not None
        assert record.intended_ns <= record.connect_start_ns <= record.end_ns
        assert record.end_ns - record.intended_ns < 5 * 10**9
        assert record.sent_ns is None

    run(go())


def test_garbage_events_fail_by_name() -> None:
    for data, words in ((b"data: {oops\n\n", "not JSON"), (b"data: 17\n\n", "no JSON object")):
        record = ask(sse((0.0, C("a") + data + FIN() + DONE))).record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "json")
        assert record.error is not None and words in record.error
        assert record.finish_reason is None  # nothing after the fault is read


def test_an_empty_event_is_a_keep_alive() -> None:
    got = ask(sse((0.0, b"data:\n\n" + C("a") + b"data: \n\n" + FIN() + DONE)))
    assert got.record.outcome is Outcome.OK
    assert got.kinds.count(Kind.EMPTY) == 2
