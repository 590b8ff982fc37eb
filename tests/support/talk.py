"""Send requests with a client of benchlab and hand back what it recorded: the short way for tests of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from benchlab.clients.apis import make_dialect
from benchlab.clients.base import ByteLimits, Client, Timeouts
from benchlab.clients.endpoint import parse_endpoint
from benchlab.clients.stamps import Stamps
from benchlab.clients.transports import make_client
from benchlab.clock import Clock, SystemClock
from benchlab.records.event import VISIBLE, Kind
from benchlab.records.record import Identity, Record
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem
from tests.support.stub_server import Answers, StubServer

T = TypeVar("T")
TRANSPORT = "native"
"""What `client_for` uses where nothing else is asked for; a test module is run over both by its `transport` fixture."""
ITEM = WorkloadItem(id="i1", messages=[{"role": "user", "content": "hello"}], output_tokens=8)


@dataclass(frozen=True)
class Seen:
    """A record with what tests ask of it; times are seconds from `sent`."""

    record: Record
    text: str
    all_text: str

    @property
    def kinds(self) -> list[Kind]:
        return list(self.record.chunk_kind)

    @property
    def visible(self) -> list[float]:
        assert self.record.sent_ns is not None
        return [(ns - self.record.sent_ns) / NS_PER_S for ns in self.record.visible_ns()]

    @property
    def end(self) -> float:
        assert self.record.end_ns is not None and self.record.sent_ns is not None
        return (self.record.end_ns - self.record.sent_ns) / NS_PER_S

    @property
    def visible_slack_ns(self) -> list[int]:
        pairs = zip(self.record.chunk_slack_ns, self.record.chunk_kind, strict=True)
        return [slack for slack, kind in pairs if kind in VISIBLE]


@contextlib.asynccontextmanager
async def client_for(
    url: str,
    *,
    api: str = "chat",
    timeouts: Timeouts | None = None,
    limits: ByteLimits | None = None,
    clock: Clock | None = None,
    kernel: bool = True,
    tls: ssl.SSLContext | None = None,
    headers: dict[str, str] | None = None,
    transport: str | None = None,
) -> AsyncIterator[Any]:
    """A client over `transport` (default: `TRANSPORT`) that is closed at the end."""
    clock = clock or SystemClock()
    client = make_client(
        transport or TRANSPORT,
        parse_endpoint(url),
        make_dialect(api, "m"),
        clock=clock,
        headers=headers,
        timeouts=timeouts,
        limits=limits,
        stamps=Stamps(clock, kernel=kernel),
        tls=tls,
    )
    try:
        yield client
    finally:
        await client.close()


def new_recorder(name: str = "q0") -> Recorder:
    """A recorder of a request that is due now."""
    now = SystemClock().monotonic_ns()
    recorder = Recorder(Identity(name, 0, "i1", now), keep_text=True)
    recorder.dispatched_ns = now
    return recorder


def seen(recorder: Recorder) -> Seen:
    """What a recorder holds; its record must hold together."""
    record = recorder.record(0)
    assert record.audit() == []
    return Seen(record, recorder.text(), recorder.all_text())


async def send(client: Client, item: WorkloadItem = ITEM, name: str = "q0") -> Seen:
    """One request."""
    recorder = new_recorder(name)
    await client.stream(item, recorder)
    assert recorder.outcome is not None
    return seen(recorder)


def ask(answers: Answers, *, item: WorkloadItem = ITEM, **options: Any) -> Seen:
    """One request to a stub server with these answers, on a loop of its own."""
    return asyncio.run(_ask(answers, item, options))


async def _ask(answers: Answers, item: WorkloadItem, options: dict[str, Any]) -> Seen:
    async with StubServer(answers) as server, client_for(server.url, **options) as client:
        return await send(client, item)


def run(coroutine: Coroutine[Any, Any, T], *, uvloop: bool = False) -> T:
    """Run on asyncio's loop or on uvloop's."""
    if uvloop:
        import uvloop as library

        with asyncio.Runner(loop_factory=library.new_event_loop) as runner:
            return runner.run(coroutine)
    return asyncio.run(coroutine)
