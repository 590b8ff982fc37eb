"""Server-sent events, right for every split of the bytes. Source: the WHATWG HTML standard, section 9.2.

Works on bytes: framing first, decoding later, so a character cut in two by a read is no special case. Lines end at
LF, CR or CRLF and nothing else (a U+2028 inside JSON is text). A line that ended in CR is delivered at once; an LF
that opens the next read then belongs to it. Departure from the standard: a last event that the server did not close
with a blank line is delivered by `close`, because real servers end streams that way.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\r|\n")

Event = tuple[bytes, bytes]
"""(event name or b"", data with its lines joined by LF)"""


class EventTooLongError(ValueError):
    """An event longer than the limit; the message says so and names the limit."""


class SseParser:
    """Feed it reads, take events. `max_event_bytes` bounds memory: beyond it EventTooLongError is raised."""

    __slots__ = ("_after_cr", "_data", "_first", "_has_data", "_max", "_name", "_partial", "_size", "comments")

    def __init__(self, max_event_bytes: int = 8 * 2**20) -> None:
        self._max = max_event_bytes
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._size = 0
        self._after_cr = False
        self._first = True
        self.comments = 0

    @property
    def pending(self) -> bool:
        """Bytes of an event that is not complete yet are held."""
        return bool(self._partial or self._data)

    def feed(self, read: bytes) -> list[Event]:
        """The events that this read completes, in order."""
        if self._after_cr and read:
            self._after_cr = False
            if read[0] == 0x0A:
                read = read[1:]
        if not read:
            return []
        quick = None if self._partial or self._data or self._name else self._whole_events(read)
        return quick if quick is not None else self._by_line(read)

    def _by_line(self, read: bytes) -> list[Event]:
        """Any read at all, line by line."""
        if b"\r" in read:
            self._after_cr = read[-1] == 0x0D
            lines = _LINE_END.split(read)
        else:
            lines = read.split(b"\n")
        self._size += len(read)
        if len(lines) == 1:
            self._partial.append(read)
            self._check()
            return []
        if self._partial:
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial = []
        rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if line:
                self._field(line)
            else:
                self._first = False
                self._dispatch(events)
        if rest:
            self._partial.append(rest)
        self._size = len(rest) + sum(map(len, self._data))
        self._check()
        return events

    def _whole_events(self, read: bytes) -> list[Event] | None:
        """The usual read: whole events of one data line each. None where it is anything else."""
        if not read.endswith(b"\n\n") or not read.startswith(b"data: ") or b"\r" in read or len(read) > self._max:
            return None
        pieces = read[6:-2].split(b"\n\ndata: ")
        if read.count(b"\n") != 2 * len(pieces):  # some event has another line
            return None
        events = [(b"", piece) for piece in pieces]
        self._first = False
        self._size = 0
        return events

    def close(self) -> list[Event]:
        """The stream is over: an event that was not closed by a blank line is delivered now."""
        events: list[Event] = []
        if self._partial:
            self._field(b"".join(self._partial))
            self._partial = []
        self._dispatch(events)
        return events

    def _check(self) -> None:
        if self._size > self._max:
            raise EventTooLongError(f"event longer than {self._max} bytes")

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            if len(data) > self._max:  # whole within one read: the same limit, however the bytes were cut
                raise EventTooLongError(f"event longer than {self._max} bytes")
            events.append((self._name, data))
            self._data = []
        self._name = b""

    def _field(self, line: bytes) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b":"):
            self.comments += 1
        elif line.startswith(b"event:"):
            self._name = line[7:] if line[6:7] == b" " else line[6:]
        elif line == b"data":
            self._data.append(b"")
