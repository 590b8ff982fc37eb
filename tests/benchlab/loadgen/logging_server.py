"""An endpoint that streams and keeps its own log of who asked when and whose answer was whole: the witness against
which records are checked. It runs in a thread of the test's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from tests.support.stub_server import DELTA, DONE, FIN, USE, C, chunk, head


@dataclass(slots=True)
class LoggingServer:
    """Answers each request with `chunks` words, one every `gap_s`. Times are monotonic seconds."""

    gap_s: float = 0.02
    chunks: int = 8
    begun: dict[str, float] = field(default_factory=dict)
    whole: dict[str, float] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    repeated: int = 0
    """Requests whose id had been met before (a preflight excepted)."""
    port: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LoggingServer:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer nobody any more; more than once does no harm."""
        assert self._loop is not None and self._stop is not None and self._thread is not None
        with contextlib.suppress(RuntimeError):  # its loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._talk(reader, writer)
            tasks.discard(task)
            writer.transport.abort()

        server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if lines[0].startswith("GET"):
                document = json.dumps({"data": [{"id": "logged"}]}).encode()
                kept = {"Content-Type": "application/json", "Content-Length": str(len(document))}
                writer.write(head(chunked=False, headers=kept) + document)
                continue
            await self._answer(headers.get("x-request-id", ""), json.loads(body), writer)

    async def _answer(self, name: str, document: dict, writer: asyncio.StreamWriter) -> None:
        if name != "preflight":
            self.repeated += name in self.begun
            self.begun[name] = time.monotonic()
            self.prompts.append(document["messages"][-1]["content"])
        writer.write(head() + chunk(DELTA({"role": "assistant", "content": ""})))
        count = min(self.chunks, document.get("max_tokens") or document.get("max_completion_tokens") or self.chunks)
        for word in range(count):
            await asyncio.sleep(self.gap_s)
            writer.write(chunk(C(f" w{word}")))
            await writer.drain()
        writer.write(chunk(FIN("length") + USE(8, count) + DONE) + b"0\r\n\r\n")
        await writer.drain()
        if name != "preflight":
            self.whole[name] = time.monotonic()
