"""A TCP server that plays byte scripts: what a real LLM server never does on demand.

A script says which bytes go out at which second after a whole request was read, and how the connection ends then.
The server knows enough HTTP to read requests, and nothing of what it sends: malformed answers are as easy as good
ones. It counts accepts and requests and keeps each request's head and body.

    async with StubServer(sse((0.1, C("a")), (0.2, FIN("stop") + USE(5, 1) + DONE))) as server:
        ...  # talk to server.url, then look at server.accepts and server.requests

In a process of its own, for whole runs: `python -m tests.support.stub_server --port 0 --scenario plain`; it prints
`port N` once it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Then = Literal["keep", "close", "reset", "hang"]
"""After the last step: wait for the next request, close, reset (SO_LINGER 0), or send nothing more for ever."""


# -- bytes of a stream (the short forms of the case list)


def event(document: object, name: str = "") -> bytes:
    """One server-sent event with a JSON body."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def DELTA(delta: dict[str, Any], *, index: int = 0, finish: str | None = None, **more: Any) -> bytes:
    """A chat chunk with this delta. `more` are further keys of the event, such as usage."""
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return event({"id": "r1", "object": "chat.completion.chunk", "choices": [choice], **more})


def C(text: str, **more: Any) -> bytes:
    """A chat chunk with content."""
    return DELTA({"content": text}, **more)


def FIN(reason: str = "stop", *, index: int = 0) -> bytes:
    """The chunk that carries the finish reason."""
    return DELTA({}, index=index, finish=reason)


def usage(prompt: int, completion: int) -> dict[str, int]:
    """A usage object."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def USE(prompt: int, completion: int, choices: object = ()) -> bytes:
    """The usage chunk, with empty choices unless told otherwise."""
    document = {"id": "r1", "object": "chat.completion.chunk", "choices": choices, "usage": usage(prompt, completion)}
    return event(document)


DONE = b"data: [DONE]\n\n"
ZERO_CHUNK = b"0\r\n\r\n"


# -- scripts


@dataclass(frozen=True, slots=True)
class Step:
    """These bytes, this many seconds after the whole request was read, in one write."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Script:
    """The answer to one request."""

    steps: tuple[Step, ...]
    then: Then = "keep"
    repeat_every: float | None = None
    """Send the last step again and again, this many seconds apart (a drip that never ends)."""


@dataclass(slots=True)
class Request:
    """A request as it was read."""

    head: bytes
    body: bytes
    number: int
    """0 for the first that this server read."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def head(status: str = "200 OK", *, chunked: bool = True, headers: dict[str, str] | None = None) -> bytes:
    """Status line and headers."""
    lines = {"Content-Type": "text/event-stream"} | ({"Transfer-Encoding": "chunked"} if chunked else {})
    lines |= headers or {}
    return f"HTTP/1.1 {status}\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n"


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def sse(
    *steps: tuple[float, bytes],
    then: Then = "keep",
    chunked: bool = True,
    end_at: float | None = None,
    terminator: bool = True,
    head_at: float = 0.0,
    headers: dict[str, str] | None = None,
    repeat_every: float | None = None,
) -> Script:
    """A streamed answer. The zero chunk goes with the last step, or at `end_at`, or not at all.

    With chunked=False the body has no length and ends with the connection.
    """
    out = [Step(head_at, head(chunked=chunked, headers=headers))]
    out += [Step(at, chunk(data) if chunked else data) for at, data in steps]
    if chunked and terminator and repeat_every is None:
        if end_at is None:
            out[-1] = replace(out[-1], data=out[-1].data + ZERO_CHUNK)
        else:
            out.append(Step(end_at, ZERO_CHUNK))
    return Script(tuple(out), then="close" if not chunked and then == "keep" else then, repeat_every=repeat_every)


def raw(*steps: tuple[float, bytes], then: Then = "keep") -> Script:
    """Bytes as they are, head included."""
    return Script(tuple(Step(at, data) for at, data in steps), then=then)


def answer(status: str, body: bytes, *, content_type: str = "application/json", then: Then = "keep") -> Script:
    """A whole body with a Content-Length."""
    lines = {"Content-Type": content_type, "Content-Length": str(len(body))}
    return raw((0.0, head(status, chunked=False, headers=lines) + body), then=then)


def split(script: Script, positions: Sequence[int], gap: float = 0.0) -> Script:
    """The same bytes cut at these positions (of all its bytes joined), each piece a write of its own, `gap` s apart.

    Timing inside the script is given up: the first piece goes out with its first step.
    """
    data = b"".join(step.data for step in script.steps)
    cuts = [0, *sorted({p for p in positions if 0 < p < len(data)}), len(data)]
    start = script.steps[0].at
    pieces = [data[a:b] for a, b in itertools.pairwise(cuts)]
    return replace(script, steps=tuple(Step(start + i * gap, piece) for i, piece in enumerate(pieces)))


Answers = Script | Sequence[Script] | Callable[[Request], Script]


@dataclass(slots=True)
class StubServer:
    """Listens on loopback inside an `async with`. `answers`: one script for all requests, a script a request (the
    last is repeated), or a function of the request."""

    answers: Answers
    keep_alive: bool = True
    """False: close after each answer, whatever the script says."""
    idle_close_s: float | None = None
    """Close a connection that was idle for so long after an answer."""
    read_pause_s: float = 0.0
    """Read request bodies slowly: sleep before each read, and offer a small receive window."""
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    port: int = 0
    accepts: int = 0
    open: int = 0
    """Connections open now."""
    requests: list[Request] = field(default_factory=list)
    closed_by_client: int = 0
    """Connections that the client closed or reset."""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    async def __aenter__(self) -> StubServer:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.read_pause_s:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.bind((self.host, self.port))
        self.port = sock.getsockname()[1]
        limit = 16384 if self.read_pause_s else 2**18
        self._server = await asyncio.start_server(self._accept, sock=sock, ssl=self.tls, backlog=1024, limit=limit)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        for _ in range(10):  # a connection that was just accepted gets its task, which then closes it
            await asyncio.sleep(0)
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def until(self, condition: Callable[[StubServer], bool], limit_s: float = 5.0) -> None:
        """Wait until the condition holds (what the peer does takes a moment to arrive). Fails after `limit_s`."""
        async with asyncio.timeout(limit_s):
            while not condition(self):
                await asyncio.sleep(0.005)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepts += 1
        self.open += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.closed_by_client += 1
        except asyncio.CancelledError:
            pass  # the server is being closed
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.transport.abort() if self.tls else writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                wait_s = self.idle_close_s if self.requests else None
                async with asyncio.timeout(wait_s):
                    request = await self._read(reader)
            except TimeoutError:
                return
            self.requests.append(request)
            script = self._script(request)
            await self._play(script, reader, writer)
            if script.then == "hang":
                await reader.read(1)  # returns when the client goes
                self.closed_by_client += 1
                return
            if script.then == "reset":
                self._reset(writer)
                return
            if script.then == "close" or not self.keep_alive:
                return

    def _script(self, request: Request) -> Script:
        if isinstance(self.answers, Script):
            return self.answers
        if callable(self.answers):
            return self.answers(request)
        return self.answers[min(request.number, len(self.answers) - 1)]

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        block = await reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in block.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = bytearray()
        while len(body) < length:
            if self.read_pause_s:
                await asyncio.sleep(self.read_pause_s)
            piece = await reader.read(min(65536, length - len(body)))
            if not piece:
                raise ConnectionResetError
            body += piece
        return Request(block, bytes(body), len(self.requests))

    async def _play(self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for step in script.steps:
            await asyncio.sleep(max(start + step.at - loop.time(), 0))
            writer.write(step.data)
            await writer.drain()
        while script.repeat_every is not None and not reader.at_eof():
            await asyncio.sleep(script.repeat_every)
            writer.write(script.steps[-1].data)
            await writer.drain()

    @staticmethod
    def _reset(writer: asyncio.StreamWriter) -> None:
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as twin:
            twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


# -- in a process of its own


def _words(count: int, gap: float, first: float = 0.02) -> list[tuple[float, bytes]]:
    steps = [(first, DELTA({"role": "assistant", "content": ""}) + C("w0"))]
    return steps + [(first + i * gap, C(f" w{i}")) for i in range(1, count)]


def _finished(count: int, gap: float, first: float = 0.02) -> Script:
    last = first + count * gap
    return sse(*_words(count, gap, first), (last, FIN("length") + USE(8, count) + DONE))


SCENARIOS: dict[str, Answers] = {
    "plain": _finished(16, 0.01),
    "slow": _finished(16, 0.1, first=0.5),
    "buffered": sse((0.3, b"".join(C(f"w{i}") for i in range(16)) + FIN("length") + USE(8, 16) + DONE)),
    "error-in-stream": sse((0.02, C("Once")), (0.05, event({"error": {"message": "engine stopped", "code": 500}}))),
    "cut": sse((0.02, C("a")), (0.05, C("b")), then="close"),
    "reset": sse((0.02, C("a")), (0.05, C("b")), terminator=False, then="reset"),
    "hang": sse((0.02, C("a")), terminator=False, then="hang"),
    "overloaded": answer("503 Service Unavailable", b'{"error":{"message":"busy","code":503}}'),
    "limited": answer("429 Too Many Requests", b'{"error":{"message":"slow down","code":429}}'),
    "every-third-fails": lambda request: (
        answer("500 Internal Server Error", b"boom") if request.number % 3 == 2 else _finished(16, 0.01)
    ),
}
"""Answers by name for `--scenario`; each serves any number of requests."""


async def _run(port: int, scenario: str) -> None:
    async with StubServer(SCENARIOS[scenario], port=port) as server:
        print(f"port {server.port}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="plain")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(arguments.port, arguments.scenario))


if __name__ == "__main__":
    main()
