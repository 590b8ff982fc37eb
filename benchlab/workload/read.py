"""A file becomes a Workload: every row read is a row kept or a row dropped by a named reason, and nothing is guessed.

Complaints are collected (up to 20) so that a file is put right in one go. It must not know how a workload is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchlab.errors import UsageError
from benchlab.workload.formats import Context
from benchlab.workload.item import WorkloadItem
from benchlab.workload.items import LazyItems
from benchlab.workload.read_servegen import Drawn, draw_profiles, profiles_of
from benchlab.workload.reading import REJECTED, Reading
from benchlab.workload.times import UNITS_NS
from benchlab.workload.tokens import Counter, estimate

__all__ = ["REJECTED", "Workload", "read_items", "write_items"]


@dataclass(frozen=True, slots=True)
class Workload:
    """The items of a file, and the facts about their reading.

    items: made when they are asked for. sha256: of the file as it lies. read = kept + the sum of dropped, in rows (a
    row of turns makes several items; of a conversation, its requests count). timed: the items have arrival times.
    complaints: what lenient reading left out, by line. notes: sentences to print.
    """

    items: Sequence[WorkloadItem]
    path: str
    sha256: str
    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()
    timed: bool = False
    format: str = "rows"
    time_unit: str | None = None
    inversions: int = 0
    notes: tuple[str, ...] = ()

    @property
    def span_s(self) -> float | None:
        """Seconds from the first to the last arrival, None where there are no times."""
        if isinstance(self.items, LazyItems):
            found = self.items.arrival_s[self.items.rows]
            found = found[found == found]  # NaN is not itself  # noqa: PLR0124
            return float(found.max() - found.min()) if len(found) else None
        times = [item.arrival_s for item in self.items if item.arrival_s is not None]
        return max(times) - min(times) if times else None


def read_items(
    path: str | Path,
    *,
    lenient: bool = False,
    allow_unknown: bool = False,
    time_unit: str | None = None,
    block_tokens: int | None = None,
    form: str | None = None,
    counter: Counter | None = None,
    seed: int = 0,
    span_s: tuple[float, float] | None = None,
) -> Workload:
    """Read a workload or a known trace: plain, gzip, zstd or Parquet; a folder of such files is read as one.

    lenient: leave broken rows out, counted and listed. time_unit: s, ms, us or ns, for files that do not say. form: the
    format by name, where it is not to be detected. counter: counts the tokens of recorded answers (None: an estimate).
    seed, span_s: for ServeGen's profiles, from which requests are drawn.
    Raises UsageError (exit 2) with up to 20 complaints, each with file, line and field.
    """
    if time_unit is not None and time_unit not in UNITS_NS:
        raise UsageError(f"'{time_unit}' is not a unit of time", where="--time-unit", hint="use s, ms, us or ns")
    if block_tokens is not None and not 1 <= block_tokens < 2**31:
        raise UsageError(f"a block of {block_tokens} tokens", where="--block-tokens", hint="give 1 or more")
    if (form is None or form == "servegen") and (profiles := profiles_of(str(path))):
        return _drawn(str(path), draw_profiles(profiles, seed=seed, span_s=span_s))
    context = Context(
        time_unit=time_unit,
        block_tokens=block_tokens,
        allow_unknown=allow_unknown,
        counter=counter or estimate(),
    )
    reading = Reading(str(path), context, lenient, form)
    reading.run()
    return Workload(
        items=reading.items,
        path=str(path),
        sha256=reading.sha256,
        read=reading.read,
        kept=reading.kept,
        dropped=reading.dropped,
        complaints=tuple(reading.told()),
        timed=reading.timed,
        format=reading.form.name,
        time_unit=reading.context.time_unit if reading.form.trace else None,
        inversions=reading.inversions,
        notes=tuple(reading.notes()),
    )


def _drawn(path: str, drawn: Drawn) -> Workload:
    return Workload(
        items=drawn.items,
        path=path,
        sha256=drawn.sha256,
        read=drawn.read,
        kept=len(drawn.items),
        dropped=drawn.dropped,
        timed=True,
        format="servegen",
        time_unit="s",
        notes=drawn.notes,
    )


def write_items(items: Iterable[WorkloadItem], path: str | Path) -> None:
    """Write items as JSON Lines, the same bytes on every machine. Raises UsageError where that is not possible."""
    encoder = msgspec.json.Encoder()
    try:
        with open(path, "wb") as file:
            for item in items:
                file.write(encoder.encode(item) + b"\n")
    except OSError as fault:
        raise UsageError(f"cannot be written: {fault.strerror}", where=str(path), hint="give another path") from fault
