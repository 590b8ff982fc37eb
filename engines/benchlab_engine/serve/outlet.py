"""A response body on its way to the socket.

The one idea: an event is framed and handed to the transport where it is made, without a task of its own; what the
client leaves unread is bounded, and who leaves too much is told of. It must not know what an event says.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

from aiohttp import HttpVersion11, web

LINGER_S = 5.0  # how long the last bytes to a slow reader may take


class Outlet:
    """One stream. clock: ns. on_slow: called when more than max_bytes or max_tokens lie unread in this process."""

    def __init__(self, clock: Callable[[], int], max_bytes: int, max_tokens: int, on_slow: Callable[[], None]) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_tokens = max_tokens
        self._on_slow = on_slow
        self._unread = 0  # tokens handed over since the transport was last empty
        self._is_chunked = True
        self._transport: asyncio.Transport | None = None
        self._response: web.StreamResponse | None = None

    async def open(self, request: web.Request, request_id: str) -> None:
        """Send the head. ConnectionError if the client has gone."""
        response = web.StreamResponse(
            headers={
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "x-request-id": request_id,
            }
        )
        await response.prepare(request)
        if request.transport is None:
            raise ConnectionResetError("the client has gone")
        self._response, self._transport = response, request.transport
        self._is_chunked = request.version >= HttpVersion11

    def send(self, event: str) -> None:
        """Hand over ASCII text that is no token. The empty text is nothing."""
        transport = self._transport
        if not event or transport is None or transport.is_closing():
            return
        # aiohttp's own write is a coroutine that frames and joins the same way, at several times the cost.
        transport.write((f"{len(event):x}\r\n{event}\r\n" if self._is_chunked else event).encode("ascii"))

    def token(self, event: str, written: array[int]) -> None:
        """Hand over one token's event; its instant goes to `written`."""
        self.send(event)
        written.append(self._clock())
        assert self._transport is not None
        size = self._transport.get_write_buffer_size()
        if size < 4096:  # what was written in this turn of the loop may still stand there
            self._unread = 0
            return
        self._unread += 1
        if size > self._max_bytes or self._unread > self._max_tokens:
            self._on_slow()

    async def run(self, done: asyncio.Future[None]) -> None:
        """Return when the answer has ended and all of it is handed over."""
        await done

    async def close(self, *, is_slow: bool = False) -> web.StreamResponse:
        """End the body. is_slow: the client has a few seconds to read the rest, then the connection is cut."""
        assert self._response is not None
        cut = None
        if is_slow and self._transport is not None:
            self._response.force_close()
            cut = asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)
        try:
            await self._response.write_eof()
        finally:
            if cut is not None and self._transport is not None and not self._transport.get_write_buffer_size():
                cut.cancel()
        return self._response
