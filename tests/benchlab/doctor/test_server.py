"""The truth server: right HTTP for every split of a request, absolute times, and a log of each write."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchlab.doctor.server import MODEL, TruthServer, listen
from benchlab.units import NS_PER_MS


class Running:
    """A server in a thread of this process."""

    def __init__(self) -> None:
        self.server = TruthServer(listen())
        self.server.log = io.BytesIO()
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()

    def close(self) -> None:
        self.server.stopped = True
        with contextlib.suppress(OSError), self.connect():  # wakes it
            pass
        self._thread.join(5)
        assert not self._thread.is_alive()
        self.server.close()

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def settled(self, number: int) -> None:
        """Wait until so many answers are in the log."""
        end = time.monotonic() + 5
        while len(self.server.entries) < number and time.monotonic() < end:
            time.sleep(0.005)
        assert len(self.server.entries) == number


@pytest.fixture
def running() -> Iterator[Running]:
    server = Running()
    yield server
    server.close()


def request(tokens: int, name: str = "q0", path: str = "/v1/chat/completions") -> bytes:
    body = json.dumps({"model": MODEL, "max_tokens": tokens, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Request-Id: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_answer(sock: socket.socket) -> list[dict | str]:
    """The data of each event of one answer, dechunked."""
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 OK")
    out = b""
    while body:
        size, body = body.split(b"\r\n", 1)
        out += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    lines = [event.removeprefix(b"data: ").decode() for event in out.split(b"\n\n") if event]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def texts(events: list) -> list[str]:
    choices = [event["choices"][0]["delta"] for event in events if event != "[DONE]" and event["choices"]]
    return [delta["content"] for delta in choices if delta.get("content")]


def test_an_answer_is_a_stream_as_engines_send_it(running: Running) -> None:
    with running.connect() as sock:
        sock.sendall(request(5))
        events = read_answer(sock)

    assert texts(events) == [" lorem"] * 5
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-3]["choices"][0]["finish_reason"] == "length"
    assert events[-2]["usage"]["completion_tokens"] == 5 and events[-1] == "[DONE]"


def test_requests_in_pieces_and_several_on_one_connection(running: Running) -> None:
    data = request(2, "a") + request(3, "b")
    with running.connect() as sock:
        for start in range(0, len(data), 37):
            sock.sendall(data[start : start + 37])
            time.sleep(0.001)
        answers = b""
        while answers.count(b"0\r\n\r\n") < 2:
            piece = sock.recv(65536)
            assert piece, answers
            answers += piece
    running.settled(2)

    assert answers.count(b"HTTP/1.1 200 OK") == 2 and answers.count(b" lorem") == 5
    assert [entry.request_id for entry in running.server.entries] == ["a", "b"]


def test_the_log_has_each_write_between_two_readings_of_the_clock(running: Running) -> None:
    before = time.monotonic_ns()
    with running.connect() as sock:
        sock.sendall(request(6))
        read_answer(sock)
    after = time.monotonic_ns()
    running.settled(1)

    (entry,) = running.server.entries
    times = [entry.received_ns, *itertools.chain(*zip(entry.before_ns, entry.after_ns, strict=True))]
    assert len(entry.before_ns) == len(entry.after_ns) == 6
    assert times == sorted(times) and before <= times[0] and times[-1] <= after


def test_paced_events_keep_absolute_times(running: Running) -> None:
    """Never early, and lateness does not add up."""
    running.server.pace = 30 * NS_PER_MS, 10 * NS_PER_MS
    with running.connect() as sock:
        sock.sendall(request(12))
        read_answer(sock)
    running.settled(1)

    (entry,) = running.server.entries
    due = [entry.received_ns + (30 + 10 * k) * NS_PER_MS for k in range(12)]
    late = [at - wanted for at, wanted in zip(entry.before_ns, due, strict=True)]
    assert min(late) >= 0
    assert min(late[6:]) < 60 * NS_PER_MS  # once on time again after any stall


def test_orders(running: Running) -> None:
    server = running.server
    server.obey("paced 5 6 7")
    assert (server.pace, server.tokens) == ((5, 6), 7)
    server.obey("null")
    assert (server.pace, server.tokens) == (None, None)
    server.obey("null 3")
    with running.connect() as sock:
        sock.sendall(request(9))
        assert len(texts(read_answer(sock))) == 3
    with pytest.raises(ValueError, match="no such order"):
        server.obey("dance")


def test_models_are_listed_and_other_paths_are_not_there(running: Running) -> None:
    with running.connect() as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert MODEL.encode() in sock.recv(65536)
        sock.sendall(request(1, path="/v1/messages"))
        assert sock.recv(65536).startswith(b"HTTP/1.1 404 ")


def test_a_client_that_leaves_in_mid_stream_is_logged_as_far_as_it_came(running: Running) -> None:
    running.server.pace = 1 * NS_PER_MS, 20 * NS_PER_MS
    with running.connect() as sock:
        sock.sendall(request(500))
        assert sock.recv(65536)
    running.settled(1)

    assert 0 <= len(running.server.entries[0].before_ns) < 500
    with running.connect() as sock:  # and it still serves
        running.server.pace = None
        sock.sendall(request(1))
        read_answer(sock)


def test_a_client_that_does_not_read_holds_up_nobody(running: Running) -> None:
    with running.connect() as slow, running.connect() as other:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(request(60_000, "slow"))
        time.sleep(0.05)
        other.sendall(request(3, "other"))
        assert len(texts(read_answer(other))) == 3


@pytest.mark.parametrize("data", [b"\0" * 70_000, b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"])
def test_nonsense_closes_its_connection(running: Running, data: bytes) -> None:
    with running.connect() as sock, contextlib.suppress(ConnectionError):
        sock.sendall(data)
        assert sock.recv(100) == b""
