"""How much load one worker of this client can carry on this host, and all of them: against a server that never waits.

The one idea: a ceiling that does not depend on who else is using the cores: events by CPU second, with what was held
in wall time beside it. Two ceilings, because they differ: `burst` is the null server's flood, where one read holds
many events; `sharp` is one event a read, which is what a measurement needs. It must not know files or formats.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchlab.doctor.rig import Rig, Stage
from benchlab.loadgen.limits import raise_descriptor_limit
from benchlab.units import NS_PER_MS

TOKENS = 16
USERS = 64
_OTHER_EVENTS = 4
"""Of each answer: role, finish reason, usage, [DONE]. Rates here are of token events, the others' cost included."""
SHARP_RATE = 8000.0
"""Token events a second of the stage in which each event comes in a read of its own: well below any host's ceiling."""
_STREAMS = 1000
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class Rate:
    """What a stage held: units a second of wall time, units a CPU second of the workers, and how many workers.

    merged_share: events that shared a read with a later one. cpu_share: CPU of the busiest worker.
    """

    held_per_s: float
    per_cpu_s: float | None
    workers: int
    merged_share: float
    cpu_share: float


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Of one worker unless it says all. streams_held of streams_tried were open at once; streams_limit: what its open
    files allow, or the local ports that all workers share."""

    sharp: Rate
    burst: Rate
    requests: Rate
    burst_all: Rate
    sharp_all: Rate
    streams_tried: int
    streams_held: int
    streams_limit: int | None
    streams_limit_is: str
    ports: int | None

    @property
    def events_per_s(self) -> float | None:
        """Events a second that one worker carries with each in a read of its own, on a core to itself."""
        return self.sharp.per_cpu_s

    @property
    def requests_per_s(self) -> float | None:
        """Requests of one token a second, likewise."""
        return self.requests.per_cpu_s


def rate_of(stage: Stage, *, requests: bool = False) -> Rate:
    """What the loaded workers of a stage did in its sending phase: token events, or requests if asked."""
    busy = [report for report in stage.reports if report.requests and report.wall_s]
    share = 1.0 if requests else TOKENS / (TOKENS + _OTHER_EVENTS)
    units = [(report.requests if requests else report.events_sending) * share for report in busy]
    cpu, wall = sum(report.cpu_s for report in busy), max((report.wall_s for report in busy), default=0.0)
    events = sum(report.events for report in busy)
    return Rate(
        held_per_s=sum(units) / wall if wall else 0.0,
        per_cpu_s=sum(units) / cpu if cpu else None,
        workers=len(busy),
        merged_share=sum(report.merged_chunks for report in busy) / events if events else 0.0,
        cpu_share=max((report.cpu_s / report.wall_s for report in busy), default=0.0),
    )


def measure_sharp(rig: Rig, seconds: float, *, workers: list[int]) -> Rate:
    """One event a read: paced streams whose events fall on instants of their own."""
    rig.server.order(f"paced {10 * NS_PER_MS} {10 * NS_PER_MS} {TOKENS}")
    return rate_of(rig.open(SHARP_RATE / TOKENS / len(workers), seconds, workers=workers))


def measure_requests(rig: Rig, seconds: float) -> Rate:
    """Answers of one token, as fast as they come."""
    rig.server.order("null 1")
    return rate_of(rig.closed(USERS, seconds, workers=[0]), requests=True)


def warm_up(rig: Rig) -> None:
    """Connections, allocators and the server's code paths are met once before anything is measured."""
    rig.server.order("null")
    rig.closed(USERS, 0.2)


def measure(rig: Rig, cores: int, *, scale: float = 1.0) -> Ceiling:
    """The whole ceiling. The rig has at least `cores` workers; `scale` stretches every stage."""
    every = list(range(cores))
    sharp = measure_sharp(rig, 1.0 * scale, workers=[0])
    sharp_all = measure_sharp(rig, 1.0 * scale, workers=every) if cores > 1 else sharp
    requests = measure_requests(rig, 0.7 * scale)
    rig.server.order(f"null {TOKENS}")
    burst = rate_of(rig.closed(USERS, 0.7 * scale, workers=[0]))
    burst_all = rate_of(rig.closed(USERS * cores, 0.7 * scale, workers=every)) if cores > 1 else burst
    limit, why = stream_limit()
    tried = _STREAMS if limit is None else min(_STREAMS, limit)
    rig.server.order(f"paced {800 * NS_PER_MS} {50 * NS_PER_MS} 1")
    stage = rig.closed(tried, 0.6, workers=[0])
    held = stage.reports[0].peak_inflight
    return Ceiling(sharp, burst, requests, burst_all, sharp_all, tried, held, limit, why, num_ports())


def stream_limit() -> tuple[int | None, str]:
    """How many streams one worker may have open at once, and what says so: descriptors or local ports."""
    descriptors = raise_descriptor_limit(None)
    found: list[tuple[int, str]] = []
    if descriptors is not None:
        found.append((max(0, descriptors - 64), "open files (ulimit -n)"))
    if (ports := num_ports()) is not None:
        found.append((ports, "local ports to one address (ip_local_port_range)"))
    return min(found, default=(None, f"{sys.platform} does not say"))


def num_ports() -> int | None:
    """Local ports that connections to one address can use, None where the platform does not say."""
    try:
        low, high = _PORTS.read_text().split()
    except (OSError, ValueError):
        return None
    return int(high) - int(low) + 1
