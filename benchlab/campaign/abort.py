"""The rule that ends a run against a server that answers nobody: every request failed for so long.

The one idea: it looks at counters that only grow. It must not know where they come from.
"""

from __future__ import annotations

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
        self._ok = self._failed = 0
        self._since_ns: int | None = None

    def look(self, counts: Counts, now_ns: int) -> AbortedError | None:
        """The error that ends the run, or None. The time runs from when failures began with no success after them."""
        if self._limit_ns is None:
            return None
        if counts.ok != self._ok or self._since_ns is None:
            if counts.ok != self._ok or counts.failed == self._failed:
                self._ok, self._failed, self._since_ns = counts.ok, counts.failed, None
                return None
            self._since_ns = now_ns
        if now_ns - self._since_ns < self._limit_ns or counts.failed - self._failed < _LEAST_FAILURES:
            return None
        many = counts.failed - self._failed
        return AbortedError(
            f"every request has failed for {format_duration(self._limit_ns)} ({many:,} of them)",
            where="--abort-after",
            hint="see the outcomes in the report for why; --abort-after none goes on all the same",
        )
