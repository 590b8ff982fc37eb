"""The server that the client is measured against: it streams as fast as it can, or at absolute times, and logs both
ends of each write.

The one idea: a server that costs little and knows the truth. One thread, non-blocking sockets under a selector, one
write an event, as engines do; modes `null` (the next event of every stream in turn, without a pause) and `paced` (each
event at an absolute time of its stream: lateness never adds up). It is a process of its own, `python -m
benchlab.doctor.server`, told what to do on its standard input, and ends when that ends. It must not know the client.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import heapq
import json
import os
import re
import selectors
import socket
import sys
import time
from pathlib import Path
from typing import IO

from benchlab.doctor.truth import Written, write
from benchlab.doctor.wakeup import Wakeup

MODEL = "doctor"
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"\r\nx-request-id:\s*([^\r\n]*)", re.IGNORECASE)
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens":\s*(\d+)')
_MAX_HEAD = 65536
_MAX_BODY = 64 * 2**20
_BUFFER = 262_144
_CONTROL = (
    json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode(),
    b'{"error":{"message":"this server knows POST /v1/chat/completions and GET /v1/models","type":"not_found_error"}}',
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(choice: str, more: str = "") -> bytes:
    head = '{"id":"chatcmpl-doctor","object":"chat.completion.chunk","created":1700000000,"model":"doctor","choices":['
    return f"data: {head}{choice}]{more}}}\n\n".encode()


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ROLE = '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
_TEXT = '{"index":0,"delta":{"content":" lorem"},"logprobs":null,"finish_reason":null}'
OPENING = _HEAD + _chunk(_event(_ROLE))
TOKEN = _chunk(_event(_TEXT))


def closing(prompt: int, tokens: int) -> bytes:
    """The last write of an answer: finish reason, usage, [DONE] and the end of the message."""
    usage = f'"prompt_tokens":{prompt},"completion_tokens":{tokens},"total_tokens":{prompt + tokens}'
    finish = _event('{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}')
    return _chunk(finish) + _chunk(_event("", ',"usage":{' + usage + "}")) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class _Stream:
    """A connection and the answer that it carries, if it carries one."""

    __slots__ = ("closed", "due_ns", "entry", "gap_ns", "prompt", "received", "sent", "sock", "tokens", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.unsent = b""
        self.entry: Written | None = None
        self.sent = self.tokens = self.prompt = 0
        self.due_ns = self.gap_ns = 0
        self.closed = False


class TruthServer:
    """Serves until `stopped`. `pace`: None for null, or (ns to the first token, ns between tokens). `tokens`: of every
    answer, whatever is asked; None: as many as are asked."""

    def __init__(self, listener: socket.socket, commands: IO[bytes] | None = None) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener, self._commands = listener, commands
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._wakeup = Wakeup()
        if self._wakeup.fd >= 0:
            self._selector.register(self._wakeup.fd, selectors.EVENT_READ, self._wakeup.clear)
        if commands is not None:
            self._selector.register(commands, selectors.EVENT_READ, self._command)
        self.pace: tuple[int, int] | None = None
        self.tokens: int | None = None
        self.entries: list[Written] = []
        self.log: IO[bytes] | None = None
        self.stopped = False
        self._null: dict[_Stream, None] = {}
        self._paced: list[tuple[int, int, _Stream]] = []
        self._order = 0
        self._ordered = b""

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def run(self) -> None:
        """Serve. Returns once it was told to stop."""
        select, now = self._selector.select, time.monotonic_ns
        while not self.stopped:
            for key, _ in select(self._wait_s()):
                key.data() if not isinstance(key.data, _Stream) else self._ready(key.data)
            while self._paced and self._paced[0][0] <= now():
                self._step(heapq.heappop(self._paced)[2])
            for stream in list(self._null):
                self._step(stream)

    def _wait_s(self) -> float | None:
        if self._null:
            return 0
        if not self._paced:
            return None
        due = self._paced[0][0]
        if self._wakeup.fd >= 0:
            self._wakeup.at(due)
            return None
        return max(0, due - time.monotonic_ns()) / 1e9

    # -- connections

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    sock, _ = self._listener.accept()
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE):
                        raise
                    self._close_idle()  # kept connections make room; without any, those who knock wait
                    return
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(sock, selectors.EVENT_READ, _Stream(sock))

    def _close_idle(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Stream) and key.data.entry is None and not key.data.received:
                self._close(key.data)

    def _ready(self, stream: _Stream) -> None:
        if stream.unsent:
            self._flush(stream)
        try:
            data = stream.sock.recv(_BUFFER)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return
        stream.received += data
        if stream.entry is None:
            self._request(stream)

    def _close(self, stream: _Stream) -> None:
        if stream.closed:
            return
        stream.closed = True
        self._null.pop(stream, None)
        if stream.entry is not None:
            self.entries.append(stream.entry)
        self._selector.unregister(stream.sock)
        stream.sock.close()

    def _request(self, stream: _Stream) -> None:
        """Begin to answer, once a request has come whole."""
        end = stream.received.find(b"\r\n\r\n")
        if end < 0:
            if len(stream.received) > _MAX_HEAD:
                self._close(stream)
            return
        head = bytes(stream.received[:end])
        found = _LENGTH.search(head)
        length = int(found.group(1)) if found else 0
        if length > _MAX_BODY:
            self._close(stream)
            return
        if len(stream.received) < end + 4 + length:
            return
        body = bytes(stream.received[end + 4 : end + 4 + length])
        del stream.received[: end + 4 + length]
        if not head.startswith(b"POST ") or b"/chat/completions " not in head.split(b"\r\n", 1)[0]:
            self._control(stream, known=head.split(b" ", 2)[1].endswith(b"/v1/models"))
            return
        name, tokens = _REQUEST_ID.search(head), _TOKENS.search(body)
        self._begin(stream, name.group(1).decode("latin-1") if name else "", int(tokens.group(1)) if tokens else 16)
        stream.prompt = max(1, len(body) // 4)

    def _control(self, stream: _Stream, *, known: bool) -> None:
        body = _CONTROL[not known]
        status = b"200 OK" if known else b"404 Not Found"
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self._send(stream, head + body)
        if stream.received:
            self._request(stream)

    def _begin(self, stream: _Stream, name: str, tokens: int) -> None:
        now = time.monotonic_ns()
        stream.entry = Written(name, now)
        stream.tokens, stream.sent = max(1, self.tokens or tokens), 0
        self._send(stream, OPENING)
        if stream.closed:
            return
        if self.pace is None:
            self._null[stream] = None
            return
        first, stream.gap_ns = self.pace
        stream.due_ns = now + first
        self._push(stream)

    def _push(self, stream: _Stream) -> None:
        self._order += 1
        heapq.heappush(self._paced, (stream.due_ns, self._order, stream))

    # -- events

    def _step(self, stream: _Stream) -> None:
        """The next write of a stream: a token, or the end."""
        entry = stream.entry
        if stream.closed or entry is None:
            return
        if stream.unsent:  # the client does not read: its next event waits, as it would in an engine
            if stream not in self._null:
                stream.due_ns = time.monotonic_ns() + 1_000_000
                self._push(stream)
            return
        if stream.sent < stream.tokens:
            before = time.monotonic_ns()
            self._send(stream, TOKEN)
            after = time.monotonic_ns()
            entry.before_ns.append(before)
            entry.after_ns.append(after)
            stream.sent += 1
            if stream not in self._null:
                stream.due_ns += stream.gap_ns
                self._push(stream)
            return
        self._null.pop(stream, None)
        stream.entry = None
        self.entries.append(entry)
        self._send(stream, closing(stream.prompt, stream.tokens))
        if stream.received and not stream.closed:
            self._request(stream)

    def _send(self, stream: _Stream, data: bytes) -> None:
        if stream.unsent:
            stream.unsent += data
            return
        try:
            sent = stream.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._close(stream)
            return
        if sent < len(data):
            stream.unsent = data[sent:]
            self._selector.modify(stream.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, stream)

    def _flush(self, stream: _Stream) -> None:
        data, stream.unsent = stream.unsent, b""
        self._selector.modify(stream.sock, selectors.EVENT_READ, stream)
        self._send(stream, data)

    # -- orders

    def _command(self) -> None:
        assert self._commands is not None
        data = os.read(self._commands.fileno(), 65536)
        if not data:
            self.stopped = True
            return
        *lines, self._ordered = (self._ordered + data).split(b"\n")
        for line in lines:
            self.obey(line.decode())
            print("done", line.decode(), flush=True)  # noqa: T201 - the other end waits for it

    def obey(self, order: str) -> None:
        """`null [TOKENS]`, `paced FIRST_NS GAP_NS [TOKENS]`: for requests from now on. `dump`: write the log so far."""
        word, *texts = order.split()
        numbers = [int(text) for text in texts]
        if word == "null":
            self.pace, self.tokens = None, numbers[0] if numbers else None
        elif word == "paced":
            self.pace, self.tokens = (numbers[0], numbers[1]), numbers[2] if len(numbers) > 2 else None
        elif word == "dump":
            self.dump()
        else:
            raise ValueError(f"no such order: {order}")

    def dump(self) -> None:
        """Write the finished entries to the log and forget them."""
        if self.log is not None:
            write(self.log, self.entries)
            self.log.flush()
        self.entries = []

    def close(self) -> None:
        """Close all sockets; what was under way is in the log as far as it came."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Stream):
                self._close(key.data)
        self._listener.close()
        self._wakeup.close()
        self._selector.close()
        self.dump()


def listen(port: int = 0) -> socket.socket:
    """A listening socket on loopback. Raises OSError when the port is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(4096)
    return listener


def main() -> int:
    """Serve until standard input ends. Prints `ready URL`, then `done ORDER` for each order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, help="the truth, written when it ends or is told to dump")
    parser.add_argument(
        "--order", default="null", help="null [TOKENS] | paced FIRST_NS GAP_NS [TOKENS]: until another order comes"
    )
    arguments = parser.parse_args()
    server = TruthServer(listen(arguments.port), sys.stdin.buffer.raw)  # type: ignore[union-attr]
    server.obey(arguments.order)
    with contextlib.ExitStack() as stack:
        if arguments.log is not None:
            server.log = stack.enter_context(arguments.log.open("wb"))
        stack.callback(server.close)
        print(f"ready http://127.0.0.1:{server.port}", flush=True)  # noqa: T201
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
