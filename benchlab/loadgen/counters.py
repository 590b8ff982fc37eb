"""Live counters of a worker in shared memory (a mapped file): the parent looks, nobody sends anything."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_FIELDS = struct.Struct("9q")


@dataclass(slots=True)
class Counts:
    """What a progress line needs. `ttft_us` is the last time to first token, microseconds, -1 if none yet; `events`
    counts events of streams, those under way among them."""

    stage: int = -1
    dispatched: int = 0
    inflight: int = 0
    held: int = 0
    ok: int = 0
    failed: int = 0
    tokens: int = 0
    ttft_us: int = -1
    events: int = 0

    def values(self) -> tuple[int, ...]:
        return (
            self.stage,
            self.dispatched,
            self.inflight,
            self.held,
            self.ok,
            self.failed,
            self.tokens,
            self.ttft_us,
            self.events,
        )


class CounterPage:
    """One worker's page. The writer calls `put`, a reader `get`; a torn read shows at most one stale number."""

    def __init__(self, path: Path, *, create: bool) -> None:
        with path.open("w+b" if create else "r+b") as file:
            if create:
                file.write(_FIELDS.pack(*Counts().values()))
                file.flush()
            self._map = mmap.mmap(file.fileno(), _FIELDS.size)

    def put(self, counts: Counts) -> None:
        # one copy: `pack_into` would clear the page first, and a reader would see zeros
        self._map[:] = _FIELDS.pack(*counts.values())

    def get(self) -> Counts:
        return Counts(*_FIELDS.unpack_from(self._map, 0))

    def close(self) -> None:
        self._map.close()
