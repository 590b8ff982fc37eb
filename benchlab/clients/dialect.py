"""What a dialect must do: make a request body, and read events into a recorder. Knows no sockets and no clock."""

from __future__ import annotations

from typing import Protocol

import msgspec

from benchlab.records.event import LIMITED_STATUSES, SHED_STATUSES, Outcome
from benchlab.records.recorder import Recorder
from benchlab.workload.item import WorkloadItem

MAX_MESSAGE = 500
"""Characters of an error text that are kept."""


class Conversation(Protocol):
    """The reading side of one request."""

    def event(self, name: bytes, data: bytes, ns: int, slack_ns: int) -> None:
        """One server-sent event arrived at `ns`."""
        ...

    def whole(self, body: bytes, ns: int) -> None:
        """The answer was one body and no stream of events."""
        ...

    def ended(self, ns: int) -> None:
        """The message ended cleanly at `ns`."""
        ...

    @property
    def complete(self) -> bool:
        """The dialect's terminal event was seen (what follows on the wire is framing)."""
        ...


class Dialect(Protocol):
    """One API of an endpoint."""

    path: str

    def body(self, item: WorkloadItem) -> bytes:
        """The request body for an item, JSON bytes."""
        ...

    def conversation(self, recorder: Recorder, item: WorkloadItem) -> Conversation:
        """A reader for one answer."""
        ...


def http_error(recorder: Recorder, status: int, body: bytes, ns: int) -> None:
    """An answer with a status other than 2xx: refusals told apart from errors, the server's own words kept."""
    kind = "limited" if status in LIMITED_STATUSES else "shed" if status in SHED_STATUSES else None
    recorder.fail(Outcome.ERROR_HTTP, f"HTTP {status}: {message_of(body)}", ns=ns, kind=kind)


def message_of(body: bytes) -> str:
    """The human part of an error body in any of the forms that servers use; the first characters of it otherwise."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[: 4 * MAX_MESSAGE].decode("utf-8", "replace").strip()
        if text[:1] == "<":
            return "the server answered HTML, not JSON"
        return " ".join(text.split())[:MAX_MESSAGE] or "(empty body)"
    return describe_error(document)[:MAX_MESSAGE]


def describe_error(document: object) -> str:
    """The words of an error object, whether it says error.message, error, detail or message."""
    if isinstance(document, dict):
        for key in ("error", "detail", "message"):
            value = document.get(key)
            if value:
                words = describe_error(value)
                code = document.get("code") or document.get("type")
                return f"{words} ({code})" if key == "message" and isinstance(code, str | int) else words
    if isinstance(document, str):
        return " ".join(document.split())
    return msgspec.json.encode(document).decode()[:MAX_MESSAGE]
