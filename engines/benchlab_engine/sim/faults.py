"""Misbehaviour on request, for those who test a client against this server.

The one idea: a fault is one frozen value parsed from text; whoever writes the answer asks it what to do at each token.
It must not know the wire form it spoils.

    stall=500ms@3   reset@5   error@5   drip=1ms   usage=+7   slow-start=200ms   no-finish   no-done   status=429
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchlab_engine.sim.costs import parse_duration


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one answer. Token numbers count from 1; 0 is never. Durations in ns.

    drip_ns: between single bytes of each event. usage_offset: added to the reported completion tokens.
    """

    stall_at: int = 0
    stall_ns: int = 0
    reset_at: int = 0
    error_at: int = 0
    drip_ns: int = 0
    usage_offset: int = 0
    slow_start_ns: int = 0
    no_finish: bool = False
    no_done: bool = False
    status: int = 0


NO_FAULT = Fault()


def parse_fault(text: str) -> Fault:
    """Faults joined by commas. ValueError with what was expected."""
    fault = NO_FAULT
    for part in filter(None, (each.strip() for each in text.split(","))):
        fault = _with(fault, part)
    return fault


def _with(fault: Fault, part: str) -> Fault:  # noqa: PLR0911  one line a fault
    head, _, at = part.partition("@")
    name, _, value = head.partition("=")
    try:
        match name:
            case "stall":
                return replace(fault, stall_ns=parse_duration(value), stall_at=int(at or "1"))
            case "reset":
                return replace(fault, reset_at=int(at or "1"))
            case "error":
                return replace(fault, error_at=int(at or "1"))
            case "drip":
                return replace(fault, drip_ns=parse_duration(value))
            case "usage":
                return replace(fault, usage_offset=int(value))
            case "slow-start":
                return replace(fault, slow_start_ns=parse_duration(value))
            case "no-finish":
                return replace(fault, no_finish=True)
            case "no-done":
                return replace(fault, no_done=True)
            case "status" if 400 <= int(value) <= 599:
                return replace(fault, status=int(value))
    except ValueError as error:
        raise ValueError(f"fault {part!r}: {error}") from None
    raise ValueError(
        f"fault {part!r} is not known; use stall=500ms@3, reset@5, error@5, drip=1ms, usage=+7, slow-start=200ms, "
        "no-finish, no-done or status=503"
    )
