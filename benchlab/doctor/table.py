"""The examination on the terminal (80 columns) and as JSON.

The one idea: plain text; units stand in headers, a note stands where it is amiss, and nothing is shown that was not
measured. It must not measure.
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from benchlab.doctor.ceiling import Ceiling, Rate
from benchlab.doctor.exactness import Error, Spread
from benchlab.doctor.examine import Examination
from benchlab.doctor.host import Timers
from benchlab.report.html import visible
from benchlab.units import format_number

WIDTH = 80
_BY_CPU = (
    "'By CPU second' is what a worker carries on a core to itself, whoever else computes; what was 'held' here shared "
    "the host with the server and with others."
)
_MERGED = (
    "Merged: chunks that shared a read with a later event; in brackets, the share of them whose true time lies within "
    "the slack that their record states."
)


def as_json(found: Examination) -> dict[str, Any]:
    """Everything, with the words of the notes; parts that were not asked for are null or empty."""
    plain = asdict(found)
    ceiling = plain["ceiling"]
    if ceiling is not None and found.ceiling is not None:
        ceiling["events_per_s"] = found.ceiling.events_per_s
        ceiling["requests_per_s"] = found.ceiling.requests_per_s
    return {"schema": 1, **plain, "passed": not found.failed}


def as_text(found: Examination) -> str:
    """The table."""
    lines = [f"benchlab doctor {found.version}, {found.took_s:.1f} s"]
    if found.facts:
        lines += ["", "host"]
        lines += [_line(fact.name.replace("_", " "), fact.value or "not told", 16) for fact in found.facts]
    if found.timers is not None:
        lines += ["", *_timers(found.timers)]
    if found.ceiling is not None:
        lines += ["", *_ceiling(found.ceiling)]
    if found.exactness:
        lines += ["", *_exactness(found.exactness)]
    if found.url is not None:
        lines += ["", *_endpoint(found)]
    if found.notes:
        lines += ["", "notes", *(_wrap(f"! {note}", 4) for note in found.notes)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrap(text: str, indent: int) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent=" " * indent, break_long_words=True)


def _line(name: str, value: str, column: int) -> str:
    return _wrap(f"{name:<{column}}{value}", column + 2)


def _row(*cells: str, widths: tuple[int, ...]) -> str:
    """The first cell to the left, the others to the right."""
    first, *rest = cells
    return (
        "  " + first.ljust(widths[0]) + "".join(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
    )


def _timers(timers: Timers) -> list[str]:
    widths = (34, 12, 12, 12)
    return [
        _row(f"lateness, ms ({timers.loop})", "p50", "p99", "max", widths=widths)[2:],
        _row("absolute timer that sends requests", *_ms(timers.wake_p50, timers.wake_p99, None), widths=widths),
        _row("the loop's own timer", *_ms(timers.sleep_p50, timers.sleep_p99, None), widths=widths),
        _row("idle loop", *_ms(timers.lag_p50, timers.lag_p99, timers.lag_max), widths=widths),
    ]


def _ms(*values: float | None) -> tuple[str, ...]:
    return tuple(format_number(value) for value in values)


def _ceiling(found: Ceiling) -> list[str]:
    widths = (30, 16, 16, 14)
    every = found.burst_all.workers

    def row(name: str, rate: Rate) -> str:
        merged = f"{rate.merged_share:.0%}"
        return _row(name, f"{rate.held_per_s:,.0f}", _count(rate.per_cpu_s), merged, widths=widths)

    lines = [_row("ceiling of this client, per s", "held", "by CPU second", "merged", widths=widths)[2:]]
    lines += [row("token events, one a read", found.sharp), row("token events, in a flood", found.burst)]
    lines += [row("requests of one token", found.requests)]
    if every > 1:
        lines += [row(f"events, one a read, {every} workers", found.sharp_all)]
        lines += [row(f"events in a flood, {every} workers", found.burst_all)]
    limit = "no limit told" if found.streams_limit is None else f"at most {found.streams_limit:,}"
    streams = f"{found.streams_held:,} of {found.streams_tried:,} tried were open at once; {limit}"
    lines.append(_line("streams of a worker", f"{streams}, by {found.streams_limit_is}", 22))
    if found.ports is not None:
        lines.append(_line("streams of all", f"at most {found.ports:,} to one address, by local ports", 22))
    lines.append(_wrap(_BY_CPU, 2))
    return lines


def _count(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}"


def _exactness(errors: list[Error]) -> list[str]:
    widths = (9, 8, 7, 7, 7, 7, 7, 7, 12, 6)
    head = ("stamps", "events", "first", "", "", "gap", "", "", "merged", "CPU")
    under = ("", "/s", "p50", "p99", "max", "p50", "p99", "max", "(held)", "")
    lines = ["error of the client's times against the server's log, ms"]
    lines += [_row(*head, widths=widths), _row(*under, widths=widths)]
    for error in errors:
        held = "" if error.covered_share is None else f"({error.covered_share:.0%})"
        merged = f"{error.merged_share:.0%} {held}".strip()
        cells = (*_error(error.first), *_error(error.gap), merged, f"{error.cpu_share:.0%}")
        lines.append(_row(error.stamps, f"{error.rate:,.0f}", *cells, widths=widths))
    lines.append(_wrap(_MERGED, 2))
    return lines


def _error(spread: Spread) -> tuple[str, ...]:
    return tuple(_short(value) for value in (spread.p50, spread.p99, spread.max))


def _short(value: float | None) -> str:
    """At most six characters with a space before them, in any order of size."""
    if value is None:
        return "—"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _endpoint(found: Examination) -> list[str]:
    lines = [_wrap(visible(f"endpoint {found.url}, model {found.model}"), 4)[2:]]
    for check in found.checks:
        head = f"{check.state:<5}{check.api:<12}{check.name.replace('_', ' '):<14}"
        lines.append(_wrap(head + visible(check.seen).replace("\n", " "), 33))
    failed, skipped = len(found.failed), sum(check.state == "SKIP" for check in found.checks)
    passed = len(found.checks) - failed - skipped
    lines.append(f"  {passed} passed, {failed} failed, {skipped} skipped")
    return lines
