"""The engine's own durations beside the client's: queue, prefill, decode, cleanup, and what lies between the two.

The one idea: both sides give durations on clocks of their own, joined by request id, and only differences of durations
are formed; so no offset between the clocks enters any number. It must not know how the times were fetched.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchlab.metrics.columns import Columns, Floats, Ints
from benchlab.metrics.request import Values, ttft
from benchlab.units import NS_PER_MS

NOT_TOLD = "not separable: the engine does not tell its own times"
NOT_REACHED = "by the engine's own times it did not come to that"
_INSTANTS = ("prefill_start", "prefill_end", "released")
_NONE = np.iinfo(np.int64).min


def with_engine(requests: pa.Table, engine: pa.Table) -> pa.Table:
    """The requests table with `engine_*` columns beside it: float64 ns since the engine accepted the request.

    first_written, last_ready, last_written are of its tokens; preempted is how often. Null where not told.
    """
    if not engine.num_rows:
        return requests
    accepted = _whole(engine.column("accepted_ns"))
    since = {name: _whole(engine.column(f"{name}_ns")) for name in _INSTANTS}
    since["first_written"], since["last_written"] = _ends(engine.column("token_written_ns"))
    _, since["last_ready"] = _ends(engine.column("token_ready_ns"))
    # whole numbers until the difference is made: the clock of a machine that is up for long has no exact float
    columns = {
        name: np.where((when == _NONE) | (accepted == _NONE), np.nan, (when - accepted).astype(np.float64))
        for name, when in since.items()
    }
    lengths = pc.fill_null(pc.list_value_length(engine.column("preempted_ns")), 0)
    columns["preempted"] = np.asarray(lengths.to_numpy(), dtype=np.float64)
    found = pc.index_in(requests.column("request_id"), value_set=engine.column("request_id").combine_chunks())
    places = np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)
    for name, values in columns.items():
        taken = np.where(places >= 0, values[places], np.nan)
        requests = requests.append_column(f"engine_{name}", pa.array(taken, from_pandas=True))
    return requests


def _whole(column: pa.ChunkedArray) -> Ints:
    return np.asarray(pc.fill_null(column, _NONE).to_numpy(), dtype=np.int64)


def _ends(column: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """(the first, the last) value of each list; `_NONE` where it is empty."""
    lengths: npt.NDArray[np.int64] = np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(), np.int64)
    flat = np.concatenate([np.zeros(0, np.int64), *(chunk.flatten().to_numpy() for chunk in column.chunks)])
    until = np.cumsum(lengths)
    first, last = np.full(len(lengths), _NONE), np.full(len(lengths), _NONE)
    has = lengths > 0
    first[has], last[has] = flat[(until - lengths)[has]], flat[until[has] - 1]
    return first, last


def _told(c: Columns, ns: Floats) -> Values:
    return Values(np.asarray(ns / NS_PER_MS), reasons=((NOT_TOLD, ~knows(c)), (NOT_REACHED, np.isnan(ns))))


def knows(c: Columns) -> npt.NDArray[np.bool_]:
    """Which requests the engine tells of."""
    return ~np.isnan(c.number("engine_preempted"))


def queue(c: Columns) -> Values:
    """Accepted to the first step that works on its prompt, ms: reading it, waiting, admission."""
    return _told(c, c.number("engine_prefill_start"))


def prefill(c: Columns) -> Values:
    """First step on its prompt to its first token, ms; steps in which others had the budget are in it."""
    return _told(c, c.number("engine_prefill_end") - c.number("engine_prefill_start"))


def decode(c: Columns) -> Values:
    """First token to last token ready, ms; time it stood preempted is in it."""
    return _told(c, c.number("engine_last_ready") - c.number("engine_prefill_end"))


def cleanup(c: Columns) -> Values:
    """Last token ready to blocks free and all handed over, ms: after the client has its answer, or nearly."""
    return _told(c, c.number("engine_released") - c.number("engine_last_ready"))


def transport(c: Columns) -> Values:
    """The client's TTFT minus the engine's (accepted to first token written), ms: the way there and back."""
    found = ttft(c)
    between = found.values * NS_PER_MS - c.number("engine_first_written")
    told = _told(c, between)
    return Values(told.values, reasons=(*found.reasons, *told.reasons))


def preemptions(c: Columns) -> Values:
    """How often the engine took its place away."""
    return Values(c.number("engine_preempted"), reasons=((NOT_TOLD, ~knows(c)),))
