"""Times of a source as whole nanoseconds: numbers in a unit that the format fixes, and wall clocks as people write.

It must not guess a unit from the size of a number.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from benchlab.workload.rows import RowError, clip

UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_WALL = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)
def _minute_ns(day: str, minute: str, zone: str) -> int:
    whole = datetime.fromisoformat(f"{day}T{minute}:00{zone}") - _EPOCH
    return (whole.days * 86_400 + whole.seconds) * 1_000_000_000


def wall_ns(text: object, name: str = "TIMESTAMP") -> int:
    """An ISO date and time with up to nine digits of fraction, as ns since 1970; without a zone it is UTC."""
    found = _WALL.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise RowError(f"{name}: expected a date and time such as 2024-05-10 00:00:00.009930, got {clip(text)}")
    day, minute, second, fraction, zone = found.groups()
    try:
        base = _minute_ns(day, minute, "+00:00" if zone in (None, "Z") else zone)
    except ValueError:
        raise RowError(f"{name}: expected a date that exists, got {clip(text)}") from None
    if int(second) > 59:
        raise RowError(f"{name}: expected a date that exists, got {clip(text)}")
    return base + int(second) * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)


def scaled_ns(value: object, unit: str, name: str) -> int:
    """A time of the source in ns. Raises RowError for what is not a finite number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise RowError(f"{name}: expected a time in {unit}, a number >= 0, got {clip(value)}")
    ns = UNITS_NS[unit]
    found = value * ns if isinstance(value, int) else round(value * ns)
    if found >= 2**63:
        raise RowError(f"{name}: expected a time in {unit} that is not beyond all years, got {clip(value)}")
    return found


def number_text(value: object, name: str) -> float | int:
    """A number that may stand as a text (CSV cells, RAGPulse). Raises RowError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
        try:
            return float(value)
        except ValueError:
            pass
    raise RowError(f"{name}: expected a number, got {clip(value)}")
