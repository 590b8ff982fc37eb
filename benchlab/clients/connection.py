"""One connection: a non-blocking socket under the loop's reader callback, HTTP/1.1 parsed by httptools.

Our own because each read must keep the time at which the kernel took it (see `stamps`), which no HTTP library hands
on. A connection carries one exchange at a time and knows nothing of events or outcomes.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Protocol

import httptools

from benchlab.clients.stamps import ANCILLARY_BYTES, Stamps
from benchlab.clock import Clock

_READ_BYTES = 65536
_HEADERS = {
    name.encode(): name
    for name in ("content-length", "transfer-encoding", "content-encoding", "x-request-id", "request-id")
}
"""The headers that anybody asks for."""
_STAMP_TOLERANCE_NS = 1_000_000
"""How far a kernel stamp may disagree with our clock before it is not believed: far above the error of the offset."""


class Exchange(Protocol):
    """Who is told what comes back. Times are monotonic ns; `since_ns` is the stamp of the read before this one."""

    def headers(self, ns: int, status: int, headers: dict[str, str]) -> None: ...
    def body(self, data: bytes, ns: int, since_ns: int, kernel: bool, *, last: bool) -> None: ...
    def complete(self, ns: int, *, framed: bool) -> None: ...
    def lost(self, ns: int, why: str, *, any_byte: bool) -> None: ...


class Connection:
    """A kept-alive connection. `idle` between exchanges; `closed` once it is of no more use."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        stamps: Stamps,
        clock: Clock,
        tls: Tls | None = None,
        *,
        max_header_bytes: int = 256 * 2**10,
    ) -> None:
        self._loop, self._sock, self._stamps, self._clock, self._tls = loop, sock, stamps, clock, tls
        self._fd = sock.fileno()
        self._unsent: bytes | memoryview = b""
        self._exchange: Exchange | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._stamp_ns = self._since_ns = 0
        self._kernel = False
        self._any_byte = self._has_length = self._headers_done = False
        self._complete = self._keep = self._stray = False
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._max_header_bytes, self._head_bytes = max_header_bytes, 0
        self._send_fault: str | None = None
        self.uses = 0
        self.closed = False
        loop.add_reader(self._fd, self._readable)

    # -- driving

    def start(self, request: bytes, exchange: Exchange, sent_ns: int) -> None:
        """Send a request whose answer goes to `exchange`. `sent_ns` is the clock just before the first byte."""
        self._exchange = exchange
        self._any_byte = self._headers_done = self._has_length = False
        self._complete = self._keep = self._stray = False
        self._headers = {}
        self._head_bytes = 0
        self._stamp_ns = sent_ns
        self.uses += 1
        self._send(request if self._tls is None else self._tls.encrypt(request))

    def _send(self, data: bytes) -> None:
        if self._send_fault is not None:
            return
        if self._unsent:
            self._unsent = bytes(self._unsent) + data
            return
        self._transmit(data)

    def _transmit(self, data: bytes | memoryview) -> None:
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except (BrokenPipeError, ConnectionResetError) as error:
            # the server may have answered before it hung up (413, 503): the reading side has the last word
            self._send_fault = f"the connection broke while sending: {_words(error)}"
            return
        except OSError as error:
            self._lose(f"the connection broke while sending: {_words(error)}")
            return
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]  # a long prompt goes out in parts, without being copied for each
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._fd)
        self._transmit(data)

    def release(self) -> None:
        """The exchange is over, in good order or not: tell nobody any more."""
        self._exchange = None

    def close(self) -> None:
        """Close at once; whoever has an exchange open is not told."""
        if not self.closed:
            self.closed = True
            self._exchange = None
            self._loop.remove_reader(self._fd)
            if self._unsent:
                self._loop.remove_writer(self._fd)
            self._sock.close()

    # -- reading

    def _readable(self) -> None:
        try:
            if self._stamps.kernel:
                size, ancillary, _, _ = self._sock.recvmsg_into(self._stamps.buffers, ANCILLARY_BYTES)
                stamp = self._stamps.of(ancillary) if ancillary else None
            else:
                size, stamp = self._sock.recv_into(self._stamps.buffer), None
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(f"the connection broke: {_words(error)}")
            return
        self._take_stamp(stamp)
        if not size:
            self._end_of_stream()
            return
        data = self._stamps.buffer[:size]
        if self._exchange is None:  # bytes that nobody asked for
            self.close()
            return
        if self._tls is None:
            self._feed(data)
            return
        try:
            plain, reply, over = self._tls.decrypt(data)
        except ssl.SSLError as error:
            self._lose(f"TLS: {error.reason or error}")
            return
        if reply:
            self._send(reply)
        if plain:
            self._feed(plain)
        if over and not self.closed:
            self._end_of_stream()

    def _take_stamp(self, stamp: int | None) -> None:
        """The time of this read. Never before the read that came first and never in the future: a kernel stamp that
        says so was carried over a step of the wall clock, and the clock is read instead."""
        since = self._since_ns = self._stamp_ns
        now = self._clock.monotonic_ns()
        if stamp is not None and since - _STAMP_TOLERANCE_NS <= stamp <= now + _STAMP_TOLERANCE_NS:
            now = stamp if stamp < now else now
            self._kernel = True
        else:
            self._kernel = False
        self._stamp_ns = now if now > since else since

    def _feed(self, data: bytes | memoryview) -> None:
        """Parse one read, then tell the exchange: once for all its body bytes, so that it sees what shared a read."""
        self._any_byte = True
        fault: str | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            fault = "the server switched protocols"
        except httptools.HttpParserError as error:
            fault = f"not HTTP/1.1: {error}"
        exchange = self._exchange
        body = b""
        if self._pieces:
            body, self._pieces, self._head_bytes = b"".join(self._pieces), [], 0
            if exchange is not None:
                exchange.body(body, self._stamp_ns, self._since_ns, self._kernel, last=self._complete)
        if self._complete:
            if not self._keep or self._unsent or self._send_fault or self._stray or fault:
                self.close()
            self._exchange = None
            if exchange is not None:
                exchange.complete(self._stamp_ns, framed=True)
            return
        if not body:  # headers, or after them trailers and chunk extensions, which hold no content either
            self._head_bytes += len(data)
            if fault is None and self._head_bytes > self._max_header_bytes:
                fault = f"response headers longer than {self._max_header_bytes} bytes"
        if fault is not None:
            self._lose(fault, unparsable=True)

    def _end_of_stream(self) -> None:
        exchange = self._exchange
        if exchange is not None and self._headers_done and not self._has_length:
            self.close()
            exchange.complete(self._stamp_ns, framed=False)  # a body without a length ends with its connection
        else:
            self._lose(self._send_fault or "the server closed the connection")

    def _lose(self, why: str, *, unparsable: bool = False) -> None:
        exchange, ns = self._exchange, self._clock.monotonic_ns()
        any_byte = self._any_byte or unparsable
        self.close()
        if exchange is not None:
            exchange.lost(max(ns, self._stamp_ns), ("unparsable: " if unparsable else "") + why, any_byte=any_byte)

    # -- called by httptools

    def on_message_begin(self) -> None:
        if self._complete:  # bytes after the end of the answer: this connection is out of step
            self._stray = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headers_done:  # a trailer, or a second answer
            return
        key = _HEADERS.get(name.lower())
        if key is None:
            return
        if key in ("content-length", "transfer-encoding"):
            self._has_length = True
        self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue, 103 Early Hints
            self._headers, self._has_length = {}, False
            return
        self._headers_done = True
        if status in (204, 304):
            self._has_length = True
        if self._exchange is not None:
            self._exchange.headers(self._stamp_ns, status, self._headers)

    def on_body(self, data: bytes) -> None:
        if not self._complete:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._headers_done and not self._complete:
            self._complete = True
            self._keep = self._parser.should_keep_alive()


class Tls:
    """TLS over memory buffers, so that the socket's reads keep their stamps (the stamp is of the record's bytes)."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    async def handshake(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """Shake hands over a connected non-blocking socket. Raises ssl.SSLError or OSError."""
        while True:
            try:
                self._object.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            if self._outgoing.pending:
                await loop.sock_sendall(sock, self._outgoing.read())
            if done:
                return
            data = await loop.sock_recv(sock, _READ_BYTES)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
            self._incoming.write(data)

    def encrypt(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._outgoing.read()

    def decrypt(self, data: bytes | memoryview) -> tuple[bytes, bytes, bool]:
        """Plain bytes, what must be sent in reply (key updates), and whether the peer closed."""
        self._incoming.write(data)
        pieces: list[bytes] = []
        over = False
        try:
            while piece := self._object.read(_READ_BYTES):
                pieces.append(piece)
            over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            over = True
        return b"".join(pieces), self._outgoing.read(), over


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
