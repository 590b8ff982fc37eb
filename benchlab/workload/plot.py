"""Arrivals and lengths drawn in text, for a terminal: what the figures of `inspect` look like.

Nothing is smoothed: a bar is a count in a bin, and the bins are told. It must not know where the items came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchlab.units import format_number
from benchlab.workload.item import WorkloadItem
from benchlab.workload.items import lazily

_BARS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL = 18


def draw(items: Sequence[WorkloadItem], width: int = 80) -> str:
    """Arrivals over time, and the lengths and waits in bins that double. width: columns of the terminal."""
    found = lazily(items)
    columns, rows = found.columns, found.rows
    room = max(16, width - _LABEL - 12)
    lines: list[str] = []
    times = found.arrival_s[rows]
    times = times[~np.isnan(times)]
    if len(times) > 1 and times.max() > times.min():
        lines += _over_time(times - times.min(), max(16, width - 2))
    for title, name in (("input tokens", "input"), ("output tokens", "output")):
        values = columns.view(name)[rows]
        lines += _doubling(title, values[values > 0], room)
    chars = columns.view("chars")[rows]
    lines += _doubling("characters of text", chars[chars > 0], room)
    waits = columns.view("wait_s")[rows]
    lines += _doubling("waits, s", waits[waits > 0], room)
    if columns.sessions:
        per = np.bincount(columns.view("session")[rows] + 1)[1:]
        lines += _doubling("items in a session", per[per > 0], room)
    return "\n".join(lines) or "nothing to draw: neither times nor lengths"


def _over_time(at: Any, width: int) -> list[str]:
    span = float(at.max())
    counts = np.bincount(np.minimum((at / span * width).astype(np.int64), width - 1), minlength=width)
    most = int(counts.max())
    heights = -(-counts * 8 // most)
    bar = "".join(_BARS[height] for height in heights.tolist())
    bin_s = span / width
    return [
        f"arrivals in bins of {format_number(bin_s, 3)} s, from 0 to {format_number(span, 4)} s; "
        f"the highest is {most:,} ({format_number(most / bin_s, 3)} a second)",
        f" {bar}",
        "",
    ]


def _doubling(title: str, values: Any, room: int) -> list[str]:
    """A bar for each bin [2^k, 2^(k+1)) from the least to the largest value."""
    if not len(values):
        return []
    powers = np.floor(np.log2(values)).astype(np.int64)
    low = int(powers.min())
    counts = np.bincount(powers - low)
    most = int(counts.max())
    lines = [f"{title} ({len(values):,} items)"]
    for place, count in enumerate(counts.tolist()):
        first, last = 2.0 ** (low + place), 2.0 ** (low + place + 1)
        label = f"{format_number(first, 3)} to {format_number(last, 3)}"
        eighths = -(-count * room * 8 // most)
        bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
        lines.append(f" {label:>{_LABEL}} {bar} {count:,}".rstrip())
    return [*lines, ""]
