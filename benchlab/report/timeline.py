"""The aligned timeline of a run: rates, in flight, TTFT by start time, tokens and telemetry on one clock.

A request stands where it started, tokens where they arrived; nothing is smoothed and bins without data stay empty.
Warm-up and drain are shaded, since they count for no number. It must not know the summary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchlab.metrics.columns import Floats
from benchlab.report.figure import Figure, key_item
from benchlab.report.html import Html, el, visible
from benchlab.report.points import Points, thin
from benchlab.report.svg import (
    Panel,
    Point,
    Scale,
    drawing,
    linear_domain,
    log_domain,
    log_ticks,
    milliseconds,
    nice_ticks,
    px,
    spread,
)
from benchlab.report.view import Stage
from benchlab.units import NS_PER_S, format_number

_ROW, _GAP, _LEFT, _TOP = 62.0, 34.0, 62.0, 50.0
_MAX_BINS = 600
_SCATTER = 2000
_GPU_LINES = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its title, the lines (class, points), and whether they are a staircase."""

    title: str
    lines: Sequence[tuple[str, Sequence[Point]]]
    step: bool = True
    shift: float = 1.0
    """Unit of the axis: values are divided by it."""
    names: Sequence[str] = ()
    """Of the lines, where they are drawn beside them."""


def _bins(points: Points) -> tuple[Floats, float]:
    """Bin edges in seconds: whole seconds, wider only when there would be too many."""
    times = np.concatenate([points.intended, points.end[np.isfinite(points.end)], points.token_times])
    low, high = (math.floor(times.min()), math.ceil(times.max()) + 1) if len(times) else (0, 1)
    low = min(low, 0) if low < 60 else low
    width = float(max(1, math.ceil((high - low) / _MAX_BINS)))
    return np.arange(low, high + width, width, dtype=np.float64), width


def _count(times: Floats, edges: Floats, width: float, weights: Floats | None = None) -> list[Point]:
    known = np.isfinite(times)
    counts, _ = np.histogram(times[known], edges, weights=None if weights is None else weights[known])
    return [(float(at), float(value) / width) for at, value in zip(edges[:-1], counts, strict=True)]


def _in_flight(points: Points, edges: Floats) -> list[Point]:
    """Requests sent and not yet ended, at each edge; one without an end was given up when its stage's drain ended."""
    gone = points.end.copy()
    for span in points.spans:
        gone[(points.stage == span.stage) & ~np.isfinite(gone)] = span.end
    known = np.isfinite(points.sent)
    sent, ended = np.sort(points.sent[known]), np.sort(gone[known & np.isfinite(gone)])
    level = np.searchsorted(sent, edges, side="right") - np.searchsorted(ended, edges, side="right")
    return [(float(at), float(value)) for at, value in zip(edges, level, strict=True)]


def _telemetry(table: pa.Table) -> dict[str, dict[str, list[Point]]]:
    """metric -> entity -> points; a reading without a value is a gap."""
    found: dict[str, dict[str, list[Point]]] = {}
    wanted = {"t_ns", "source", "entity", "metric", "value", "counter"}
    for row in table.select([name for name in table.column_names if name in wanted]).to_pylist():
        if not row["counter"] and row["t_ns"] is not None:
            lines = found.setdefault(f"{row['source']}/{row['metric']}", {})
            lines.setdefault(str(row["entity"]), []).append((row["t_ns"] / NS_PER_S, row["value"]))
    return found


_ROWS: tuple[tuple[str, Callable[[str, str], bool], float], ...] = (
    ("CPU, %", lambda s, m: s == "host" and m == "cpu_share", 0.01),
    ("host memory used, GB", lambda s, m: s == "host" and m == "memory_used_bytes", 1e9),
    ("GPU utilisation, %", lambda s, m: s == "nvml" and m == "utilization_share", 0.01),
    ("GPU power, W", lambda s, m: s == "nvml" and m == "power_w", 1.0),
    ("GPU memory used, GB", lambda s, m: s == "nvml" and m == "memory_used_bytes", 1e9),
    ("engine: requests running", lambda s, m: s == "engine" and "running" in m, 1.0),
    ("engine: requests waiting", lambda s, m: s == "engine" and "waiting" in m, 1.0),
)
_CLASSES = ("blue", "vermillion", "green", "purple")


def _telemetry_rows(table: pa.Table) -> list[Row]:
    readings, rows = _telemetry(table), []
    for title, wanted, shift in _ROWS:
        lines = {
            entity: points
            for key, entities in readings.items()
            if wanted(*key.split("/", 1))
            for entity, points in entities.items()
            if any(value is not None for _, value in points)
        }
        if lines:
            some = list(lines.items())[:_GPU_LINES]
            unit = _percent_unit([points for _, points in some], shift) if title.endswith("%") else shift
            coloured = [(_CLASSES[i % len(_CLASSES)], _thin_line(points)) for i, (_, points) in enumerate(some)]
            names = [visible(entity, 14) for entity, _ in some] if 1 < len(some) <= 4 else ()
            rows.append(Row(title, coloured, step=False, shift=unit, names=names))
    return rows


def _percent_unit(lines: Sequence[Sequence[Point]], shift: float) -> float:
    """Shares are multiplied by 100; readings that are per cent already are left."""
    top = max((value for line in lines for _, value in line if value is not None), default=0.0)
    return 1.0 if top > 64 else shift


def _thin_line(line: Sequence[Point], cap: int = 700) -> Sequence[Point]:
    step = math.ceil(len(line) / cap)
    return line[::step]


def timeline_figure(points: Points, telemetry: pa.Table, stages: Sequence[Stage]) -> Figure:
    """All rows on one time axis."""
    edges, width_s = _bins(points)
    rows = [
        Row(
            "requests/s: offered (dotted), sent, finished",
            [
                ("blue", _count(points.sent, edges, width_s)),
                ("vermillion thin", _count(points.end, edges, width_s)),
                ("ink dotted", _count(points.intended, edges, width_s)),
            ],
        ),
        Row("in flight, requests", [("blue", _in_flight(points, edges))]),
        Row(
            "output tokens/s, at arrival", [("green", _count(points.token_times, edges, width_s, points.token_weights))]
        ),
        *_telemetry_rows(telemetry),
    ]
    labels = {stage.index: stage.label for stage in stages}
    ttft = points.values["ttft"]
    good = np.flatnonzero(np.isfinite(ttft) & np.isfinite(points.sent) & points.ok)
    good = good[thin(ttft[good], _SCATTER)]
    failed = np.flatnonzero(~points.ok & np.isfinite(points.intended))
    crosses = failed[thin(np.zeros(len(failed)), 600)]

    def draw(width: float) -> Html:
        bottom = _TOP + (len(rows) + 1) * (_ROW + _GAP) - _GAP + 34
        x = Scale(float(edges[0]), float(edges[-1]), _LEFT, width - 12)
        base = Panel(x, Scale(0, 1, bottom, _TOP))
        _shade(base, points, labels, bottom)
        panels, top = [base], _TOP
        for place, row in enumerate([*rows[:2], None, *rows[2:]]):
            tall = _ROW + 34 if row is None else _ROW
            last = place == len(rows)
            panels.append(_scatter(points, x, top, tall, good, crosses) if row is None else _row(row, x, top, tall))
            panels[-1].frame_x(
                nice_ticks(x.low, x.high, 8 if width > 500 else 4) if last else [],
                "seconds from the start" if last else "",
            )
            top += tall + _GAP
        return drawing(width, bottom + 46, "Timeline of the run", panels)

    note = f"Bins of {format_number(width_s, 2)} s. Tinted: warm-up and drain, which count for no number."
    shown = int((np.isfinite(ttft) & points.ok).sum())
    if len(good) < shown:
        note += f" TTFT: {len(good):,} of {shown:,} requests are drawn, the slowest of them all."
    if len(crosses) < len(failed):
        note += f" {len(crosses):,} of {len(failed):,} failures are drawn."
    return Figure(
        "timeline",
        "What happened during the run",
        _reading(points, edges, width_s),
        draw,
        ("second", "offered /s", "sent /s", "finished /s", "in flight", "output tok/s"),
        _table(rows),
        note + " A request stands where it was sent, a token where it arrived; several GPUs are one line each.",
        legend=[
            key_item("blue", "sent, in flight"),
            key_item("vermillion thin", "finished"),
            key_item("ink dotted", "offered"),
            key_item("blue", "TTFT of one request", shape="dot"),
            key_item("vermillion", "request that failed (at the top edge)", shape="cross"),
        ],
    )


def _shade(panel: Panel, points: Points, labels: dict[int, str], bottom: float) -> None:
    """Warm-up and drain tinted, a rule and a label where each stage begins to count."""
    free = -1e9
    for span in points.spans:
        for low, high in ((span.start, span.w0), (span.w1, span.end)):
            left, right = panel.x.clamp(low), panel.x.clamp(high)
            if right > left:
                panel.add(
                    el("rect", x=px(left), y="24", width=px(right - left), height=px(bottom - 24), class_="shade")
                )
        at, label = panel.x.clamp(span.w0), labels.get(span.stage, "")
        panel.rule(at, 24, at, bottom, "stage")
        if at > free:
            panel.text(at + 3, 20, label, "tx label muted")
            free = at + 3 + 6.6 * len(label)


def _row(row: Row, x: Scale, top: float, tall: float) -> Panel:
    low, high = linear_domain([None if v is None else v / row.shift for _, line in row.lines for _, v in line])
    panel = Panel(x, Scale(low, high, top + tall, top))
    panel.frame_y(nice_ticks(low, high, 3), row.title)
    low_x, high_x = x.low, x.high
    for class_, line in row.lines:
        inside = [(at, v) for at, v in line if low_x <= at <= high_x]
        panel.line([(at, None if v is None else v / row.shift) for at, v in inside], class_, step=row.step)
    if row.names:
        ends = [next((v for _, v in reversed(line) if v is not None), 0.0) / row.shift for _, line in row.lines]
        places = spread([panel.y.clamp(end) for end in ends], 12, top + 4, top + tall)
        for name, place, (class_, _) in zip(row.names, places, row.lines, strict=True):
            panel.text(x.stop - 2, place - 3, name, f"tx label {class_}", "end")
    return panel


def _scatter(points: Points, x: Scale, top: float, tall: float, good: np.ndarray, crosses: np.ndarray) -> Panel:
    ttft = points.values["ttft"]
    low, high = log_domain(ttft[good].tolist())
    panel = Panel(x, Scale(low, high, top + tall, top, log=True))
    panel.frame_y(log_ticks(low, high, milliseconds, tall), "TTFT by time of sending (log)  ↓ lower is better")
    panel.cloud(zip(points.sent[good].tolist(), ttft[good].tolist(), strict=True), "blue")
    when = np.where(np.isfinite(points.sent), points.sent, points.intended)
    panel.crosses([(float(at), high) for at in when[crosses]], "vermillion")
    return panel


def _reading(points: Points, edges: Floats, width_s: float) -> str:
    if not len(points.intended):
        return "No request was made."
    level = _in_flight(points, edges)
    at, most = max(level, key=lambda point: point[1] or 0.0)
    tokens = sum(
        (value or 0.0) * width_s for _, value in _count(points.token_times, edges, width_s, points.token_weights)
    )
    return (
        f"{len(points.intended):,} requests over {format_number(float(edges[-1] - edges[0]))} s; in flight peaked at "
        f"{most:,.0f} after {format_number(at)} s; {tokens:,.0f} output tokens arrived, warm-up and drain included."
    )


def _table(rows: Sequence[Row], cap: int = 240) -> list[list[str]]:
    """The binned series behind the first rows, for the data table; a long run every few bins."""
    offered, sent, finished = rows[0].lines[2][1], rows[0].lines[0][1], rows[0].lines[1][1]
    series = [offered, sent, finished, rows[1].lines[0][1], rows[2].lines[0][1]]
    step = math.ceil(len(offered) / cap) or 1
    return [
        [format_number(offered[i][0]), *(format_number(line[i][1]) for line in series)]
        for i in range(0, len(offered), step)
    ]
