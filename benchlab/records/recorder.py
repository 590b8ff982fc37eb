"""Folds what a client saw of one request into a Record. The client calls it; it never looks at a clock.

The first terminal word wins: after `end` or `fail` nothing changes the outcome, so each request has exactly one. At
any moment `record()` gives a true account of what happened so far, which is what makes an interrupted run keep
everything it measured.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import repeat

from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.records.record import Identity, Record

_NO_COUNT = -1
_CONTENT = Kind.CONTENT


class Recorder:
    """The events of one request; times are int64 ns on the monotonic clock, made relative to `t0_ns` in `record`."""

    __slots__ = (
        "_cumulative",
        "_kinds",
        "_slacks",
        "_stamps",
        "_texts",
        "_tokens",
        "_told",
        "cached_tokens",
        "connect_end_ns",
        "connect_start_ns",
        "dispatched_ns",
        "done_seen",
        "end_ns",
        "error",
        "error_kind",
        "finish_reason",
        "first_visible_ns",
        "headers_ns",
        "held_ns",
        "http_status",
        "identity",
        "outcome",
        "output_tokens",
        "prompt_tokens",
        "reasoning_tokens",
        "retries",
        "sent_ns",
        "server_request_id",
        "stamp_source",
        "unknown",
        "visible",
    )

    def __init__(self, identity: Identity, *, keep_text: bool = False) -> None:
        self.identity = identity
        self._stamps, self._slacks, self._tokens = array("q"), array("q"), array("i")
        self._kinds: list[Kind] = []
        self._texts: list[tuple[Kind, str]] | None = [] if keep_text else None
        self.outcome: Outcome | None = None
        """None while the request is under way; `end` and `fail` alone set it."""
        self.first_visible_ns: int | None = None
        self._cumulative = 0
        self._told = False
        self.dispatched_ns: int | None = None
        self.held_ns = 0
        self.connect_start_ns: int | None = None
        self.connect_end_ns: int | None = None
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.end_ns: int | None = None
        self.http_status: int | None = None
        self.error: str | None = None
        self.error_kind: str | None = None
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.server_request_id: str | None = None
        self.stamp_source = "callback"
        self.retries = 0
        self.visible = 0
        self.done_seen = False
        self.unknown: set[str] = set()

    # -- what the client saw

    def chunk(self, ns: int, kind: Kind, *, tokens: int | None = None, slack_ns: int = 0, text: str = "") -> None:
        """One event of the stream arrived at `ns`; it may have come up to `slack_ns` earlier. `tokens`: if told."""
        self._stamps.append(ns)
        self._slacks.append(slack_ns)
        self._kinds.append(kind)
        if tokens is None:
            self._tokens.append(_NO_COUNT)
        else:
            self._tokens.append(tokens)
            self._told = True
        if kind in VISIBLE:
            if not self.visible:
                self.first_visible_ns = ns
            self.visible += 1
            if self._texts is not None:
                self._texts.append((kind, text))

    def content(self, ns: int, slack_ns: int, text: str | bytes) -> None:
        """What `chunk` does for a content event whose tokens were not told; `text` may be ASCII bytes. The hot path."""
        self._stamps.append(ns)
        self._slacks.append(slack_ns)
        self._tokens.append(_NO_COUNT)
        self._kinds.append(_CONTENT)
        if not self.visible:
            self.first_visible_ns = ns
        self.visible += 1
        if self._texts is not None:
            self._texts.append((_CONTENT, text if isinstance(text, str) else text.decode("ascii")))

    def contents(self, count: int, ns: int, slack_ns: int, texts: Sequence[bytes]) -> None:
        """`content` for `count` events that shared a read; `texts` need not be given unless text is kept."""
        self._stamps.extend(repeat(ns, count))
        self._slacks.extend(repeat(slack_ns, count))
        self._tokens.extend(repeat(_NO_COUNT, count))
        self._kinds.extend(repeat(_CONTENT, count))
        if not self.visible:
            self.first_visible_ns = ns
        self.visible += count
        if self._texts is not None:
            self._texts.extend((_CONTENT, text.decode("ascii")) for text in texts)

    def tokens_so_far(self, total: int) -> int | None:
        """Turns a cumulative count (usage on every event) into this event's own tokens; None if it went down."""
        step = total - self._cumulative
        self._cumulative = total
        return step if step >= 0 else None

    def usage(self, *, prompt: int | None, output: int | None, reasoning: int | None, cached: int | None) -> None:
        """The server's own counts; a later report replaces an earlier one, a field it leaves out stays."""
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        self.output_tokens = self.output_tokens if output is None else output
        self.reasoning_tokens = self.reasoning_tokens if reasoning is None else reasoning
        self.cached_tokens = self.cached_tokens if cached is None else cached

    def end(self, ns: int) -> None:
        """The message ended cleanly at `ns`: ok if a finish reason was seen, else incomplete."""
        if self.outcome is None:
            self.end_ns = ns
            if self.finish_reason is None:
                self.outcome = Outcome.INCOMPLETE
                self.error = "the stream ended without a finish reason"
            else:
                self.outcome = Outcome.OK

    def fail(self, outcome: Outcome, error: str, *, ns: int, kind: str | None = None) -> None:
        """The request ended in `outcome` at `ns`. What arrived before stays in the record."""
        if self.outcome is None:
            self.outcome, self.error, self.error_kind, self.end_ns = outcome, error, kind, ns

    # -- what can be asked

    @property
    def keeps_text(self) -> bool:
        return self._texts is not None

    @property
    def last_chunk_ns(self) -> int | None:
        return self._stamps[-1] if self._stamps else None

    def text(self) -> str:
        """The answer's visible content joined (reasoning and tool calls left out); '' unless text is kept."""
        return "".join(text for kind, text in self._texts or () if kind is Kind.CONTENT)

    def all_text(self) -> str:
        """Everything that was generated, joined in order of arrival; '' unless text is kept."""
        return "".join(text for _, text in self._texts or ())

    def record(self, t0_ns: int) -> Record:
        """The Record of what happened so far, times relative to `t0_ns`; `unfinished` if it has not ended."""
        stamps = array("q", [ns - t0_ns for ns in self._stamps])
        output, source = self._output_tokens()
        who = self.identity
        unknown = set(self.unknown)
        if source is None or source == "chunks":
            unknown.add("output_tokens")
        return Record(
            request_id=who.request_id,
            stage=who.stage,
            item_id=who.item_id,
            outcome=self.outcome or (Outcome.UNFINISHED if self.sent_ns is not None else Outcome.NOT_SENT),
            intended_ns=who.intended_ns - t0_ns,
            dispatched_ns=None if self.dispatched_ns is None else self.dispatched_ns - t0_ns,
            held_ns=self.held_ns,
            connect_start_ns=None if self.connect_start_ns is None else self.connect_start_ns - t0_ns,
            connect_end_ns=None if self.connect_end_ns is None else self.connect_end_ns - t0_ns,
            sent_ns=None if self.sent_ns is None else self.sent_ns - t0_ns,
            headers_ns=None if self.headers_ns is None else self.headers_ns - t0_ns,
            chunk_ns=stamps,
            chunk_slack_ns=self._slacks[:],
            chunk_tokens=[None if n == _NO_COUNT else n for n in self._tokens] if self._told else [None] * len(stamps),
            chunk_kind=self._kinds[:],
            end_ns=None if self.end_ns is None else self.end_ns - t0_ns,
            stamp_source=self.stamp_source,
            http_status=self.http_status,
            error=self.error,
            error_kind=self.error_kind,
            finish_reason=self.finish_reason,
            prompt_tokens=self.prompt_tokens,
            output_tokens=output,
            reasoning_tokens=self.reasoning_tokens,
            cached_tokens=self.cached_tokens,
            tokens_source=source,
            session_id=who.session_id,
            turn=who.turn,
            tenant=who.tenant,
            tags=who.tags,
            requested_tokens=who.requested_tokens,
            host=who.host,
            worker=who.worker,
            retries=self.retries,
            server_request_id=self.server_request_id,
            unknown=tuple(sorted(unknown)),
        )

    def _output_tokens(self) -> tuple[int | None, str | None]:
        """Output tokens and where they come from (MEASUREMENT.md): usage, else visible chunks as an estimate."""
        if self.output_tokens is not None:
            return self.output_tokens, "usage"
        if self.visible:
            return self.visible, "chunks"
        return None, None
