"""Sessions as the unit: how long until the last answer, how much of that was waiting, and which came to their end.

The one idea: a session belongs where its first turn was due, however long it goes on; one of whose turns any did not
end well is partial, has no time, and is counted. It must not know why a turn failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from benchlab.metrics.columns import Bools, Columns, Floats, Ints
from benchlab.metrics.intervals import share_intervals
from benchlab.metrics.request import Values, e2e
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_MS

PARTIAL = "partial session: a turn of it did not end well"


@dataclass(frozen=True, slots=True)
class Sessions:
    """Per session: the row of its first turn and of its last, its turns, whether all of them ended ok.

    of: the session of each request, -1 for none.
    """

    first: Ints
    last: Ints
    turns: Ints
    whole: Bools
    of: Ints


def sessions_of(c: Columns) -> Sessions:
    """The sessions of a stage: requests that share a session id, in the order of their turns."""
    found = c.kept("sessions", _group)
    assert isinstance(found, Sessions)
    return found


def _group(c: Columns) -> Sessions:
    encoded = c.table.column("session_id").combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if hasattr(encoded, "combine_chunks") else encoded
    of = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
    many = len(encoded.dictionary)
    inside = np.flatnonzero(of >= 0)
    turn, due = np.nan_to_num(c.number("turn")), c.number("intended_ns")
    order = inside[np.lexsort((due[inside], turn[inside], of[inside]))]
    edges = np.searchsorted(of[order], np.arange(many + 1))
    ok = np.bincount(of[inside], weights=c.is_outcome(Outcome.OK)[inside], minlength=many)
    turns = np.diff(edges)
    return Sessions(order[edges[:-1]], order[edges[1:] - 1], turns, ok == turns, of)


def _values(s: Sessions, ns: Floats, c: Columns) -> Values:
    per_request = np.zeros(c.n, dtype=np.bool_)
    per_request[s.first[~s.whole]] = True
    return Values(np.where(s.whole, ns / NS_PER_MS, np.nan), rows=s.first, reasons=((PARTIAL, per_request),))


def session_time(c: Columns) -> Values:
    """From when a session's first turn was due to its last answer's end, ms; think time is in it."""
    s = sessions_of(c)
    return _values(s, c.done_ns[s.last] - c.number("intended_ns")[s.first], c)


def session_wait(c: Columns) -> Values:
    """The time of a session that was spent waiting for answers, ms: the sum of its turns' e2e."""
    s = sessions_of(c)
    spent = np.nan_to_num(e2e(c).values) * NS_PER_MS
    inside = s.of >= 0
    return _values(s, np.asarray(np.bincount(s.of[inside], spent[inside], len(s.first)), dtype=np.float64), c)


def session_turns(c: Columns) -> Values:
    """Turns of a session."""
    s = sessions_of(c)
    return _values(s, np.asarray(s.turns * NS_PER_MS, dtype=np.float64), c)


def session_counts(c: Columns, inside: Bools) -> dict[str, Any] | None:
    """How many sessions began in the window, how many of them came to their end; None without sessions."""
    s = sessions_of(c)
    if not len(s.first):
        return None
    begun = np.flatnonzero(inside[s.first])
    hits = s.whole[begun[np.argsort(c.number("intended_ns")[s.first[begun]], kind="stable")]]
    many, whole = len(hits), int(hits.sum())
    return {
        "sessions": many,
        "whole": whole,
        "partial": many - whole,
        "whole_share": whole / many if many else None,
        "whole_share_ci95": share_intervals(hits)[0],
    }
