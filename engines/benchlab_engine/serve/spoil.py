"""An outlet that misbehaves on request, for those who test a client against this server.

The one idea: the same events pass through a queue, where a fault holds, breaks or bends them; answers need not know.
It must not know what an event says.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from array import array
from collections.abc import Callable

from benchlab_engine.serve.fields import WireError
from benchlab_engine.serve.outlet import Outlet
from benchlab_engine.sim.faults import Fault


class CutError(Exception):
    """The connection was cut on purpose."""


class SpoiledOutlet(Outlet):
    """An outlet with a fault."""

    def __init__(self, fault: Fault, clock: Callable[[], int], max_bytes: int, max_tokens: int,
                 on_slow: Callable[[], None]) -> None:  # fmt: skip
        super().__init__(clock, max_bytes, max_tokens, on_slow)
        self._fault = fault
        self._queue: asyncio.Queue[tuple[str, array[int] | None] | None] = asyncio.Queue()
        self._count = 0
        self._ending = False
        self._held: list[str] = []

    def send(self, event: str) -> None:
        """Put into the queue; after the end, hand over at once."""
        if self._ending:
            super().send(event)
        else:
            self._queue.put_nowait((event, None))

    def token(self, event: str, written: array[int]) -> None:
        """Put into the queue."""
        self._queue.put_nowait((event, written))

    async def run(self, done: asyncio.Future[None]) -> None:
        """Pass on what comes, spoiled. WireError or CutError where the fault says so."""
        done.add_done_callback(lambda _: self._queue.put_nowait(None))
        try:
            while (item := await self._next()) is not None:
                event, written = item
                if written is not None:
                    await self._before_token()
                await self._pass(event, is_token=written is not None)
                if written is not None:
                    written.append(self._clock())
        finally:
            self._release()
            self._ending = True

    async def _next(self) -> tuple[str, array[int] | None] | None:
        """What comes next; a comment line for each silence of the length that the fault names."""
        if not self._fault.keepalive_ns:
            return await self._queue.get()
        while True:
            try:
                return await asyncio.wait_for(self._queue.get(), self._fault.keepalive_ns / 1e9)
            except TimeoutError:
                Outlet.send(self, ": keep-alive\n\n")

    async def _before_token(self) -> None:
        fault = self._fault
        self._count += 1
        if fault.stall_at == self._count:
            await asyncio.sleep(fault.stall_ns / 1e9)
        if fault.reset_at == self._count:
            self._reset()
            raise CutError
        if fault.garbage_at == self._count:
            Outlet.send(self, "<html>this is no event\r\n\r\ndata: {not json\n\n")
        if fault.error_at == self._count:
            raise WireError(500, "fault asked for", "fault")

    async def _pass(self, event: str, is_token: bool) -> None:
        fault = self._fault
        if fault.burst and is_token:
            self._held.append(event)
            if len(self._held) >= fault.burst:
                self._release()
            return
        self._release()
        if not fault.drip_ns and not fault.split:
            Outlet.send(self, event)
            return
        for character in event:
            Outlet.send(self, character)
            await asyncio.sleep(fault.drip_ns / 1e9)

    def _release(self) -> None:
        """What was held back goes out in one write."""
        held, self._held = "".join(self._held), []
        Outlet.send(self, held)

    def _reset(self) -> None:
        """Cut the connection so that the client sees a reset, not an orderly end."""
        transport = self._transport
        if transport is None:
            return
        number = transport.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(number)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
