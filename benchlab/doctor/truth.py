"""What really happened, as the paced server saw it: when it wrote each event, on the clock that the client uses too.

The one idea: a stamp can only be judged against a log that the client had no part in. One entry a request: its id,
when it had been read whole, and for each content event the monotonic ns just before and just after its write. The
packet of an event was received (loopback delivers inside the write) between the two. It must not know records,
clients or percentiles.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchlab.errors import UsageError

_HEAD = struct.Struct("<4sIq64s")
_MAGIC = b"BLT1"


@dataclass(slots=True)
class Written:
    """One answered request: `received_ns` (its last byte was read), and per content event before and after its write.

    All on the monotonic clock of this host. An answer that the client broke off has the events that were written.
    """

    request_id: str
    received_ns: int
    before_ns: array[int] = field(default_factory=lambda: array("q"))
    after_ns: array[int] = field(default_factory=lambda: array("q"))


def write(file: IO[bytes], entries: list[Written]) -> None:
    """Append entries to a log."""
    for entry in entries:
        name = entry.request_id.encode("latin-1", "replace")[:64]
        file.write(_HEAD.pack(_MAGIC, len(entry.before_ns), entry.received_ns, name))
        file.write(entry.before_ns.tobytes())
        file.write(entry.after_ns.tobytes())


def read(path: Path) -> dict[str, Written]:
    """A log by request id. Raises UsageError for a file that is none."""
    try:
        return {entry.request_id: entry for entry in _entries(path.read_bytes(), str(path))}
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _entries(data: bytes, where: str) -> Iterator[Written]:
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data) or data[at : at + 4] != _MAGIC:
            raise UsageError("is no log of the paced server, or cut short", where=where)
        _, number, received, name = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        times = array("q")
        if at + 16 * number > len(data):
            raise UsageError("is no log of the paced server, or cut short", where=where)
        times.frombytes(data[at : at + 16 * number])
        at += 16 * number
        yield Written(name.rstrip(b"\0").decode("latin-1"), received, times[:number], times[number:])
