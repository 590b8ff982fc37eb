"""Quantities with their units: "500ms", "12/s", "24GiB", "95%". Never a bare number where a time is meant.

A number without a unit is the commonest thousandfold error of this field (milliseconds in one tool, seconds in
the next), so it is refused, and the message shows both readings.
"""

from __future__ import annotations

import math
import re

from benchlab.errors import UsageError

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

_TIME_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}
_SIZE = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_NUMBER = r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
_QUANTITY = re.compile(rf"^\s*{_NUMBER}\s*([^\d\s]*)\s*$")
_COMPOUND = re.compile(r"^\s*(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+(?:\.\d+)?)s)?\s*$")


def _split(text: str, flag: str, wanted: str) -> tuple[float, str]:
    found = _QUANTITY.match(text)
    if found is None:
        what, _, hint = wanted.partition("; ")
        raise UsageError(f"'{text}' is not {what}", where=flag, hint=hint)
    return float(found.group(1)), found.group(2)


def parse_duration_ns(text: str, *, flag: str = "", allow_zero: bool = False) -> int:
    """'500ms', '2s', '1m30s' -> nanoseconds. Raises UsageError without a unit, or below (at) zero."""
    compound = _COMPOUND.match(text)
    if compound and any(compound.groups()):
        hours, minutes, seconds = (float(part or 0) for part in compound.groups())
        ns = round((hours * 3600 + minutes * 60 + seconds) * NS_PER_S)
    else:
        value, unit = _split(text, flag, "a time; write 500ms, 2s or 5m")
        if unit == "":
            raise UsageError(f"'{text}' has no unit", where=flag, hint=f"write {text}ms or {text}s, whichever is meant")
        if unit not in _TIME_NS:
            raise UsageError(f"'{unit}' is not a unit of time", where=flag, hint="use us, ms, s, m or h")
        ns = round(value * _TIME_NS[unit])
    if ns < 0 or (ns == 0 and not allow_zero):
        raise UsageError(f"'{text}' is not above zero", where=flag, hint="give a time above 0, such as 30s")
    return ns


def parse_rate(text: str, *, flag: str = "--rate") -> float:
    """'12', '12/s' or '90/min' -> requests per second. Raises UsageError for zero, negative, infinite or nonsense."""
    value, unit = _split(text, flag, "a rate; write 12 or 12/s or 90/min")
    per_second = {"": 1.0, "/s": 1.0, "/min": 1 / 60, "/m": 1 / 60, "/h": 1 / 3600}.get(unit)
    if per_second is None:
        raise UsageError(f"'{unit}' is not a unit of rate", where=flag, hint="write 12/s or 90/min")
    if not math.isfinite(value) or value <= 0:
        raise UsageError(
            f"a rate of {text} sends nothing",
            where=flag,
            hint="give a rate above 0, or a closed loop with --concurrency",
        )
    return value * per_second


def parse_share(text: str, *, flag: str = "") -> float:
    """'95%' or '0.95' -> 0.95. Raises UsageError outside [0, 1]."""
    value, unit = _split(text, flag, "a share; write 95% or 0.95")
    if unit not in ("", "%"):
        raise UsageError(f"'{unit}' is not a unit of share", where=flag, hint="write 95% or 0.95")
    share = value / 100 if unit == "%" else value
    if not 0 <= share <= 1:
        raise UsageError(f"'{text}' is not between 0 and 100%", where=flag, hint="write 95% or 0.95")
    return share


def parse_size(text: str, *, flag: str = "") -> int:
    """'24GiB' or '500MB' -> bytes (GiB is 2^30, GB is 10^9). Raises UsageError without a unit."""
    value, unit = _split(text, flag, "a size; write 24GiB or 500MB")
    if unit not in _SIZE:
        raise UsageError(f"'{text}' has no known unit of size", where=flag, hint="use kB, MB, GB, KiB, MiB or GiB")
    return round(value * _SIZE[unit])


def format_ms(ms: float | None, digits: int = 3) -> str:
    """Milliseconds for a table: significant digits, no unit; a dash for what is not known."""
    return "—" if ms is None else format_number(ms, digits)


def format_number(value: float | None, digits: int = 3) -> str:
    """A plain number with so many significant digits, thousands apart, never in exponent form; a dash for None."""
    if value is None or not math.isfinite(value):
        return "—"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, places):,.{places}f}"


def format_duration(ns: float) -> str:
    """Nanoseconds as people say them: 1.20 ms, 3.4 s, 2 min 5 s."""
    seconds = ns / NS_PER_S
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if abs(seconds) < 1:
        return f"{format_number(seconds * 1e3)} ms"
    if abs(seconds) < 120:
        return f"{format_number(seconds)} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
