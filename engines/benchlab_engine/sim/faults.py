"""Misbehaviour on request, for those who test a client against this server.

The one idea: a fault is one frozen value parsed from text; whoever writes the answer asks it what to do at each token.
It must not know the wire form it spoils.

    stall=500ms@3   reset@5   error@5   garbage@5   drip=1ms   split   merge=4   burst=8   keepalive=1s   role-early
    usage=+7   no-usage   usage-every   slow-start=200ms   no-finish   no-done   status=429
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchlab_engine.sim.costs import parse_duration


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one answer. Token numbers count from 1; 0 is never. Durations in ns.

    drip_ns: between single bytes of each event; split: each byte by itself, without a pause. merge: so many tokens
    come in one event; burst: so many events are held back and written at once. garbage_at: bytes that are no event
    come before that token. keepalive_ns: a comment line after so much silence, from the head on. role_early: the head
    does not wait for the first token. usage_offset: added to the reported completion tokens; no_usage, usage_every:
    usage is told never, or with each event.
    """

    stall_at: int = 0
    stall_ns: int = 0
    reset_at: int = 0
    error_at: int = 0
    garbage_at: int = 0
    drip_ns: int = 0
    split: bool = False
    merge: int = 0
    burst: int = 0
    keepalive_ns: int = 0
    role_early: bool = False
    usage_offset: int = 0
    no_usage: bool = False
    usage_every: bool = False
    slow_start_ns: int = 0
    no_finish: bool = False
    no_done: bool = False
    status: int = 0

    @property
    def opens_early(self) -> bool:
        """The head goes out before there is anything to say."""
        return self.role_early or self.keepalive_ns > 0


_FLAGS = {
    "split": "split", "role-early": "role_early", "no-usage": "no_usage", "usage-every": "usage_every",
    "no-finish": "no_finish", "no-done": "no_done",
}  # fmt: skip
_USE = (
    "use stall=500ms@3, reset@5, error@5, garbage@5, drip=1ms, split, merge=4, burst=8, keepalive=1s, role-early, "
    "usage=+7, no-usage, usage-every, slow-start=200ms, no-finish, no-done or status=503"
)

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
    if part in _FLAGS:
        return replace(fault, **{_FLAGS[part]: True})
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
            case "garbage":
                return replace(fault, garbage_at=int(at or "1"))
            case "merge" | "burst" if 1 <= int(value) <= 100_000:
                return replace(fault, merge=int(value)) if name == "merge" else replace(fault, burst=int(value))
            case "keepalive" if parse_duration(value) >= 1_000_000:
                return replace(fault, keepalive_ns=parse_duration(value))
            case "status" if 400 <= int(value) <= 599:
                return replace(fault, status=int(value))
    except ValueError as error:
        raise ValueError(f"fault {part!r}: {error}") from None
    raise ValueError(f"fault {part!r} is not known; {_USE}")
