"""The rule that ends a run against a server that answers nobody: every request failed for so long.

The one idea: it looks at counters that only grow. It must not know where they come from.
"""

from __future__ import annotations

from dataclasses import replace

from benchlab.errors import BenchlabError, Exit
from benchlab.loadgen.counters import Counts
from benchlab.units import format_duration

_LEAST_FAILURES = 3
"""A single slow failure is no server that answers nobody."""


class AbortedError(BenchlabError):
    """A rule ended the run; what was measured is kept (exit 7)."""

    exit_code = Exit.ABORTED


class FailingWatch:
    """Looks at a stage's counters from time to time. limit_ns: None never ends anything."""

    def __init__(self, limit_ns: int | None) -> None:
        self._limit_ns = limit_ns
        self._seen: Counts | None = None
        self._since_ns: int | None = None

    def look(self, counts: Counts, now_ns: int) -> AbortedError | None:
        """The error that ends the run, or None. The time runs from the first failure after the last sign of an answer:
        a request that was well, or any event of a stream (a long answer is none that failed)."""
        if self._limit_ns is None:
            return None
        seen = self._seen
        if seen is None or (counts.ok, counts.events) != (seen.ok, seen.events):
            self._seen, self._since_ns = replace(counts), None
            return None
        many = counts.failed - seen.failed
        if many and self._since_ns is None:
            self._since_ns = now_ns
        if self._since_ns is None or now_ns - self._since_ns < self._limit_ns or many < _LEAST_FAILURES:
            return None
        return AbortedError(
            f"every request has failed for {format_duration(self._limit_ns)} ({many:,} of them)",
            where="--abort-after",
            hint="see the outcomes in the report for why; --abort-after none goes on all the same",
        )
