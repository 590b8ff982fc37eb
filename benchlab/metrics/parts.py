"""Parts of a field that a record's source may not tell though it tells the field, and which metrics need them.

The one idea: a foreign file may know when the first text came and not the last, or how long a request took and not
when it began; a metric that needs the missing part is a Gap, the others are not. Our own records tell all of them.
"""

from __future__ import annotations

from benchlab.metrics.columns import Bools, Columns

_LAST, _BETWEEN, _ABSOLUTE = "chunk_ns.last", "chunk_ns.between", "sent_ns.absolute"

NEEDED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("e2e", "response_e2e", "tpot", "stream_speed", "in_flight_mean"), (_LAST,)),
    **dict.fromkeys(("itl", "stall", "stalls_100ms", "stalls_500ms", "stalls_1s"), (_LAST, _BETWEEN)),
    "tokens_per_chunk": (_LAST, _BETWEEN),
    **dict.fromkeys(("session_time", "session_wait", "in_flight_peak"), (_LAST, _ABSOLUTE)),
    "ttfa": ("chunk_kind.answer",),
    "peak_tps": (_LAST, _BETWEEN, _ABSOLUTE),
}
"""By a metric's name, the parts it needs beside its row's fields (see `records.import_base.PARTS`)."""


def untold(name: str, c: Columns, among: Bools | None = None) -> str | None:
    """The first part that metric `name` needs and some request's source does not tell; None where all are told."""
    for part in NEEDED.get(name, ()):
        lacking = c.untold(part)
        if (lacking if among is None else lacking & among).any():
            return part
    return None
