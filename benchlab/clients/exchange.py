"""One request on a connection: bytes in, events into the recorder, limits kept, and one end.

Knows framing (SSE or one body) and time limits; the dialect knows what an event means, the connection when it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from benchlab.clients.base import ByteLimits, ClientCounts, Timeouts
from benchlab.clients.dialect import Conversation, http_error
from benchlab.clients.sse import EventTooLongError, SseParser
from benchlab.clock import Clock
from benchlab.records.event import Outcome
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_MS, NS_PER_S, format_duration

_AFTER_DONE_NS = 250 * NS_PER_MS
"""How long the end of the HTTP message may take once the stream has said that it is done."""
_OK = range(200, 300)
_ERROR_BODY_BYTES = 64 * 1024
_REQUEST_ID_HEADERS = ("x-request-id", "request-id")


class StreamExchange:
    """The state of one exchange; `run` returns whether its connection may serve another."""

    __slots__ = (
        "_all_kernel",
        "_blank",
        "_clock",
        "_conversation",
        "_counts",
        "_done_ns",
        "_last_read",
        "_last_visible_ns",
        "_limits",
        "_loop",
        "_received",
        "_recorder",
        "_retry",
        "_sent_ns",
        "_sse",
        "_started_ns",
        "_status",
        "_timeouts",
        "_timer",
        "_waiter",
        "_whole",
        "unanswered",
    )

    def __init__(
        self,
        recorder: Recorder,
        conversation: Conversation,
        *,
        clock: Clock,
        timeouts: Timeouts,
        limits: ByteLimits,
        counts: ClientCounts,
        started_ns: int,
        retry_if_unanswered: bool,
    ) -> None:
        self._recorder, self._conversation = recorder, conversation
        self._clock, self._timeouts, self._limits, self._counts = clock, timeouts, limits, counts
        self._started_ns = started_ns
        self._retry = retry_if_unanswered
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bool] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._sse: SseParser | None = None
        self._whole: list[bytes] | None = None
        self._blank = b""
        self._status = 0
        self._received = 0
        self._done_ns = 0
        self._last_read = False
        self._last_visible_ns = 0
        self._all_kernel = True
        self.unanswered = False
        """The kept connection died before any response byte: the request may be sent again."""

    async def run(self, send: Callable[[], None], sent_ns: int) -> bool:
        """`send`, then wait for the end. True if the connection may be used again."""
        first_sent_ns = self._recorder.sent_ns
        self._sent_ns = sent_ns if first_sent_ns is None else first_sent_ns  # a retry starts no clock anew
        self._arm()
        try:
            send()
            return await self._waiter
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._all_kernel and self._received:  # also of an answer that was broken off on purpose
                self._recorder.stamp_source = "kernel"

    @property
    def over(self) -> bool:
        """The exchange has ended; `reusable` says whether its connection may serve another."""
        return self._waiter.done()

    @property
    def reusable(self) -> bool:
        return self._waiter.done() and not self._waiter.cancelled() and self._waiter.result()

    # -- called by the connection

    def headers(self, ns: int, status: int, headers: dict[str, str]) -> None:
        recorder = self._recorder
        self._status = status
        recorder.headers_ns, recorder.http_status = ns, status
        for name in _REQUEST_ID_HEADERS:
            if name in headers:
                recorder.server_request_id = headers[name][:200]
                break
        if status not in _OK:
            self._whole = []
        elif (coding := headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
            why = f"the answer is compressed ({coding[:40]}) although it was not asked for: its events have no time"
            self._protocol_error(why, ns, "encoding")

    def body(self, data: bytes, ns: int, since_ns: int, kernel: bool, *, last: bool = False) -> None:
        """Bytes of the body that came in one read; last: the end of the message came with them."""
        self._last_read = last
        if self._waiter.done():
            return
        self._received += len(data)
        self._all_kernel = self._all_kernel and kernel
        if self._received > self._limits.response:
            self._protocol_error(f"the response is longer than {self._limits.response} bytes", ns, "size")
        elif self._sse is not None:
            self._events(self._sse, data, ns, since_ns)
        elif self._whole is not None:
            room = self._received if self._status in _OK else _ERROR_BODY_BYTES - (self._received - len(data))
            if room > 0:
                self._whole.append(data[:room])
        else:
            self._sniff(data, ns, since_ns)

    def complete(self, ns: int, *, framed: bool) -> None:
        if self._waiter.done():
            return
        if self._status not in _OK:
            http_error(self._recorder, self._status, b"".join(self._whole or ()), ns)
        elif self._whole is not None:
            self._conversation.whole(b"".join(self._whole).removeprefix(b"\xef\xbb\xbf"), ns)
        elif self._sse is None:
            self._recorder.fail(Outcome.INCOMPLETE, "the answer has no content", ns=ns, kind="empty")
        else:
            self._deliver(self._sse.close(), ns, 0)
            self._conversation.ended(ns, framed=framed)
        self._finish(reusable=True)

    def lost(self, ns: int, why: str, *, any_byte: bool) -> None:
        if self._waiter.done():
            return
        if not any_byte and self._retry:
            self.unanswered = True
        elif self._conversation.complete:
            self._conversation.ended(self._done_ns)  # all was said; only the framing is missing
        elif why.startswith("unparsable: "):
            self._recorder.fail(Outcome.ERROR_PROTOCOL, why.removeprefix("unparsable: "), ns=ns, kind="http")
        elif self._status and self._status not in _OK:
            http_error(self._recorder, self._status, b"".join(self._whole or ()), ns)
        else:
            when = "before any response byte" if not any_byte else "in mid-stream"
            self._recorder.fail(Outcome.INCOMPLETE, f"{why} {when}", ns=ns, kind="closed")
        self._finish(reusable=False)

    # -- events

    def _sniff(self, data: bytes, ns: int, since_ns: int) -> None:
        """The request asked for a stream: what comes is one by its first byte, whatever its content type says."""
        data, self._blank = self._blank + data, b""
        start = data.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start:
            self._blank = data  # nothing to tell it by yet
        elif start[:1] in (b"{", b"[", b"<"):
            self._whole = [data]
        else:
            self._sse = SseParser(self._limits.event)
            self._events(self._sse, data, ns, since_ns)

    def _events(self, sse: SseParser, data: bytes, ns: int, since_ns: int) -> None:
        try:
            events = sse.feed(data)
        except EventTooLongError as error:
            self._protocol_error(str(error), ns, "size")
            return
        self._deliver(events, ns, ns - since_ns, last_exact=not sse.pending)

    def _deliver(self, events: list[tuple[bytes, bytes]], ns: int, slack_ns: int, *, last_exact: bool = True) -> None:
        """All events but the last of a read may have come earlier, at most by the time since the read before it; the
        last too, where bytes of a next one followed it in the same read (the stamp is of the read's last packet)."""
        last = len(events) - 1 if last_exact else len(events)
        before = self._recorder.visible
        self._counts.events += len(events)
        self._counts.merged_events += max(last, 0)
        try:
            self._read(events, last, ns, slack_ns)
        except Exception as error:  # our own fault must end the request by name, never leave it hanging
            words = f"benchlab could not read an event: {type(error).__name__}: {error}"
            self._recorder.fail(Outcome.ERROR_PROTOCOL, words[:500], ns=ns, kind="client")
        if self._recorder.visible != before:
            first, self._last_visible_ns = not self._last_visible_ns, ns
            if first and self._timeouts.gap_ns is not None:
                self._arm()  # from now on the gap limit applies, and it may be the nearer one
        if self._recorder.outcome is not None:
            self._finish(reusable=False)
        elif self._conversation.complete and not self._done_ns:
            self._done_ns = ns
            if not self._last_read:
                self._arm()

    def _read(self, events: list[tuple[bytes, bytes]], last: int, ns: int, slack_ns: int) -> None:
        """Events to the dialect, in order, until one ends the request; those before `last` have the slack."""
        conversation, recorder = self._conversation, self._recorder
        index = 0
        while index < len(events) and recorder.outcome is None:
            if index < last and (taken := conversation.plain_run(events, index, last, ns, slack_ns)):
                index += taken
                continue
            name, payload = events[index]
            conversation.event(name, payload, ns, slack_ns if index < last else 0)
            index += 1

    def _protocol_error(self, why: str, ns: int, kind: str) -> None:
        self._recorder.fail(Outcome.ERROR_PROTOCOL, why, ns=ns, kind=kind)
        self._finish(reusable=False)

    def _finish(self, *, reusable: bool) -> None:
        if not self._waiter.done():
            self._waiter.set_result(reusable)

    # -- limits

    def _deadlines(self) -> list[tuple[int, str, int]]:
        """(when, which, limit) of every limit that applies now, monotonic ns."""
        if self._done_ns:  # all was said: no other limit can turn it into a failure
            return [(self._done_ns + _AFTER_DONE_NS, "done", _AFTER_DONE_NS)]
        limits = self._timeouts
        found: list[tuple[int, str, int]] = []
        if limits.total_ns is not None:
            found.append((self._started_ns + limits.total_ns, "total", limits.total_ns))
        if not self._last_visible_ns:
            if limits.first_content_ns is not None:
                found.append((self._sent_ns + limits.first_content_ns, "first_content", limits.first_content_ns))
        elif limits.gap_ns is not None:
            found.append((self._last_visible_ns + limits.gap_ns, "gap", limits.gap_ns))
        return found

    def _arm(self) -> None:
        """One timer a request, set to the nearest limit; a limit that has moved meanwhile arms it again."""
        if self._timer is not None:
            self._timer.cancel()
        limits = self._timeouts
        if not self._done_ns and limits.first_content_ns is None and limits.gap_ns is None:  # the usual case
            deadlines = [] if limits.total_ns is None else [(self._started_ns + limits.total_ns, "total", 0)]
        else:
            deadlines = self._deadlines()
        if deadlines and not self._waiter.done():
            wait_ns = min(deadlines)[0] - self._clock.monotonic_ns()
            self._timer = self._loop.call_later(max(wait_ns, 0) / NS_PER_S, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._clock.monotonic_ns()
        passed = min((due for due in self._deadlines() if due[0] <= now), default=None)
        if passed is None:
            self._arm()
            return
        _, which, limit = passed
        if which == "done":
            self._conversation.ended(self._done_ns)
        else:
            words = {"total": "", "first_content": " without a first token", "gap": " without a further token"}[which]
            self._recorder.fail(
                Outcome.TIMEOUT, f"client timeout after {format_duration(limit)}{words}", ns=now, kind=which
            )
        self._finish(reusable=False)
