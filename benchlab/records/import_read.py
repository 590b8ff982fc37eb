"""A foreign result file, read with suspicion: every value is asked for by name and kind, and a fault names its place.

The one idea: an importer writes down what it wants; whatever else stands in the file ends as one error of file, place
and next step. It must not know any tool.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchlab.errors import UsageError
from benchlab.records.event import Outcome

_HINT = "is it the file as the tool wrote it? `benchlab import --help` says which file of which tool is meant"
_MOST_S = 1e9
"""Seconds that a duration may last: thirty years; beyond it something else is meant."""
_MOST_BYTES = 4 << 30
NS = 1_000_000_000


def fault(path: Path, place: str, what: str, hint: str = _HINT) -> UsageError:
    """The one shape of a fault in a foreign file."""
    return UsageError(f"{place}: {what}" if place else what, where=str(path), hint=hint)


class Node:
    """A value of the file with the place it stands at: `benchmarks[0].requests`."""

    __slots__ = ("path", "place", "value")

    def __init__(self, path: Path, place: str, value: Any) -> None:
        self.path, self.place, self.value = path, place, value

    def has(self, key: str) -> bool:
        """True where it is an object with this key and something in it."""
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def at(self, key: str) -> Node:
        """A member of an object. Raises UsageError where there is none."""
        if not isinstance(self.value, dict):
            raise self.bad("is no object")
        if key not in self.value:
            raise self.bad(f"has no '{key}'")
        return Node(self.path, f"{self.place}.{key}" if self.place else key, self.value[key])

    def items(self) -> list[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.bad("is no list")
        return [Node(self.path, f"{self.place}[{i}]", value) for i, value in enumerate(self.value)]

    def text(self, key: str) -> str | None:
        """A member as text, None where it is not there or null."""
        if not self.has(key):
            return None
        value = self.value[key]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

    def number(self, least: float = 0.0, most: float = _MOST_S * 1e3) -> float:
        """A finite number within bounds."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad("is no number")
        if not math.isfinite(value) or not least <= value <= most:
            raise self.bad(f"is {value!r}, and must lie between {least:g} and {most:g}")
        return float(value)

    def seconds(self) -> int:
        """A duration in seconds, as ns."""
        return round(self.number(most=_MOST_S) * NS)

    def instant(self) -> int:
        """An instant in seconds of some clock, as ns (to the float's own precision)."""
        return round(self.number(most=9 * _MOST_S) * NS)

    def whole(self, most: int = 2**53) -> int:
        """A count."""
        value = self.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self.bad(f"is no whole number from 0 to {most}")
        return value

    def ns(self) -> int:
        """An instant in ns of some clock."""
        return self.whole(2**62)

    def instant_ns(self, key: str) -> int | None:
        """A member as an instant in ns, None where it is not there or null."""
        return self.at(key).ns() if self.has(key) else None

    def count(self, key: str, most: int = 2**53) -> int | None:
        """A member as a count, None where it is not there or null."""
        return self.at(key).whole(most) if self.has(key) else None

    def rate(self) -> float | None:
        """Requests a second; None for `inf`, all at once."""
        return None if self.value in ("inf", math.inf) else self.number(least=1e-9)

    def numbers(self) -> list[float]:
        """A list of durations in seconds."""
        return [node.number(most=_MOST_S) for node in self.items()]

    def bad(self, what: str) -> UsageError:
        """The fault of this value."""
        return fault(self.path, self.place, what)


SQLITE = b"SQLite format 3\x00"
"""What such a database begins with."""


def read_document(path: Path) -> Any:
    """The file as JSON, or as a list of objects where it is JSON lines; `SQLITE` for a database of that kind.

    Raises UsageError naming the file, and the line where there are lines.
    """
    if path.is_dir():
        raise fault(path, "", "is a folder", "name the result file in it; `benchlab import --help` lists them")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise fault(path, "", "is larger than 4 GiB", "import a shorter run")
        data = path.read_bytes()
    except OSError as error:
        raise fault(path, "", f"cannot be read: {error.strerror or error}", "give the path of a result file") from error
    if data.startswith(SQLITE):
        return SQLITE
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fault(
            path, f"byte {error.start}", "is no UTF-8 text", "give the tool's JSON, not a table or picture"
        ) from error
    if not text.strip():
        raise fault(path, "", "is empty", "did the tool end before it wrote its result?")
    try:
        return parse(text)
    except RecursionError:
        raise fault(path, "", "is nested too deep", "give the file as the tool wrote it") from None
    except ValueError as error:
        whole = error
    return _lines(path, text, whole)


_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON writes half a character; a lone one can stand in no file of ours."""


def parse(text: str) -> Any:
    """JSON, its lone halves of characters replaced by '?'. Raises ValueError or RecursionError."""
    value = json.loads(text)
    return _whole(value) if _HALF.search(text) else value


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_whole(key): _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list) else value


def _lines(path: Path, text: str, whole: ValueError) -> list[Any]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    found: list[Any] = []
    for number, line in lines:
        try:
            found.append(parse(line))
        except (ValueError, RecursionError) as error:
            if number == lines[0][0]:
                why = f"is neither JSON nor JSON lines: {whole}"
                raise fault(path, "", why, "give the tool's JSON result; was it cut off?") from None
            raise fault(
                path, f"line {number}", f"is no JSON: {error}", "was the file cut off? drop that line"
            ) from None
    return found


def objects(path: Path, document: Any) -> list[Node]:
    """A document of JSON lines, or a single object as the only line, as nodes that name their line."""
    values = document if isinstance(document, list) else [document]
    return [Node(path, f"line {number}", value) for number, value in enumerate(values, 1)]


def rising(start_ns: int, steps: Iterator[float] | list[float], first_ns: int | None) -> list[int]:
    """Instants from a first one and the steps after it (s); empty where there is no first."""
    if first_ns is None:
        return []
    at, found = float(start_ns + first_ns), [start_ns + first_ns]
    for step in steps:
        at += step * NS
        found.append(round(at))
    return found


_WORDS: tuple[tuple[Outcome, str | None, tuple[str, ...]], ...] = (
    (Outcome.TIMEOUT, "total", ("timeout", "timed out")),
    (Outcome.CANCELLED, None, ("cancel",)),
    (Outcome.ERROR_CONNECT, "refused", ("connection refused", "cannot connect", "connecterror", "connect call failed")),
    (Outcome.INCOMPLETE, None, ("disconnected", "payload is not completed", "incomplete", "connection reset")),
)
_STATUSES = {
    "too many requests": 429,
    "service unavailable": 503,
    "bad request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not found": 404,
    "internal server error": 500,
    "bad gateway": 502,
    "gateway timeout": 504,
}


def ended(error: str | None, status: int | None = None) -> dict[str, Any]:
    """Outcome, status and kind of a request from what a tool kept of its error; ok where it kept none.

    Tools keep a sentence, not a kind: where it tells none, the outcome is error_protocol, and `unknown` says so.
    """
    if not error and (status is None or status < 400):
        return {"outcome": Outcome.OK}
    text = (error or "").lower()
    if status is None:
        status = next((code for words, code in _STATUSES.items() if words in text), None)
    if status is not None and status >= 400:
        kind = "limited" if status == 429 else "shed" if status in (503, 529) else None
        return {"outcome": Outcome.ERROR_HTTP, "http_status": status, "error_kind": kind}
    for outcome, kind, words in _WORDS:
        if any(word in text for word in words):
            return {"outcome": outcome, "error_kind": kind}
    return {"outcome": Outcome.ERROR_PROTOCOL, "error_kind": "not told"}
