"""A server that misbehaves at random in every way it knows: each request ends in exactly one outcome, the one that its
fault means, and the totals agree with the server's own log.

Every request asks for a fault of its own, drawn from a seed, over the same kept connections as the others.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchlab.clients.apis import make_dialect
from benchlab.clients.base import ClientCounts, Timeouts
from benchlab.clients.endpoint import parse_endpoint
from benchlab.clients.native import NativeClient
from benchlab.clients.portable import PortableClient
from benchlab.clients.stamps import Stamps
from benchlab.loadgen.abandon import TAG
from benchlab.records.event import VISIBLE, Outcome
from benchlab.records.record import Record
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem
from tests.benchlab.loadgen.fake_client import CLOCK, Driven, closed_job, drive, open_job
from tests.running import paced_engine

TOKENS = 6
GAP_LIMIT_S = 3
STALL = "stall=30s@4"
"""Far longer than the client's limit on gaps."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a fault must end as. visible: content chunks that the client sees, None: any number. output: tokens that
    the record tells, None: not looked at. reaches: the request comes as far as the engine."""

    outcome: Outcome
    kind: str | None = None
    visible: int | None = None
    output: int | None = None
    reaches: bool = True


WHOLE = Expected(Outcome.OK, None, TOKENS, TOKENS)
FAULTS = {
    "": WHOLE,
    "stall=60ms@3": WHOLE,
    STALL: Expected(Outcome.TIMEOUT, "gap", 3),
    "reset@4": Expected(Outcome.INCOMPLETE, "closed"),
    "reset@1": Expected(Outcome.INCOMPLETE, "closed", 0),
    "error@4": Expected(Outcome.ERROR_STREAM, "fault", 3),
    "error@1": Expected(Outcome.ERROR_STREAM, "fault", 0),
    "garbage@3": Expected(Outcome.ERROR_PROTOCOL, "json", 2),
    "drip=1ms": WHOLE,
    "split": WHOLE,
    "burst=4": WHOLE,
    "merge=4": Expected(Outcome.OK, None, 2, TOKENS),
    "keepalive=2ms": WHOLE,
    "role-early": WHOLE,
    "usage=+7": Expected(Outcome.OK, None, TOKENS, TOKENS + 7),
    "no-usage": Expected(Outcome.OK, None, TOKENS, TOKENS),
    "usage-every": WHOLE,
    "slow-start=40ms": WHOLE,
    "no-finish": Expected(Outcome.INCOMPLETE, None, TOKENS),
    "no-done": WHOLE,
    "no-usage,no-done": Expected(Outcome.OK, None, TOKENS, TOKENS),
    "split,merge=3,usage-every": Expected(Outcome.OK, None, 2, TOKENS),
    "keepalive=1ms,stall=30ms@2,reset@5": Expected(Outcome.INCOMPLETE, "closed"),
    "status=429": Expected(Outcome.ERROR_HTTP, "limited", 0, reaches=False),
    "status=503": Expected(Outcome.ERROR_HTTP, "shed", 0, reaches=False),
    "status=500": Expected(Outcome.ERROR_HTTP, None, 0, reaches=False),
    "no such fault": Expected(Outcome.ERROR_HTTP, None, 0, reaches=False),
}
ABANDONED = Expected(Outcome.CANCELLED, "abandoned", 2)
"""Of a request that its user gives up at two tokens, where the server holds the third back."""
GIVEN_UP = "stall=2s@3"

_asked: ContextVar[str] = ContextVar("asked", default="")


def _header(words: str) -> list[tuple[str, str]]:
    return [("x-benchlab-fault", words)] if words else []


class AskingNative(NativeClient):
    """The native client; a request's head names the fault that its item has as its first tag."""

    _plain = b""

    @property
    def _head(self) -> bytes:
        line = b"".join(f"\r\n{name}: {value}".encode() for name, value in _header(_asked.get()))
        return self._plain.replace(b" HTTP/1.1", b" HTTP/1.1" + line, 1)

    @_head.setter
    def _head(self, head: bytes) -> None:
        self._plain = head


class AskingPortable(PortableClient):
    """The same over aiohttp."""

    _plain: tuple[tuple[str, str], ...] = ()

    @property
    def _headers(self) -> list[tuple[str, str]]:
        return [*self._plain, *_header(_asked.get())]

    @_headers.setter
    def _headers(self, headers: list[tuple[str, str]]) -> None:
        self._plain = tuple(headers)


class AskingClient:
    """Made at the first request, since a client belongs to a running loop. Only requests whose fault is a stall have
    the limit on gaps: on a busy host a dripping answer may be slower than any limit that a test can wait for."""

    def __init__(self, url: str, transport: str) -> None:
        self._url, self._transport = url, transport
        self._clients: list[AskingNative | AskingPortable] = []
        self.counts = ClientCounts()

    async def stream(self, item: WorkloadItem, recorder: Recorder) -> None:
        if not self._clients:
            self._clients = [self._make(None), self._make(GAP_LIMIT_S * NS_PER_S)]
        _asked.set(item.tags[0])  # this task's own
        await self._clients[item.tags[0] == STALL].stream(item, recorder)

    def _make(self, gap_ns: int | None) -> AskingNative | AskingPortable:
        endpoint, dialect = parse_endpoint(self._url), make_dialect("chat", "tiny", {})
        timeouts = Timeouts(gap_ns=gap_ns, total_ns=90 * NS_PER_S)
        client: AskingNative | AskingPortable
        if self._transport == "native":
            client = AskingNative(endpoint, dialect, clock=CLOCK, timeouts=timeouts, stamps=Stamps(CLOCK))
        else:
            client = AskingPortable(endpoint, dialect, clock=CLOCK, timeouts=timeouts)
        client.counts = self.counts
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


def items(seed: int, count: int) -> list[WorkloadItem]:
    """Requests with a fault each; every fault is among the first ones."""
    chance = Random(seed)
    words = [*FAULTS, GIVEN_UP]
    while len(words) < count:
        words.append(chance.choice([*FAULTS, GIVEN_UP]))
    chance.shuffle(words)
    more = {GIVEN_UP: (f"{TAG}tokens=2",)}
    return [
        WorkloadItem(id=f"m{n}", prompt="one two three", output_tokens=TOKENS, tags=(word, *more.get(word, ())))
        for n, word in enumerate(words)
    ]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def totals(page: str, name: str) -> dict[str, float]:
    """Values of one of the engine's counters by its last label."""
    found = re.findall(rf"^benchlab:{name}{{(.*)}} (\S+)$", page, re.MULTILINE)
    return {re.findall(r'"([^"]*)"', labels)[-1]: float(value) for labels, value in found}


def check_each(records: list[Record]) -> None:
    """Every record is what its fault means."""
    wrong = []
    for record in records:
        fault = record.tags[0]
        expected = ABANDONED if fault == GIVEN_UP else FAULTS[fault]
        visible = len(record.visible_ns())
        found = (record.outcome, record.error_kind)
        fits = (
            found == (expected.outcome, expected.kind)
            and expected.visible in (None, visible)
            and expected.output in (None, record.output_tokens)
        )
        if not fits:
            wrong.append((fault, *found, visible, record.output_tokens, record.error))
    assert not wrong, Counter(wrong)


def check_stamps(records: list[Record], transport: str) -> None:
    """Whatever became of an answer, its record says where the times of its chunks are from."""
    kernel = transport == "native" and sys.platform == "linux"
    assert {r.stamp_source for r in records if r.chunk_ns} == {"kernel" if kernel else "callback"}


def check_with_the_server(url: str, records: list[Record], kept: int) -> None:
    """The server's own counts and times agree with the records. kept: how many ended requests it remembers."""
    page = get(f"{url}/metrics")
    ends = totals(page, "request_success_total")
    reached = [r for r in records if r.tags[0] == GIVEN_UP or FAULTS[r.tags[0]].reaches]
    sent = sum(1 + record.retries for record in reached)
    assert sum(ends.values()) == sent, (ends, sent)
    assert not totals(page, "requests_refused_total")
    assert set(ends) <= {"length", "cancelled"}
    log: dict[str, dict[str, Any]] = {row["request_id"]: row for row in json.loads(get(f"{url}/timeline"))["requests"]}
    assert len(log) == min(kept, len(reached))
    by_id = {record.request_id: record for record in records}
    for name, row in log.items():
        record = by_id[name]
        seen = sum(kind in VISIBLE for kind in record.chunk_kind)
        assert FAULTS.get(record.tags[0], ABANDONED).reaches
        assert seen <= len(row["token_written"]) <= TOKENS
        if record.outcome is Outcome.OK:
            assert row["finish_reason"] == "length" and row["output_tokens"] == TOKENS
            assert len(row["token_written"]) == seen
            assert record.prompt_tokens in (None, row["prompt_tokens"])


def check_all(url: str, done: Driven, count: int, kept: int = 20_000) -> None:
    """Nothing is lost, nothing is counted twice, each is what it should be, and the server says the same."""
    assert len(done.records) == count == done.report.requests == done.counts.dispatched
    assert sorted(int(r.request_id[3:]) for r in done.records) == list(range(count))
    assert done.counts.ok + done.counts.failed == count - done.outcomes()["cancelled"]
    assert done.counts.inflight == done.counts.held == 0
    assert done.report.retries == sum(record.retries for record in done.records)
    check_each(done.records)
    check_with_the_server(url, done.records, kept)


@pytest.mark.parametrize("transport", ["native", "aiohttp"])
def test_every_fault_ends_as_what_it_is(tmp_path: Path, transport: str) -> None:
    work = items(seed=5, count=120)

    with paced_engine("ttft=4ms,itl=2ms", "--max-seqs", "256") as url:
        client = AskingClient(url, transport)
        (done,) = drive(tmp_path, client, closed_job(24, count=len(work)), items=work)  # type: ignore[arg-type]

        check_all(url, done, len(work))
        check_stamps(done.records, transport)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_soak_of_faults_behind_a_cap_loses_nothing(tmp_path: Path, seed: int) -> None:
    work = items(seed, count=4000)
    times = [n / 160 for n in range(len(work))]

    with paced_engine("ttft=4ms,itl=2ms", "--max-seqs", "256") as url:
        job = open_job(times, max_inflight=32, held_in_drain=True, drain_ns=120 * NS_PER_S)
        (done,) = drive(tmp_path, AskingClient(url, "native"), job, items=work)  # type: ignore[arg-type]

        check_all(url, done, len(work))
        assert done.report.peak_inflight == 32 and done.report.held > 0
