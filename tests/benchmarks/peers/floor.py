"""The hand-made floor: what a streaming load client in Python costs at the least.

One process, one loop, no HTTP library, no task for a request: a connection is a small state machine that sends a
prebuilt request and reads the answer in `data_received`. It keeps times and nothing else: no records, no outcomes, no
checks. uvloop, httptools, orjson; an absolute timerfd for arrivals. Runs in an environment of its own:

    python floor.py --url http://127.0.0.1:8000 --mode closed|constant|poisson --level 64 --requests N --tokens T
                    [--prompt-tokens N] [--seed N] --out FILE

Times are CLOCK_MONOTONIC ns, taken when the loop hands the bytes over. FILE: a JSON document, one row a request.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import random
import struct
import time
from array import array
from typing import Any
from urllib.parse import urlsplit

import httptools
import orjson
import uvloop

now = time.monotonic_ns
_LEAD_NS, _SECOND = 200_000_000, 1_000_000_000
_CLOCK_MONOTONIC, _ABSOLUTE, _NONBLOCK_CLOEXEC = 1, 1, 0o2004000


class Sent:
    """One request's times."""

    __slots__ = ("chunks", "end", "number", "ok", "sent")

    def __init__(self, number: int) -> None:
        self.number, self.sent, self.end, self.ok = number, 0, 0, True
        self.chunks = array("q")


class Connection(asyncio.Protocol):
    """One request at a time, kept alive."""

    def __init__(self, client: Client) -> None:
        self.client, self.sent, self.tail, self.at = client, Sent(-1), b"", 0
        self.parser = httptools.HttpResponseParser(self)
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.at = now()
        self.parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self.sent.ok = self.parser.get_status_code() == 200

    def on_body(self, body: bytes) -> None:
        if self.tail:
            body, self.tail = self.tail + body, b""
        if not body.endswith(b"\n\n"):
            cut = body.rfind(b"\n\n") + 2
            if cut == 1:
                self.tail = body
                return
            body, self.tail = body[:cut], body[cut:]
        for event in body[:-2].split(b"\n\n"):
            if event.startswith(b"data: {"):
                choices = orjson.loads(event[6:]).get("choices")
                if choices and choices[0]["delta"].get("content"):
                    self.sent.chunks.append(self.at)

    def on_message_complete(self) -> None:
        self.sent.end = self.at
        self.client.finished(self)

    def start(self, number: int) -> None:
        sent = self.sent = Sent(number)
        sent.sent = now()
        self.transport.write(b"%s%d%s" % (self.client.head, number, self.client.rest))


class Timer:
    """An absolute timer as a descriptor: microseconds where uvloop's own timers round to milliseconds."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        self._buffer = ctypes.create_string_buffer(32)

    def set(self, at_ns: int) -> None:
        struct.pack_into("qqqq", self._buffer, 0, 0, 0, at_ns // _SECOND, at_ns % _SECOND)
        self._libc.timerfd_settime(self.fd, _ABSOLUTE, self._buffer, None)


class Client:
    def __init__(self, wanted: argparse.Namespace, loop: asyncio.AbstractEventLoop) -> None:
        self.wanted, self.loop = wanted, loop
        url = urlsplit(wanted.url)
        self.host, self.port = url.hostname, url.port
        self.idle: list[Connection] = []
        self.finished_ones: list[Sent] = []
        self.started = 0
        self.done = loop.create_future()
        body = json.dumps(
            {"model": "paced", "messages": [{"role": "user", "content": " ".join(["hello"] * wanted.prompt_tokens)}],
             "max_tokens": wanted.tokens, "stream": True, "stream_options": {"include_usage": True}}
        ).encode()  # fmt: skip
        self.head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\nx-request-id: "
        ).encode()
        self.rest = b"\r\n\r\n" + body

    async def connect(self) -> Connection:
        _, connection = await self.loop.create_connection(lambda: Connection(self), self.host, self.port)
        return connection

    async def start_on_new(self, number: int) -> None:
        (await self.connect()).start(number)

    def next(self, connection: Connection | None) -> None:
        number, self.started = self.started, self.started + 1
        if connection is not None:
            connection.start(number)
        else:
            self.loop.create_task(self.start_on_new(number))

    def finished(self, connection: Connection) -> None:
        self.finished_ones.append(connection.sent)
        if self.wanted.mode == "closed" and self.started < self.wanted.requests:
            self.next(connection)
            return
        self.idle.append(connection)
        if len(self.finished_ones) == self.wanted.requests:
            self.done.set_result(None)

    async def run(self) -> None:
        closed = self.wanted.mode == "closed"
        connections = [
            await self.connect() for _ in range(min(self.wanted.level, self.wanted.requests) if closed else 0)
        ]
        gc.collect()
        gc.freeze()
        gc.disable()
        if closed:
            for connection in connections:
                self.next(connection)
        else:
            rng, at, self.due = random.Random(self.wanted.seed), float(now() + _LEAD_NS), []
            for _ in range(self.wanted.requests):
                self.due.append(int(at))
                even = _SECOND / self.wanted.level
                at += even if self.wanted.mode == "constant" else rng.expovariate(1) * even
            self.timer = Timer()
            self.loop.add_reader(self.timer.fd, self.tick)
            self.timer.set(self.due[0])
        await self.done

    def tick(self) -> None:
        os.read(self.timer.fd, 8)
        while self.started < len(self.due):
            if self.due[self.started] > now():
                self.timer.set(self.due[self.started])
                return
            self.next(self.idle.pop() if self.idle else None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--mode", choices=("closed", "constant", "poisson"), required=True)
    for name in ("level", "requests", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    wanted = parser.parse_args()
    loop = uvloop.new_event_loop()
    client = Client(wanted, loop)
    loop.run_until_complete(client.run())
    rows = [[s.number, s.ok, s.sent, s.end, s.chunks.tolist()] for s in client.finished_ones]
    with open(wanted.out, "wb") as out:
        out.write(orjson.dumps(rows))


if __name__ == "__main__":
    main()
