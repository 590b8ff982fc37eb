"""One request, whole: the row of `requests.parquet` (INTERFACES.md, "Run directory").

All `_ns` are int64 nanoseconds from the host's `t0` (manifest). None means that it did not happen or is not known;
`unknown` names the fields that the source of the record could not tell, so that a metric which needs them answers
with a Gap instead of a guess; of a record that another tool made, also parts of a field (`chunk_ns.last`, see
`import_base.PARTS`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchlab.records.event import VISIBLE, Kind, Outcome


@dataclass(slots=True)
class Identity:
    """Which request this is: what is known before anything is sent. A value (see `Record`)."""

    request_id: str
    stage: int
    item_id: str
    intended_ns: int
    session_id: str | None = None
    turn: int | None = None
    tenant: str | None = None
    tags: tuple[str, ...] = ()
    requested_tokens: int | None = None
    host: str = ""
    worker: int = 0


@dataclass(slots=True)
class Record:
    """One request and how it ended. `chunk_*` are parallel: one entry an event of the stream, in order of arrival.

    A value: nothing changes one. It is not frozen by name, because that makes it three times as dear to build, and a
    load generator builds one a request.
    """

    request_id: str
    stage: int
    item_id: str
    outcome: Outcome
    intended_ns: int
    dispatched_ns: int | None = None
    held_ns: int = 0
    connect_start_ns: int | None = None
    connect_end_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    chunk_ns: Sequence[int] = ()
    chunk_slack_ns: Sequence[int] = ()
    chunk_tokens: Sequence[int | None] = ()
    chunk_kind: Sequence[Kind] = ()
    end_ns: int | None = None
    stamp_source: str = "callback"
    http_status: int | None = None
    error: str | None = None
    error_kind: str | None = None
    """limited | shed for refusals; connect | first_content | gap | total for timeouts; client for the client's own
    faults (descriptors, ports); else a short word for the cause."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    tokens_source: str | None = None
    """usage | tokenizer | chunks (an estimate: one token a visible chunk) | None."""
    session_id: str | None = None
    turn: int | None = None
    tenant: str | None = None
    tags: tuple[str, ...] = ()
    requested_tokens: int | None = None
    host: str = ""
    worker: int = 0
    retries: int = 0
    """Times the request was sent again on a fresh connection because a kept one died before any response byte."""
    server_request_id: str | None = None
    unknown: tuple[str, ...] = field(default=())

    def visible_ns(self) -> list[int]:
        """Arrival of each chunk that carried text, ns from t0, in order."""
        return [ns for ns, kind in zip(self.chunk_ns, self.chunk_kind, strict=True) if kind in VISIBLE]

    def audit(self) -> list[str]:
        """What is impossible about this record, in words; empty when it holds together."""
        faults: list[str] = []
        n = len(self.chunk_ns)
        if not n == len(self.chunk_slack_ns) == len(self.chunk_tokens) == len(self.chunk_kind):
            faults.append("chunk lists differ in length")
        if any(b < a for a, b in itertools.pairwise(self.chunk_ns)):
            faults.append("a gap below zero")
        order = [self.intended_ns, self.dispatched_ns, self.sent_ns, self.headers_ns, self.end_ns]
        known = [ns for ns in order if ns is not None]
        if any(b < a for a, b in itertools.pairwise(known)):
            faults.append("times out of order: intended, dispatched, sent, headers, end")
        if n and self.sent_ns is not None and self.chunk_ns[0] < self.sent_ns:
            faults.append("a chunk before the request was sent")
        if self.outcome is Outcome.OK and self.end_ns is None:
            faults.append("ok without an end")
        if self.outcome is Outcome.NOT_SENT and self.sent_ns is not None:
            faults.append("not_sent, yet it was sent")
        return faults
