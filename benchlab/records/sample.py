"""One reading of telemetry: who, what, when, and the value or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """A row of `telemetry.parquet`.

    t_ns: nanoseconds from the host's t0 (the same clock as the records). source: nvml | host | engine.
    entity: a GPU's UUID, "host", a process ("worker-0"), or a scrape URL. metric: name with its unit as suffix where
    it has one (power_w, memory_used_bytes, utilization_share, energy_j). counter: True if it only grows.
    value: float, or None with the `reason` said once.
    """

    t_ns: int
    source: str
    entity: str
    metric: str
    value: float | None
    counter: bool = False
    labels: str = ""
    reason: str | None = None
