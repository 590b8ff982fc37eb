"""Requests that are given up on purpose: users who close the page, agents that have read enough.

The one idea: whether a request is abandoned is a function of (seed, stage, sequence number) and of its item's tags, so
that neither the number of workers nor the server's speed changes it. The connection is closed, the record says
`cancelled`, and everything up to then stays in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchlab.errors import UsageError
from benchlab.records.event import VISIBLE, Kind
from benchlab.records.record import Identity
from benchlab.records.recorder import Recorder
from benchlab.units import format_duration, parse_duration_ns, parse_share
from benchlab.workload.item import WorkloadItem

_HINT = "write after=2s:share=10% (so long after it was sent) or tokens=20:share=5% (that much of the answer seen)"
TAG = "abandon:"
"""An item with the tag `abandon:after=2s` or `abandon:tokens=20` is given up each time it is sent; one that names a
share, so often."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Give up a `share` of requests, so long after sending (`after_ns`) or at so many tokens of the answer."""

    after_ns: int | None = None
    tokens: int | None = None
    share: float = 1.0

    def __str__(self) -> str:
        what = f"tokens={self.tokens}" if self.after_ns is None else f"after={self.after_ns / 1e9:g}s"
        return f"{what}:share={self.share:g}"

    @property
    def words(self) -> str:
        """Why a record says `cancelled`."""
        if self.after_ns is not None:
            return f"abandoned on purpose, {format_duration(self.after_ns)} after it was sent"
        return f"abandoned on purpose, at {self.tokens} tokens of its answer"


def parse_abandon(text: str, *, flag: str = "--abandon") -> Abandon:
    """'after=2s:share=0.1' or 'tokens=20:share=5%' -> Abandon. Raises UsageError."""
    after: int | None = None
    tokens: int | None = None
    share = 1.0
    for word in text.split(":"):
        name, equals, value = word.partition("=")
        if name == "after" and equals:
            after = parse_duration_ns(value, flag=flag, allow_zero=True)
        elif name == "tokens" and value.isdecimal() and int(value) > 0:
            tokens = int(value)
        elif name == "share" and equals:
            share = parse_share(value, flag=flag)
        else:
            raise UsageError(f"'{text}': '{word}' is not known here", where=flag, hint=_HINT)
    if (after is None) == (tokens is None):
        raise UsageError(f"'{text}' does not say when to give up", where=flag, hint=_HINT)
    return Abandon(after, tokens, share)


def check_rules(rules: Sequence[Abandon]) -> None:
    """Raises UsageError where the shares come to more than every request."""
    if sum(rule.share for rule in rules) > 1 + 1e-9:
        raise UsageError("the shares come to more than 100%", where="--abandon", hint="shares of several add up")


def check_tags(items: Sequence[WorkloadItem]) -> int:
    """How many items ask to be given up. Raises UsageError for a tag that asks for what does not exist."""
    asking = [(item, tag) for item in items for tag in item.tags if tag.startswith(TAG)]
    for item, tag in asking:
        parse_abandon(tag.removeprefix(TAG), flag=f"tags of item '{item.id[:60]}'")
    return len({item.id for item, _ in asking})


def rule_for(rules: Sequence[Abandon], tags: Sequence[str], *, seed: int, stage: int, sequence: int) -> Abandon | None:
    """The rule by which this request is abandoned, if by any. A tag outranks the rules; shares lie side by side."""
    tag = next((tag for tag in tags if tag.startswith(TAG)), None)
    if tag is not None:
        rules = [parse_abandon(tag.removeprefix(TAG), flag=f"tag {tag}")]
    if not rules:
        return None
    key = hashlib.blake2b(f"abandon:{seed}:{stage}:{sequence}".encode(), digest_size=8).digest()
    left = int.from_bytes(key, "big") / 2**64
    for rule in rules:
        if left < rule.share:
            return rule
        left -= rule.share
    return None


class CountingRecorder(Recorder):
    """A recorder that calls `enough` once so many tokens of the answer (chunks, where none are told) have come."""

    __slots__ = ("_left", "enough")

    def __init__(self, identity: Identity, tokens: int, *, keep_text: bool = False) -> None:
        super().__init__(identity, keep_text=keep_text)
        self._left = tokens
        self.enough: Callable[[], object] | None = None

    def chunk(self, ns: int, kind: Kind, *, tokens: int | None = None, slack_ns: int = 0, text: str = "") -> None:
        super().chunk(ns, kind, tokens=tokens, slack_ns=slack_ns, text=text)
        if kind in VISIBLE:
            self._seen(1 if tokens is None else tokens)

    def content(self, ns: int, slack_ns: int, text: str | bytes) -> None:
        super().content(ns, slack_ns, text)
        self._seen(1)

    def contents(self, count: int, ns: int, slack_ns: int, texts: Sequence[bytes]) -> None:
        super().contents(count, ns, slack_ns, texts)
        self._seen(count)

    def _seen(self, tokens: int) -> None:
        if self._left > 0:
            self._left -= tokens
            if self._left <= 0 and self.enough is not None:
                self.enough()
