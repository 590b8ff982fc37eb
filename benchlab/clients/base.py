"""The seam: a client has one method, and what it sees goes into a Recorder.

When `stream` returns, the recorder has an outcome. When it is cancelled (drain over, scenario abandons the request),
it closes its connection and leaves the outcome to whoever cancelled it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The client's own limits, ns, None for no limit. Each has its own name in the record's `error_kind`."""

    connect_ns: int | None = 10 * NS_PER_S
    first_content_ns: int | None = None
    gap_ns: int | None = None
    total_ns: int | None = 120 * NS_PER_S


@dataclass(frozen=True, slots=True)
class ByteLimits:
    """Bounds on what a server may send, bytes."""

    event: int = 8 * 2**20
    response: int = 256 * 2**20
    headers: int = 256 * 2**10


@dataclass(slots=True)
class ClientCounts:
    """What the transport did, for the certificate of a run."""

    connections: int = 0
    retries: int = 0
    events: int = 0
    merged_events: int = 0
    """Events that shared a read with a later one: their time is only known within their slack."""


class Client(Protocol):
    """One endpoint, spoken to in one dialect."""

    counts: ClientCounts

    async def stream(self, item: WorkloadItem, recorder: Recorder) -> None:
        """Send one item, put everything that happens into `recorder`, return when it has an outcome."""
        ...

    async def close(self) -> None:
        """Close idle connections."""
        ...
