"""The same client over aiohttp, for platforms and networks where sockets of our own are not wanted.

The one idea: only the bytes come another way. Headers, limits, outcomes and events go through the same
`StreamExchange` as those of the native transport, so records differ in nothing but their stamps: a chunk's time is
the clock when aiohttp handed its bytes over, and `stamp_source` says `callback`. aiohttp is kept from doing anything
of its own accord: no proxies from the environment, no decompression, no cap on connections, no cookies, no redirects,
no time limits but the one for connecting. What it does worse: events that share a read with broken framing are lost
with it, and bytes that a server sends after the end of an answer can spoil the next one on that connection.
"""

from __future__ import annotations

import asyncio
import errno
import io
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchlab.clients.base import ByteLimits, ClientCounts, Timeouts
from benchlab.clients.dialect import Bodies, Dialect
from benchlab.clients.endpoint import Endpoint, look_up
from benchlab.clients.exchange import StreamExchange
from benchlab.clients.native import explain_connect_error
from benchlab.clients.request_head import REQUEST_ID, request_headers
from benchlab.clock import Clock
from benchlab.records.event import Outcome
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_S, format_duration
from benchlab.workload.item import WorkloadItem

if TYPE_CHECKING:
    import aiohttp

_LARGE_BODY = 2**18
"""Bytes beyond which a body is handed over in pieces, so that it does not block the loop."""

_SHORT = "Not enough data"
"""What aiohttp says where a body ended before its framing did."""
_TOO_LONG = ("Got more than", "Too many headers")
"""What it says where a header, or all of them, are beyond its limits."""


class PortableClient:
    """One endpoint over aiohttp. Made inside a running loop. keep_alive=False: a connection a request."""

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        limits: ByteLimits | None = None,
        tls: ssl.SSLContext | None = None,
        keep_alive: bool = True,
    ) -> None:
        from yarl import URL

        self._endpoint, self._dialect, self._clock = endpoint, dialect, clock
        self._timeouts, self._limits = timeouts or Timeouts(), limits or ByteLimits()
        self._url = URL(endpoint.base + dialect.path, encoded=True)
        self._headers = request_headers(endpoint, dialect, headers or {})
        self._tls = (tls or ssl.create_default_context()) if endpoint.scheme == "https" else None
        self._addresses = look_up(endpoint)
        self._bodies = Bodies(dialect)
        self._kept = self._session(keep_alive=keep_alive)
        self._fresh = self._session(keep_alive=False)  # for what a kept connection lost: another may be as dead
        self.counts = ClientCounts()

    def prepare(self, item: WorkloadItem) -> bytes:
        """The request body of an item, made once; call it before time zero to keep the work off the hot path."""
        return self._bodies.prepare(item)

    async def stream(self, item: WorkloadItem, recorder: Recorder) -> None:
        body = self._bodies.get(item)
        started_ns = self._clock.monotonic_ns()
        for session, last in ((self._kept, False), (self._fresh, True)):
            call = _Call(self, item, recorder, started_ns, last=last)
            await call.run(session, body)
            if not call.unanswered:
                return
            recorder.retries += 1
            self.counts.retries += 1

    async def close(self) -> None:
        await self._kept.close()
        await self._fresh.close()

    def _session(self, *, keep_alive: bool) -> aiohttp.ClientSession:
        import aiohttp

        connector = aiohttp.TCPConnector(
            limit=0,
            force_close=not keep_alive,
            keepalive_timeout=None if not keep_alive else 1e9,  # the server decides, as with the native transport
            resolver=_resolver(self._addresses),
            ttl_dns_cache=None,
            ssl=self._tls if self._tls is not None else True,
            happy_eyeballs_delay=None,
        )
        limit_ns = min(filter(None, (self._timeouts.connect_ns, self._timeouts.total_ns)), default=None)
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_start.append(_traced("connecting"))
        trace.on_connection_create_end.append(_traced("connected"))
        trace.on_connection_reuseconn.append(_traced("reused"))
        return aiohttp.ClientSession(
            connector=connector,
            trace_configs=[trace],
            timeout=aiohttp.ClientTimeout(
                total=None, connect=limit_ns / NS_PER_S if limit_ns else None, ceil_threshold=1e9
            ),
            auto_decompress=False,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            max_line_size=self._limits.headers,
            max_field_size=self._limits.headers,
        )


class _Call:
    """One attempt: aiohttp's coroutine in a task of its own, so that a time limit can end it at any place."""

    def __init__(
        self, client: PortableClient, item: WorkloadItem, recorder: Recorder, started_ns: int, *, last: bool
    ) -> None:
        self._client, self._item, self._recorder, self._started_ns = client, item, recorder, started_ns
        self._clock, self._last = client._clock, last
        self._exchange: StreamExchange | None = None
        self._connected = asyncio.Event()
        self._stamp_ns = 0
        self._sent_ns = 0

    @property
    def unanswered(self) -> bool:
        return self._exchange is not None and self._exchange.unanswered

    async def run(self, session: aiohttp.ClientSession, body: bytes) -> None:
        pump = asyncio.get_running_loop().create_task(self._pump(session, body))
        try:
            await self._connected.wait()
            if self._exchange is not None:
                await self._exchange.run(lambda: None, self._sent_ns)
        finally:
            if not pump.done():
                pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    # -- what aiohttp tells while it connects

    def connecting(self) -> None:
        self._recorder.connect_start_ns = self._clock.monotonic_ns()

    def connected(self) -> None:
        self._recorder.connect_end_ns = self._clock.monotonic_ns()
        self._client.counts.connections += 1
        self._begin(reused=False)

    def reused(self) -> None:
        self._begin(reused=True)

    def _begin(self, *, reused: bool) -> None:
        """There is a connection: the request goes out next."""
        client, recorder = self._client, self._recorder
        self._sent_ns = self._stamp_ns = self._clock.monotonic_ns()
        if recorder.sent_ns is None:
            recorder.sent_ns = self._sent_ns
        self._exchange = StreamExchange(
            recorder,
            client._dialect.conversation(recorder, self._item),
            clock=self._clock,
            timeouts=client._timeouts,
            limits=client._limits,
            counts=client.counts,
            started_ns=self._started_ns,
            retry_if_unanswered=reused and not self._last,
        )
        self._connected.set()

    # -- the request

    async def _pump(self, session: aiohttp.ClientSession, body: bytes) -> None:
        import aiohttp

        client = self._client
        headers = [
            *client._headers,
            (REQUEST_ID, self._recorder.identity.request_id.encode("ascii", "replace").decode()),
        ]
        data = io.BytesIO(body) if len(body) > _LARGE_BODY else body
        try:
            response = await session.post(
                client._url, data=data, headers=headers, allow_redirects=False, trace_request_ctx=self
            )
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, TimeoutError, OSError) as error:
            self._no_response(error)
            return
        finally:
            self._connected.set()
        await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        import aiohttp

        exchange = self._exchange
        assert exchange is not None
        ns = self._now()
        names = {name.lower(): value for name, value in response.headers.items()}
        if response.status == 101:
            exchange.lost(ns, "unparsable: the server switched protocols", any_byte=True)
            response.close()
            return
        exchange.headers(ns, response.status, names)
        framed = "content-length" in names or "chunked" in names.get("transfer-encoding", "").lower()
        try:
            while data := await response.content.readany():
                since_ns = self._stamp_ns
                exchange.body(data, self._now(), since_ns, False)
            exchange.complete(self._now(), framed=framed)
        except aiohttp.ClientPayloadError as error:
            cause = error.__cause__
            broken = isinstance(cause, aiohttp.http_exceptions.TransferEncodingError) and _SHORT not in str(cause)
            words = f"unparsable: not HTTP/1.1: {cause}" if broken else "the server closed the connection"
            exchange.lost(self._now(), words, any_byte=True)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            exchange.lost(self._now(), _words(error), any_byte=True)
        finally:
            response.close() if exchange.over and not exchange.reusable else response.release()

    def _now(self) -> int:
        """A stamp: the clock now, for bytes that were just handed over."""
        self._stamp_ns = max(self._clock.monotonic_ns(), self._stamp_ns)
        return self._stamp_ns

    def _no_response(self, error: Exception) -> None:
        """The request ended before there were a status and headers."""
        import aiohttp

        ns, exchange = self._now(), self._exchange
        if exchange is None:
            self._no_connection(error, ns)
        elif isinstance(error, aiohttp.ClientResponseError | aiohttp.http_exceptions.HttpProcessingError):
            limit = self._client._limits.headers
            long = any(words in str(error) for words in _TOO_LONG)
            words = f"response headers longer than {limit} bytes" if long else f"not HTTP/1.1: {_words(error)}"
            exchange.lost(ns, "unparsable: " + words, any_byte=True)
        else:
            partial = isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
            exchange.lost(ns, _words(error), any_byte=partial)

    def _no_connection(self, error: Exception, ns: int) -> None:
        import aiohttp

        recorder, timeouts = self._recorder, self._client._timeouts
        if recorder.connect_start_ns is None:
            recorder.connect_start_ns = self._started_ns
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientConnectorError):
            limit = min(filter(None, (timeouts.connect_ns, timeouts.total_ns)), default=0)
            words = f"client timeout: no connection after {format_duration(limit)}"
            recorder.fail(Outcome.TIMEOUT, words, ns=ns, kind="connect")
            return
        cause: BaseException = error
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            cause = error.certificate_error
        elif isinstance(error, aiohttp.ClientConnectorError):
            cause = error.os_error
        if isinstance(cause, ConnectionResetError) and cause.errno is None:
            cause = ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
        if isinstance(cause, TimeoutError):
            recorder.fail(Outcome.ERROR_CONNECT, f"cannot connect: {cause.strerror}", ns=ns, kind="unreachable")
        else:
            words, kind = explain_connect_error(cause if isinstance(cause, OSError) else OSError(str(error)))
            recorder.fail(Outcome.ERROR_CONNECT, words, ns=ns, kind=kind)


def _traced(name: str) -> Any:
    async def told(session: object, context: Any, parameters: object) -> None:
        getattr(context.trace_request_ctx, name)()

    return told


def _resolver(addresses: list[tuple[socket.AddressFamily, tuple[object, ...]]]) -> Any:
    """A resolver that knows the endpoint alone: its name was looked up once, for the whole run."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Known(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            return [
                ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=0, flags=0)
                for kind, address in addresses
            ]

        async def close(self) -> None:
            pass

    return Known()


def _words(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (
        f"the connection broke: {text}"
        if text and "disconnected" not in text.lower()
        else "the server closed the connection"
    )
