"""Rows of the engine's speed, as text and as a table between two markers of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

START, END = "<!-- engine_speed: start -->", "<!-- engine_speed: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured; ratio above 1 is in our favour, target is the least that is asked for."""

    title: str
    ours: str = ""
    theirs: str = ""
    ratio: float | None = None
    target: float | None = None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} x"
        target = "" if self.target is None else f"{self.target:.1f} x"
        return (self.title, self.ours, self.theirs, ratio, target, self.note)

    def line(self) -> str:
        widths = (42, 14, 14, 8, 7, 0)
        return " ".join(cell.ljust(width) for cell, width in zip(self.cells(), widths, strict=True)).rstrip()


def table(where: str, rows: Sequence[Row]) -> str:
    head = ("what", "ours", "against", "ratio", "asked", "")
    lines = [f"Measured {where}.", "", f"| {' | '.join(head)} |", "|---|---:|---:|---:|---:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.cells())} |" for row in rows)])


def lacks(file: Path | None, start: str = START, end: str = END) -> str | None:
    """What is wrong with a report to write into: it must have both markers, each a line of its own."""
    if file is None or {start, end} <= set(file.read_text("utf-8").splitlines()):
        return None
    return f"{file} lacks the lines {start} and {end}"


def insert(text: str, new: str, start: str = START, end: str = END) -> str:
    """text with what stands between the markers replaced."""
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n\n{new}\n\n{end}{after}"
