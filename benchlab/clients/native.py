"""The transport for one job: many HTTP/1.1 streaming POSTs at once, each event stamped when its bytes arrived.

No cap on connections but the process's descriptors; kept connections are reused; a kept one that dies before any
response byte is replaced once, with the clock still running, and counted. Environment proxies are not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle

from benchlab.clients.base import ByteLimits, ClientCounts, Timeouts
from benchlab.clients.connection import Connection, Tls
from benchlab.clients.dialect import Bodies, Dialect
from benchlab.clients.endpoint import Endpoint, look_up
from benchlab.clients.exchange import StreamExchange
from benchlab.clients.request_head import request_headers
from benchlab.clients.stamps import CLOCK_STEP, Stamps
from benchlab.clock import Clock
from benchlab.records.event import Outcome
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_S, format_duration
from benchlab.workload.item import WorkloadItem

_CLIENT_FAULTS = {
    errno.EMFILE: "this process has no file descriptors left (see `ulimit -n`)",
    errno.ENFILE: "this host has no file descriptors left",
    errno.EADDRNOTAVAIL: "this host has no local ports left for the target (see ip_local_port_range)",
    errno.ENOBUFS: "this host has no buffers left for sockets",
    errno.ENOMEM: "this host has no memory left for sockets",
}
_BIND_ADDRESS_NO_PORT = 24
"""IP_BIND_ADDRESS_NO_PORT of Linux."""


class NativeClient:
    """One endpoint over our own sockets. Made inside a running loop. sources: local addresses to connect from, in
    turn; none: the system chooses.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        limits: ByteLimits | None = None,
        stamps: Stamps | None = None,
        tls: ssl.SSLContext | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        self._sources = cycle(sources) if sources else None
        self._endpoint, self._dialect, self._clock = endpoint, dialect, clock
        self._timeouts, self._limits = timeouts or Timeouts(), limits or ByteLimits()
        self._tls = (tls or ssl.create_default_context()) if endpoint.scheme == "https" else None
        self._addresses = look_up(endpoint)
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._bodies = Bodies(dialect)
        self._head = _head(endpoint, dialect, headers or {})
        self._stamps = stamps or Stamps(clock)  # last: it opens a socket, and what is above may raise
        self.counts = ClientCounts()

    @property
    def stamps(self) -> Stamps:
        return self._stamps

    def prepare(self, item: WorkloadItem) -> bytes:
        """The request body of an item, made once; call it before time zero to keep the work off the hot path."""
        return self._bodies.prepare(item)

    async def stream(self, item: WorkloadItem, recorder: Recorder) -> None:
        body = self._bodies.get(item)
        request = b"%s%s\r\nContent-Length: %d\r\n\r\n%s" % (
            self._head,
            recorder.identity.request_id.encode("ascii", "replace"),
            len(body),
            body,
        )
        started_ns = self._clock.monotonic_ns()
        retry = False
        while True:
            connection = None if retry else self._reusable()
            fresh = connection is None
            if connection is None:
                connection = await self._connect(recorder)
                if connection is None:
                    return
            exchange = StreamExchange(
                recorder,
                self._dialect.conversation(recorder, item),
                clock=self._clock,
                timeouts=self._timeouts,
                limits=self._limits,
                counts=self.counts,
                started_ns=started_ns,
                retry_if_unanswered=not fresh,
            )
            sent_ns = self._clock.monotonic_ns()
            if recorder.sent_ns is None:
                recorder.sent_ns = sent_ns
            try:
                reusable = await exchange.run(partial(connection.start, request, exchange, sent_ns), sent_ns)
            except asyncio.CancelledError:
                connection.close()
                raise
            finally:
                if self._stamps.stepped_since(sent_ns):
                    recorder.unknown.add(CLOCK_STEP)
            if exchange.unanswered:
                recorder.retries += 1
                self.counts.retries += 1
                retry = True  # on a fresh connection: another kept one may be as dead
                connection.close()
                continue
            if reusable and not connection.closed:
                connection.release()
                self._idle.append(connection)
            else:
                connection.close()
            return

    async def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self._stamps.close()

    def _reusable(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _connect(self, recorder: Recorder) -> Connection | None:
        """A new connection, or None with the recorder failed."""
        start_ns = self._clock.monotonic_ns()
        recorder.connect_start_ns = start_ns
        limit = min(filter(None, (self._timeouts.connect_ns, self._timeouts.total_ns)), default=None)
        try:
            async with asyncio.timeout(limit / NS_PER_S if limit else None):
                connection = await self._open()
        except TimeoutError as error:
            ns = self._clock.monotonic_ns()
            if error.errno is not None:  # the kernel gave up, not we
                recorder.fail(Outcome.ERROR_CONNECT, f"cannot connect: {error.strerror}", ns=ns, kind="unreachable")
                return None
            words = f"client timeout: no connection after {format_duration(limit or 0)}"
            recorder.fail(Outcome.TIMEOUT, words, ns=ns, kind="connect")
        except OSError as error:
            words, kind = explain_connect_error(error)
            recorder.fail(Outcome.ERROR_CONNECT, words, ns=self._clock.monotonic_ns(), kind=kind)
        else:
            recorder.connect_end_ns = self._clock.monotonic_ns()
            self.counts.connections += 1
            return connection
        return None

    async def _open(self) -> Connection:
        failure: OSError | None = None
        for index, (family, address) in enumerate(self._addresses):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                self._stamps.ask(sock)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._sources is not None:
                    self._bind(sock, next(self._sources))
                await self._loop.sock_connect(sock, address)
                tls = None
                if self._tls is not None:
                    tls = Tls(self._tls, self._endpoint.host)
                    await tls.handshake(self._loop, sock)
            except OSError as error:
                sock.close()
                failure = error
                if error.errno in _CLIENT_FAULTS:
                    break
                continue
            except BaseException:
                sock.close()
                raise
            if index:  # this address answers: ask it first from now on
                self._addresses.insert(0, self._addresses.pop(index))
            limit = self._limits.headers
            return Connection(self._loop, sock, self._stamps, self._clock, tls, max_header_bytes=limit)
        raise failure or OSError(errno.EADDRNOTAVAIL, "the endpoint has no address")

    @staticmethod
    def _bind(sock: socket.socket, source: str) -> None:
        """Connect from this address; its port is chosen at the connect, so that each target has all of them."""
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))


def explain_connect_error(error: OSError) -> tuple[str, str]:
    """Words and kind of a failed connection attempt; kind "client" when it is this host's own fault."""
    fault = None if isinstance(error, ssl.SSLError) else _CLIENT_FAULTS.get(error.errno or 0)
    if fault is not None:
        return fault, "client"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the certificate is not trusted: {error.verify_message}", "tls"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}", "tls"
    kind = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EHOSTUNREACH: "unreachable"}
    return f"cannot connect: {error.strerror or error}", kind.get(error.errno or 0, "connect")


def _head(endpoint: Endpoint, dialect: Dialect, headers: Mapping[str, str]) -> bytes:
    """The request's head up to the value of its request id."""
    lines = [f"POST {endpoint.prefix}{dialect.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request_headers(endpoint, dialect, headers)]
    return ("\r\n".join(lines) + "\r\nX-Request-Id: ").encode("utf-8")
