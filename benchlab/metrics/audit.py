"""What cannot be true of a stage's records, counted at once over all of them (`Record.audit`, on columns)."""

from __future__ import annotations

import numpy as np

from benchlab.metrics.columns import Columns
from benchlab.records.event import Outcome

_ORDER = ("intended_ns", "dispatched_ns", "sent_ns", "headers_ns", "end_ns")


def impossible(c: Columns) -> dict[str, int]:
    """Each kind of impossibility with the number of requests that show it; empty when everything holds together."""
    faults = {"chunk lists differ in length": c.ragged}
    same = c.event_row[1:] == c.event_row[:-1]
    backwards = same & (np.diff(c.chunk_ns) < 0)
    faults["a gap below zero"] = len(np.unique(c.event_row[1:][backwards]))
    latest = np.full(c.n, -np.inf)
    disordered = np.zeros(c.n, dtype=np.bool_)
    for name in _ORDER:
        when = c.number(name)
        disordered |= when < latest
        latest = np.fmax(latest, when)
    faults["times out of order: intended, dispatched, sent, headers, end"] = int(disordered.sum())
    sent, end = c.number("sent_ns"), c.number("end_ns")
    earliest = np.full(c.n, np.inf)
    np.minimum.at(earliest, c.event_row, c.chunk_ns.astype(np.float64))
    faults["a chunk before the request was sent"] = int((earliest < sent).sum())
    faults["first text after the last"] = int((c.first_content_ns > c.last_content_ns).sum())
    faults["text after the end"] = int((c.is_outcome(Outcome.OK) & (c.last_content_ns > end)).sum())
    faults["ok without an end"] = int((c.is_outcome(Outcome.OK) & np.isnan(end)).sum())
    faults["not_sent, yet it was sent"] = int((c.is_outcome(Outcome.NOT_SENT) & ~np.isnan(sent)).sum())
    counts = c.number("output_tokens")
    faults["a token count below zero"] = int(((counts < 0) | (c.number("prompt_tokens") < 0)).sum())
    return {what: many for what, many in faults.items() if many}
