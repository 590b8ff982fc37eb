"""ServeGen's client profiles: not requests, but per client a process of arrivals and distributions of lengths.

The one idea: requests are drawn from the profiles by a seed, window by window, each client a tenant with chance of its
own, so that one client's draw does not move another's. It must not know other formats.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from benchlab.errors import UsageError
from benchlab.workload.columns import Columns
from benchlab.workload.draw import Draw
from benchlab.workload.item import MAX_TOKENS, WorkloadItem
from benchlab.workload.items import LazyItems

_TRACE = re.compile(r"chunk-(\d+)-trace\.csv")
_WINDOW_S = 600.0
_SPAN_S = 3600.0
_MOST_ITEMS = 5_000_000
HINT = "a profile is a pair chunk-N-trace.csv and chunk-N-dataset.json, as ServeGen publishes them"


@dataclass(frozen=True, slots=True)
class _Window:
    """rate: requests a second. process: Gamma or Weibull with shape and scale (s) of the gaps."""

    start_s: float
    rate: float
    process: str
    shape: float
    scale: float


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Values and their summed chances, from one window on."""

    values: list[int]
    sums: list[float]

    def at(self, share: float) -> int:
        return self.values[min(bisect_right(self.sums, share * self.sums[-1]), len(self.values) - 1)]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Items drawn from profiles, with what is told of them; read and dropped count requests drawn."""

    items: LazyItems
    sha256: str
    read: int
    dropped: dict[str, int]
    notes: tuple[str, ...]


def profiles_of(path: str) -> list[Path]:
    """The trace files of the profiles that a path names (one of a pair, or a folder of pairs); none for others."""
    place = Path(path)
    try:
        if place.is_dir():
            found = [one for one in place.iterdir() if _TRACE.fullmatch(one.name)]
            return sorted(found, key=lambda one: int(_TRACE.fullmatch(one.name)[1]))  # type: ignore[index]
    except (OSError, ValueError):
        return []
    return [place] if _TRACE.fullmatch(place.name) else []


def draw_profiles(paths: list[Path], *, seed: int = 0, span_s: tuple[float, float] | None = None) -> Drawn:
    """Requests of all clients in a span; if None, an hour from the first window in which anyone sends.

    Raises UsageError for profiles that are broken.
    """
    traces = {path: list(_windows(_bytes(path), path)) for path in paths}
    active = [window.start_s for found in traces.values() for window in found if window.rate > 0 and window.process]
    first = min(active, default=0.0)
    start_s, end_s = span_s or (first, first + _SPAN_S)
    columns, digest = Columns(), hashlib.sha256()
    rows: list[tuple[float, int, int, str]] = []
    dropped: dict[str, int] = {}
    read = idle = windows = 0
    for path in paths:
        client = path.name.removesuffix("-trace.csv").replace("chunk-", "client-")
        trace, data = _bytes(path), _bytes(path.with_name(path.name.replace("-trace.csv", "-dataset.json")))
        digest.update(hashlib.sha256(trace).digest() + hashlib.sha256(data).digest())
        lengths = _dataset(data, path)
        draw = Draw(seed, f"servegen {client}")
        for window in traces[path]:
            if window.start_s + _WINDOW_S <= start_s or window.start_s >= end_s:
                continue
            windows += 1
            if window.rate <= 0 or not window.process:
                idle += 1
                continue
            for at in _gaps(window, draw):
                if not start_s <= at < end_s:
                    continue
                read += 1
                asked, answered, reason = _lengths_at(lengths, window.start_s, draw)
                if reason is not None:
                    dropped[reason] = dropped.get(reason, 0) + 1
                    continue
                rows.append((at - start_s, asked, answered, client))
                if len(rows) > _MOST_ITEMS:
                    raise UsageError(
                        f"more than {_MOST_ITEMS:,} requests", where=str(path), hint="ask for a shorter span"
                    )
    if not rows:
        raise UsageError(
            f"no client sends anything from {start_s:g} to {end_s:g} s",
            where=str(paths[0].parent),
            hint="ask for another span",
        )
    rows.sort(key=lambda row: row[0])
    for place, (at, asked, answered, client) in enumerate(rows, 1):
        item = WorkloadItem(arrival_s=round(at, 9), input_tokens=asked, output_tokens=answered, tenant=client)
        columns.put_item(place, item)
    arrival = np.array(columns.view("arrival_s"))
    notes = (
        f"drawn by seed {seed} from {len(paths)} client profiles, {start_s:g} to {end_s:g} s; not recorded requests",
        f"{idle:,} of {windows:,} windows are idle",
    )
    return Drawn(LazyItems(columns, np.arange(len(columns)), arrival), digest.hexdigest(), read, dropped, notes)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise UsageError(f"cannot be read: {fault.strerror}", where=str(path), hint=HINT) from None


def _windows(trace: bytes, path: Path) -> Iterator[_Window]:
    for number, line in enumerate(trace.decode(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        cells = line.split(",")
        try:
            start, rate, _, shape, scale = (float(cells[place]) for place in (0, 1, 2, 4, 5))
            sound = len(cells) == 6 and all(map(math.isfinite, (start, rate, shape, scale))) and start >= 0 <= rate
        except (ValueError, IndexError):
            sound = False
        if not sound or cells[3] not in ("", "Gamma", "Weibull"):
            raise UsageError(
                "expected start, rate, CV, Gamma or Weibull or nothing, and two parameters",
                where=f"{path}:{number}",
                hint=HINT,
            )
        if cells[3] and rate > 0 and not (0 < shape < 1e6 and 0 < scale < 1e9):
            raise UsageError("expected a shape and a scale above 0", where=f"{path}:{number}", hint=HINT)
        yield _Window(start, rate, cells[3], shape, scale)


def _gaps(window: _Window, draw: Draw) -> Iterator[float]:
    """Arrivals in a window: a renewal process whose first gap is one of its own."""
    at = window.start_s
    while True:
        share = max(draw.below(2**52), 1) / 2**52
        at += window.scale * _quantile(window, share)
        if at >= window.start_s + _WINDOW_S:
            return
        yield at


def _quantile(window: _Window, share: float) -> float:
    if window.process == "Weibull":
        return float((-math.log1p(-share)) ** (1 / window.shape))
    from scipy.special import gammaincinv

    return float(gammaincinv(window.shape, share))


_Distributions = dict[str, list[tuple[float, _Lengths]]]


def _dataset(data: bytes, path: Path) -> _Distributions:
    """Name -> (window start, distribution), in order. The dicts are Python literals in strings: parsed, never run."""
    found: _Distributions = {}
    try:
        windows: dict[str, dict[str, Any]] = json.loads(data)
        for start in sorted(windows, key=float):
            for name, literal in windows[start].items():
                values = ast.literal_eval(literal) if isinstance(literal, str) else literal
                pairs = sorted((float(value), float(chance)) for value, chance in values.items() if float(chance) > 0)
                if pairs and name != "reason_ratio":
                    lengths = _Lengths([round(value) for value, _ in pairs], list(accumulate(c for _, c in pairs)))
                    found.setdefault(name, []).append((float(start), lengths))
    except (ValueError, SyntaxError, AttributeError, TypeError, RecursionError, MemoryError, OverflowError) as fault:
        raise UsageError(f"is no ServeGen data set: {fault}", where=str(path), hint=HINT) from None
    if "output_tokens" not in found or not any(name in found for name in ("input_tokens", "text_tokens")):
        raise UsageError("has no lengths of inputs and outputs", where=str(path), hint=HINT)
    return found


def _lengths_at(found: _Distributions, start_s: float, draw: Draw) -> tuple[int, int, str | None]:
    def one(name: str) -> int:
        steps = found[name]
        place = max(0, bisect_right(steps, start_s, key=itemgetter(0)) - 1)  # carried forward
        return steps[place][1].at(draw.below(2**52) / 2**52)

    asked = one("input_tokens" if "input_tokens" in found else "text_tokens")
    answered = one("output_tokens")
    if asked < 1:
        return 0, 0, "no input tokens"
    if answered < 1:
        return 0, 0, "no output tokens (a failed request of the source)"
    return min(asked, MAX_TOKENS), min(answered, MAX_TOKENS), None
