"""Does the text come as fast as it is read? Each token against its own deadline, earliness carried on to the next.

The one idea: the first token is due `first` after sending, each further one `each` after the one before it was due, or
came if that was later. So a stream that is ahead may pause, and a stall is one missed deadline and not a hundred. With
time counted less `each` for every token before, a token is late exactly when it sets a new record: one pass over all
streams. The rule is that of Etalon's fluidity (arXiv 2407.07000), with the deadlines taken from `--slo`.
"""

from __future__ import annotations

import numpy as np

from benchlab.metrics.columns import Columns, Floats
from benchlab.units import NS_PER_MS

_LARGEST = 2**61


def on_time(c: Columns, first_ms: float, each_ms: float) -> tuple[Floats, Floats]:
    """(tokens that came by their deadline, tokens that came) of each request; NaN where none came or none was sent.

    Tokens of one chunk come together: only the first of them can be late.
    """
    rows, tokens = c.visible_row, c.visible_tokens
    came = np.bincount(rows, weights=tokens, minlength=c.n)
    starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])) if len(rows) else np.zeros(0, np.int64)
    before = np.cumsum(tokens) - tokens
    before -= np.repeat(before[starts], np.diff(np.concatenate([starts, [len(rows)]])))
    sent = c.number("sent_ns")[rows]
    known = ~np.isnan(sent)
    when = c.chunk_ns[c.visible] - np.where(known, sent, 0.0) - before * (each_ms * NS_PER_MS)
    # in whole ns, and none before the first deadline: that is where every stream's record starts
    record = np.maximum(np.rint(when).astype(np.int64) - round(first_ms * NS_PER_MS), 0)
    late = np.bincount(rows[_new_records(record, rows)], minlength=c.n)
    has = (came > 0) & ~np.isnan(c.number("sent_ns"))
    return np.where(has, came - late, np.nan), np.where(has, came, np.nan)


def _new_records(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which values (0 or more) exceed 0 and all before them of the same row."""
    if not len(values):
        return np.zeros(0, dtype=np.bool_)
    span = int(values.max()) + 1
    many = max(1, _LARGEST // span)
    found = np.zeros(len(values), dtype=np.bool_)
    begin = 0
    while begin < len(values):
        # rows above each other, so that one running maximum serves them all
        end = int(np.searchsorted(rows, rows[begin] + many, side="left"))
        floor = (rows[begin:end] - rows[begin]) * span
        stacked = values[begin:end] + floor
        highest = np.maximum.accumulate(stacked)
        found[begin:end] = stacked > np.maximum(np.concatenate([[-1], highest[:-1]]), floor)
        begin = end
    return found
