"""The headers of every request, whichever transport sends it.

The one idea: the wire must not differ between transports, so what is sent and what cannot be sent is decided here.
It must not know sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from benchlab.clients.dialect import Dialect
from benchlab.clients.endpoint import Endpoint
from benchlab.errors import UsageError

REQUEST_ID = "X-Request-Id"
"""Comes last, with the id by which an engine's events are matched."""
_FORBIDDEN = ("\r", "\n", "\0")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RESERVED = ("content-length", "transfer-encoding", "connection", REQUEST_ID.lower())
"""Headers that only we can write: framing, and the request's id."""


def request_headers(endpoint: Endpoint, dialect: Dialect, headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """All but the length and the request's id, in order; the user's win over ours. Raises UsageError for one that
    cannot be sent, without its value, which may be a secret."""
    ours = {
        "Host": endpoint.authority,
        "Accept": "text/event-stream",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",  # a compressed stream has no event times
        "User-Agent": "benchlab",
        **dialect.headers,
    }
    theirs = {name.lower() for name in headers}
    pairs = [*((n, v) for n, v in ours.items() if n.lower() not in theirs), *headers.items()]
    for name, value in pairs:
        if any(letter in value for letter in _FORBIDDEN) or not _NAME.fullmatch(name) or name.lower() in _RESERVED:
            raise UsageError(f"the header '{name}' cannot be sent", where="-H", hint="write -H 'Name: value'")
    return pairs
