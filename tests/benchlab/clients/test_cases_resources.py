"""Faults that users met elsewhere, kind "resource limit": C70, C71, C73, C74. The client's own faults are named so."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchlab.records.event import Outcome
from tests.support.stub_server import DONE, FIN, USE, C, StubServer, sse
from tests.support.talk import Seen, client_for, run, send

TRANSPORTS = ("native", "aiohttp")
pytestmark = pytest.mark.usefixtures("transport")

ROOT = Path(__file__).parents[3]
GOOD = sse((0.0, C("a")), (0.01, FIN() + USE(3, 1) + DONE))

DESCRIPTORS = """
import asyncio, json, resource, sys
from tests.support.talk import *

async def main():
    async with client_for(f"127.0.0.1:{sys.argv[1]}") as client:
        await send(client)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        found = await asyncio.gather(*(send(client, name=f"q{i}") for i in range(80)))
    print(json.dumps([[s.record.outcome, s.record.error_kind, s.record.error, s.record.sent_ns] for s in found]))

asyncio.run(main())
"""

PORTS = """
import asyncio, json, pathlib, subprocess
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40019")
from tests.support.stub_server import *
from tests.support.talk import *


async def main():
    async with StubServer(sse((0.5, C("a") + FIN() + DONE)), port=8123) as server:
        async with client_for(server.url) as client:
            found = await asyncio.gather(*(send(client, name=f"q{i}") for i in range(30)))
            found += [await send(client) for _ in range(3)]
    print(json.dumps([[s.record.outcome, s.record.error_kind, s.record.error, s.record.sent_ns] for s in found]))

asyncio.run(main())
"""


def in_a_process(program: str, *arguments: str, prefix: tuple[str, ...] = ()) -> list[list[object]]:
    argv = [*prefix, sys.executable, "-c", program, *arguments]
    done = subprocess.run(argv, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[list[object]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_C70_no_file_descriptors() -> None:
    argv = [sys.executable, "-m", "tests.support.stub_server", "--scenario", "slow"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            found = in_a_process(DESCRIPTORS, server.stdout.readline().split()[1])
        finally:
            server.kill()
    assert len(found) == 80
    failed = [row for row in found if row[0] == Outcome.ERROR_CONNECT]
    assert failed
    assert sum(row[0] == Outcome.OK for row in found) == 80 - len(failed) > 0
    for _, kind, words, sent in failed:
        assert (kind, sent) == ("client", None)
        assert isinstance(words, str) and "file descriptors" in words


def can_unshare() -> bool:
    if not (sys.platform == "linux" and shutil.which("unshare") and shutil.which("ip")):
        return False
    return subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs `unshare -rn` and `ip`")
def test_C71_no_local_ports() -> None:
    found = in_a_process(PORTS, prefix=("unshare", "-rn"))
    first, again = found[:30], found[30:]
    failed = [row for row in first if row[0] != Outcome.OK]
    assert len(failed) == 10
    for outcome, kind, words, sent in failed:
        assert (outcome, kind, sent) == (Outcome.ERROR_CONNECT, "client", None)
        assert isinstance(words, str) and "local ports" in words
    assert all(row[0] == Outcome.OK for row in again)  # kept connections need no new port


@pytest.mark.parametrize("uvloop", [False, True])
class TestC73:
    """The stream says that it is done before its HTTP message is over."""

    def test_terminator_in_a_later_write(self, uvloop: bool) -> None:
        script = sse((0.0, C("a")), (0.01, FIN() + USE(3, 1) + DONE), end_at=0.015)

        async def go() -> tuple[list[Seen], int, int]:
            async with StubServer(script) as server, client_for(server.url) as client:
                return [await send(client) for _ in range(10)], server.accepts, client.counts.connections

        found, accepts, connections = run(go(), uvloop=uvloop)
        assert all(one.record.outcome is Outcome.OK for one in found)
        assert (accepts, connections) == (1, 1)
        assert [one.record.connect_start_ns is None for one in found] == [False] + [True] * 9

    def test_terminator_never_comes(self, uvloop: bool) -> None:
        script = sse((0.0, C("a")), (0.01, FIN() + USE(3, 1) + DONE), terminator=False, then="hang")

        async def go() -> tuple[list[Seen], int]:
            async with StubServer(script) as server, client_for(server.url) as client:
                return [await send(client) for _ in range(3)], server.accepts

        found, accepts = run(go(), uvloop=uvloop)
        assert accepts == 3
        for one in found:
            assert one.record.outcome is Outcome.OK
            assert one.end < 0.2  # the end is when all was said, not when we gave up waiting
            assert one.record.retries == 0


class TestC74:
    """The server closes idle connections, perhaps in the very moment of a reuse."""

    def test_idle_close_between_turns(self) -> None:
        async def session(client: object, number: int) -> list[Seen]:
            found = []
            for turn in range(4):
                found.append(await send(client, name=f"s{number}-{turn}"))  # type: ignore[arg-type]
                await asyncio.sleep(0.06)
            return found

        async def go() -> list[list[Seen]]:
            async with StubServer(GOOD, idle_close_s=0.06) as server, client_for(server.url) as client:
                return await asyncio.gather(*(session(client, number) for number in range(20)))

        records = [one.record for turns in run(go()) for one in turns]
        assert len(records) == 80
        assert all(record.outcome is Outcome.OK for record in records)
        assert all(record.retries <= 1 for record in records)

    @pytest.mark.parametrize("then", ["close", "reset"])
    def test_kept_connection_dies_under_the_request(self, then: str) -> None:
        """The first request of a connection is served, the next one is read and the connection dropped."""
        dropped = sse(then=then, head_at=0.05)  # type: ignore[arg-type]
        dropped = type(dropped)((), then=then)  # type: ignore[arg-type]

        async def go() -> tuple[Seen, int, int]:
            async with StubServer([GOOD, dropped, GOOD]) as server, client_for(server.url) as client:
                await send(client)
                second = await send(client)
                return second, server.accepts, client.counts.retries

        second, accepts, retries = run(go())
        assert (second.record.outcome, second.record.retries, accepts, retries) == (Outcome.OK, 1, 2, 1)
        sent, connected = second.record.sent_ns, second.record.connect_end_ns
        assert sent is not None and connected is not None
        assert sent < connected  # the clock runs from the first attempt

    def test_a_retry_takes_a_fresh_connection(self) -> None:
        """Two kept connections, both dead: one retry, not two."""
        dropped = type(GOOD)((), then="close")

        async def go() -> tuple[Seen, int]:
            async with StubServer([GOOD, GOOD, dropped, GOOD]) as server, client_for(server.url) as client:
                await asyncio.gather(send(client), send(client))
                return await send(client), server.accepts

        third, accepts = run(go())
        assert (third.record.outcome, third.record.retries, accepts) == (Outcome.OK, 1, 3)

    def test_a_fresh_connection_is_not_retried(self) -> None:
        async def go() -> tuple[Seen, int]:
            async with StubServer(type(GOOD)((), then="close")) as server, client_for(server.url) as client:
                return await send(client), server.accepts

        one, accepts = run(go())
        assert (one.record.outcome, one.record.retries, accepts) == (Outcome.INCOMPLETE, 0, 1)

    def test_an_answer_that_began_is_not_retried(self) -> None:
        cut = sse((0.0, C("a")), terminator=False, then="close")

        async def go() -> tuple[Seen, int]:
            async with StubServer([GOOD, cut]) as server, client_for(server.url) as client:
                await send(client)
                return await send(client), len(server.requests)

        one, requests = run(go())
        assert (one.record.outcome, one.record.retries, requests) == (Outcome.INCOMPLETE, 0, 2)
