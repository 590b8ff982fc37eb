"""The engine's own times of a run's requests, fetched from `/timeline` when the load is over.

The one idea: durations are taken on the engine's clock alone. That clock is laid beside ours by one reading, taken in
the middle of a question and good to half its round trip: enough to ask only for this run's requests and to draw them.
It must not know records or metrics, and an engine without the page is no fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec

from benchlab.units import NS_PER_S

if TYPE_CHECKING:
    import httpx

MAX_BYTES = 2**28
"""Of the page: 20,000 requests of 200 tokens are about 130 MB. A longer one is not read, since its numbers would take
four times as much memory again."""
_ASK_S = 5.0
_WHOLE_S = 60.0
_NEVER = 2**63 - 1
_MARGIN_NS = NS_PER_S
"""Asked for from this long before the run began, by the engine's clock: rows of others are sorted out by their id."""

Instant = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class EngineRow(msgspec.Struct):
    """One request as the engine saw it, ns of its own clock; None or empty where it did not come to that."""

    request_id: str
    accepted: Instant | None = None
    queued: Instant | None = None
    admitted: Instant | None = None
    prefill_start: Instant | None = None
    prefill_end: Instant | None = None
    token_ready: list[Instant] = msgspec.field(default_factory=list)
    token_written: list[Instant] = msgspec.field(default_factory=list)
    blocks_freed: Instant | None = None
    released: Instant | None = None
    preempted: list[Instant] = msgspec.field(default_factory=list)
    resumed: list[Instant] = msgspec.field(default_factory=list)
    prompt_tokens: Instant | None = None
    cached_tokens: Instant | None = None
    output_tokens: Instant | None = None
    finish_reason: str | None = None


class _Page(msgspec.Struct):
    now_ns: Instant
    requests: list[EngineRow]


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """rows: by request id. engine_ns, ours_ns: the two clocks at one instant, to within error_ns.

    why: '' or why there are no rows.
    """

    rows: dict[str, EngineRow] = field(default_factory=dict)
    engine_ns: int = 0
    ours_ns: int = 0
    error_ns: int = 0
    why: str = ""


def fetch_timeline(
    base: str,
    *,
    headers: Mapping[str, str] | None = None,
    began_ns: int,
    now: Callable[[], int] = time.monotonic_ns,
) -> EngineTimes:
    """What the engine at `base` tells of the requests since `began_ns` (on the clock `now`). Never raises."""
    import httpx

    try:
        with httpx.Client(trust_env=False, timeout=_ASK_S, headers=dict(headers or {})) as client:
            asked = now()
            page = _page(client, base, _NEVER, _ASK_S)
            answered = now()
            ours, error = (asked + answered) // 2, (answered - asked + 1) // 2
            since = max(0, page.now_ns - (ours - began_ns) - error - _MARGIN_NS)
            rows = {row.request_id: row for row in _page(client, base, since, _WHOLE_S).requests}
    except (httpx.LocalProtocolError, UnicodeEncodeError):
        return EngineTimes(why="the engine's /timeline was not asked: a header cannot be sent")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error_:
        return EngineTimes(why=f"the engine's /timeline was not had: {type(error_).__name__}")
    except _NotToldError as error_:
        return EngineTimes(why=str(error_))
    return EngineTimes(rows, page.now_ns, ours, error, "" if rows else "the engine's /timeline holds no request of it")


class _NotToldError(Exception):
    """The page is not there, or is another's."""


def _page(client: httpx.Client, base: str, since_ns: int, limit_s: float) -> _Page:
    until = time.monotonic() + limit_s
    with client.stream("GET", f"{base}/timeline", params={"since": str(since_ns)}) as answer:
        if answer.status_code != 200:
            raise _NotToldError(f"the engine does not tell its own times (/timeline answered {answer.status_code})")
        body = bytearray()
        for part in answer.iter_bytes():
            body += part
            if len(body) > MAX_BYTES or time.monotonic() > until:
                raise _NotToldError(f"the engine's /timeline is too long: over {MAX_BYTES >> 20} MiB or {limit_s:g} s")
    try:
        return msgspec.json.decode(body, type=_Page)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = str(error).splitlines()[0][:120]
        raise _NotToldError(f"the engine does not tell its own times (/timeline is of another form: {said})") from error
