"""What a dialect must do: make a request body, and read events into a recorder. Knows no sockets and no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from benchlab.records.event import LIMITED_STATUSES, SHED_STATUSES, Kind, Outcome
from benchlab.records.recorder import Recorder
from benchlab.workload.item import WorkloadItem

MAX_MESSAGE = 500
"""Characters of an error text that are kept."""
UNTOLD = "not told"
"""The finish reason of an answer that is known to be whole although its API gave no reason; the record marks
`finish_reason` as unknown then."""
_MAX_COUNT = 2**31
"""No answer has that many tokens, and a larger number would not fit the records."""

_decode = msgspec.json.Decoder().decode


class Conversation(Protocol):
    """The reading side of one request."""

    complete: bool
    """The dialect's terminal event was seen (what follows on the wire is framing)."""

    def event(self, name: bytes, data: bytes, ns: int, slack_ns: int) -> None:
        """One server-sent event arrived at `ns`."""
        ...

    def plain_run(self, events: Sequence[tuple[bytes, bytes]], first: int, last: int, ns: int, slack_ns: int) -> int:
        """Takes events from `first` on, and before `last`, as `event` would, as long as it knows a quicker way for
        them; returns how many it took. Never needed for a right result."""
        return 0

    def whole(self, body: bytes, ns: int) -> None:
        """The answer was one body and no stream of events."""
        ...

    def ended(self, ns: int, *, framed: bool = True) -> None:
        """The message ended cleanly at `ns`. framed: its length was told, by chunks or a Content-Length; else it
        ended with its connection, which a cut looks like too."""
        ...


class Dialect(Protocol):
    """One API of an endpoint."""

    path: str
    model: str

    @property
    def headers(self) -> Mapping[str, str]:
        """What its requests carry unless the user gives them."""
        ...

    def body(self, item: WorkloadItem) -> bytes:
        """The request body for an item, JSON bytes."""
        ...

    def conversation(self, recorder: Recorder, item: WorkloadItem) -> Conversation:
        """A reader for one answer."""
        ...


class Bodies:
    """Request bodies made before time zero, by item. The item is kept beside its body, so that its id stays its own."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._kept: dict[int, tuple[WorkloadItem, bytes]] = {}

    def prepare(self, item: WorkloadItem) -> bytes:
        """The body of an item, made once."""
        kept = self._kept.get(id(item))
        if kept is None:
            kept = self._kept[id(item)] = (item, self._dialect.body(item))
        return kept[1]

    def get(self, item: WorkloadItem) -> bytes:
        """The body of an item; what was not prepared is made and not kept."""
        kept = self._kept.get(id(item))
        return kept[1] if kept is not None else self._dialect.body(item)


def http_error(recorder: Recorder, status: int, body: bytes, ns: int) -> None:
    """An answer with a status other than 2xx: refusals told apart from errors, the server's own words kept."""
    kind = "limited" if status in LIMITED_STATUSES else "shed" if status in SHED_STATUSES else None
    recorder.fail(Outcome.ERROR_HTTP, f"HTTP {status}: {message_of(body)}", ns=ns, kind=kind)


def read_event(recorder: Recorder, data: bytes, ns: int, slack_ns: int) -> dict[str, Any] | None:
    """The JSON object of an event; None where it is empty (a keep-alive, kept as such) or no object (a failure)."""
    if not data.strip():
        recorder.chunk(ns, Kind.EMPTY, slack_ns=slack_ns)
        return None
    return read_object(recorder, data, ns)


def read_object(recorder: Recorder, data: bytes, ns: int) -> dict[str, Any] | None:
    """The JSON object of an event; None with the recorder failed where it is none."""
    try:
        document = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        recorder.fail(Outcome.ERROR_PROTOCOL, f"an event is not JSON: {error}"[:MAX_MESSAGE], ns=ns, kind="json")
        return None
    if not isinstance(document, dict):
        recorder.fail(Outcome.ERROR_PROTOCOL, "an event holds no JSON object", ns=ns, kind="json")
        return None
    return document


def stream_error(recorder: Recorder, document: dict[str, Any], ns: int, slack_ns: int) -> None:
    """An error event inside a stream, whatever its form: the words and the code are kept."""
    error = document.get("error")
    detail = error if isinstance(error, dict) else document
    code = detail.get("code") or document.get("error_type") or detail.get("type")
    recorder.chunk(ns, Kind.ERROR, slack_ns=slack_ns)
    kind = str(code)[:64] if code is not None else None
    recorder.fail(Outcome.ERROR_STREAM, describe_error(document)[:MAX_MESSAGE], ns=ns, kind=kind)


def whole_body(recorder: Recorder, body: bytes, ns: int) -> None:
    """One body came where a stream was asked for: an error in any case, by its own words where it has some."""
    try:
        document = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        words = "HTML" if body.lstrip()[:1] == b"<" else "neither events nor JSON"
        recorder.fail(Outcome.ERROR_PROTOCOL, f"the server answered {words}", ns=ns, kind="body")
        return
    if isinstance(document, dict) and (
        document.get("error") or "error" in (document.get("object"), document.get("type"))
    ):
        stream_error(recorder, document, ns, 0)
        return
    words = "the server did not stream: it sent one JSON body, so no token has a time"
    recorder.fail(Outcome.ERROR_PROTOCOL, words, ns=ns, kind="not_streamed")


def count_of(numbers: object, key: str) -> int | None:
    """A count that a server tells; None where it is missing, no whole number, or beyond belief."""
    value = numbers.get(key) if isinstance(numbers, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT else None


def flat_prompt(item: WorkloadItem) -> str:
    """An item as one prompt: its own, or the texts of its messages with a blank line between them."""
    if item.prompt is not None:
        return item.prompt
    return "\n\n".join(str(message.get("content") or "") for message in item.messages or [])


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
