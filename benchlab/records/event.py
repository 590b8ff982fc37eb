"""The words of a stream: kinds of chunk and outcomes of a request (MEASUREMENT.md, "Events" and "Outcomes")."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What one event of the stream carried. All are kept; metrics use the visible ones."""

    CONTENT = "content"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    ROLE = "role"
    EMPTY = "empty"
    FINISH = "finish"
    USAGE = "usage"
    DONE = "done"
    ERROR = "error"

    __hash__ = str.__hash__  # as equal words must; an enum's own is a slow one of its name


VISIBLE = frozenset({Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL})
"""Kinds that a reader of the answer sees; their chunks carry nonempty text."""


class Outcome(StrEnum):
    """How a request ended: exactly one for each intended request, none is dropped."""

    OK = "ok"
    INCOMPLETE = "incomplete"
    ERROR_STREAM = "error_stream"
    ERROR_HTTP = "error_http"
    ERROR_CONNECT = "error_connect"
    ERROR_PROTOCOL = "error_protocol"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNFINISHED = "unfinished"
    NOT_SENT = "not_sent"


LIMITED_STATUSES = frozenset({429})
"""HTTP statuses that mean the caller's quota."""
SHED_STATUSES = frozenset({503, 529})
"""HTTP statuses that mean the server's capacity."""
