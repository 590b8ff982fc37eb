"""Energy of a window, from samples: the counter where there is one, else power over the real sample times.

Devices are summed, never averaged (C85). What cannot be known (a reset, a hole, a device without either) makes the
sum a lower bound or None, with the reason; missing is never 0 J.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchlab.metrics.window import Window
from benchlab.records.sample import Sample
from benchlab.units import NS_PER_S

MAX_HOLE_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class DeviceEnergy:
    """One device's joules. method: "counter", "power" or "none"; reasons: why it is a lower bound, or None."""

    entity: str
    joules: float | None
    method: str
    lower_bound: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Energy:
    """All devices together. joules is None as soon as one device tells nothing: half a sum is not a small sum."""

    joules: float | None
    lower_bound: bool
    devices: tuple[DeviceEnergy, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every device's caveats, with its name."""
        return tuple(f"{device.entity}: {reason}" for device in self.devices for reason in device.reasons)


Point = tuple[int, float]


def _points(samples: Sequence[Sample], metric: str) -> list[Point]:
    return sorted((s.t_ns, s.value) for s in samples if s.metric == metric and s.value is not None)


def _at(before: Point, after: Point, t_ns: int) -> float:
    share = (t_ns - before[0]) / (after[0] - before[0])
    return before[1] + (after[1] - before[1]) * share


def _pieces(points: Sequence[Point], w0_ns: int, w1_ns: int) -> list[tuple[Point, Point]]:
    """Neighbouring points that overlap [w0, w1), cut at its edges by straight lines."""
    pieces = []
    for before, after in pairwise(points):
        start, end = max(before[0], w0_ns), min(after[0], w1_ns)
        if start < end:
            first = before if start == before[0] else (start, _at(before, after, start))
            last = after if end == after[0] else (end, _at(before, after, end))
            pieces.append((first, last))
    return pieces


def _uncovered(points: Sequence[Point], w0_ns: int, w1_ns: int) -> list[str]:
    """Why the points do not span the window, if they do not."""
    reasons = []
    if points[0][0] > w0_ns:
        reasons.append(f"no reading before the window's first {(points[0][0] - w0_ns) / 1e9:.2f} s")
    if points[-1][0] < w1_ns:
        reasons.append(f"no reading after the window's last {(w1_ns - points[-1][0]) / 1e9:.2f} s")
    return reasons


def _from_counter(entity: str, points: Sequence[Point], w0_ns: int, w1_ns: int) -> DeviceEnergy:
    joules, resets = 0.0, 0
    for before, after in pairwise(points):
        overlap_ns = min(after[0], w1_ns) - max(before[0], w0_ns)
        if overlap_ns <= 0:
            continue
        share = overlap_ns / (after[0] - before[0])
        resets += after[1] < before[1]
        # after a reset the counter began at 0 at an unknown time: with the edge of the window in that interval,
        # none of it can be claimed
        grown = after[1] - before[1] if after[1] >= before[1] else after[1] if share == 1 else 0.0
        joules += grown * share
    reasons = _uncovered(points, w0_ns, w1_ns)
    if resets:
        reasons.append(f"the energy counter was reset {resets} times")
    return DeviceEnergy(entity, joules, "counter", bool(reasons), tuple(reasons))


def _from_power(entity: str, points: Sequence[Point], w0_ns: int, w1_ns: int) -> DeviceEnergy:
    joules, holes_ns = 0.0, 0
    wide = {(before[0], after[0]) for before, after in pairwise(points) if after[0] - before[0] > MAX_HOLE_NS}
    for first, last in _pieces(points, w0_ns, w1_ns):
        if any(start <= first[0] and last[0] <= end for start, end in wide):
            holes_ns += last[0] - first[0]
        else:
            joules += (first[1] + last[1]) / 2 * (last[0] - first[0]) / 1e9
    reasons = _uncovered(points, w0_ns, w1_ns)
    if holes_ns:
        reasons.append(f"no power reading for {holes_ns / 1e9:.1f} s of the window")
    return DeviceEnergy(entity, joules, "power", bool(reasons), tuple(reasons))


def _device(entity: str, samples: Sequence[Sample], w0_ns: int, w1_ns: int) -> DeviceEnergy:
    for metric, method in (("energy_j", _from_counter), ("power_w", _from_power)):
        points = _points(samples, metric)
        if _pieces(points, w0_ns, w1_ns):
            return method(entity, points, w0_ns, w1_ns)
    said = {s.reason for s in samples if s.metric in ("energy_j", "power_w") and s.reason}
    reasons = tuple(sorted(said)) or ("no two readings of energy or power touch the window",)
    return DeviceEnergy(entity, None, "none", False, reasons)


def window_energy(samples: Iterable[Sample], w0_ns: int, w1_ns: int, devices: Sequence[str] | None = None) -> Energy:
    """Joules that the GPUs used in [w0, w1) (ns from t0), summed over devices.

    devices: UUIDs to count; by default all that NVML samples speak of, except instances of a MIG board that is
    sampled itself (the board's figure holds them). Nothing to count: joules is None.
    """
    by_device: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.source == "nvml" and (devices is None or sample.entity in devices):
            by_device.setdefault(sample.entity, []).append(sample)
    if devices is None:
        boards = set(by_device)
        for entity, rows in list(by_device.items()):
            parent = rows[0].labels.partition('parent="')[2].partition('"')[0]
            if parent in boards:
                del by_device[entity]
    else:
        by_device = {entity: by_device.get(entity, []) for entity in devices}
    each = tuple(_device(entity, rows, w0_ns, w1_ns) for entity, rows in by_device.items())
    told = [device.joules for device in each if device.joules is not None]
    joules = sum(told) if each and len(told) == len(each) else None
    return Energy(joules, any(device.lower_bound for device in each), each)


LEAST_IDLE_NS = NS_PER_S
"""A span outside of all stages that is shorter tells no idle power."""


class EnergyReadings:
    """The readings of energy and power in a run's telemetry, made into Samples once, and the power at rest.

    manifest: its stages say when there was load.
    """

    def __init__(self, telemetry: pa.Table, manifest: Mapping[str, Any]) -> None:
        self.samples: list[Sample] = []
        self._manifest = manifest
        if telemetry.num_rows:
            wanted = pc.and_(
                pc.equal(telemetry.column("source"), "nvml"),
                pc.is_in(telemetry.column("metric"), value_set=pa.array(["energy_j", "power_w"])),
            )
            rows = telemetry.filter(wanted).to_pylist()
            self.samples = [
                Sample(**{**row, "labels": row["labels"] or "", "reason": row["reason"] or ""}) for row in rows
            ]
        self._idle = self._idle_watts()

    def _idle_watts(self) -> float | None:
        """The lowest mean power of a span of a second or more outside of all stages; None where there is none."""
        if not self.samples:
            return None
        spans = sorted(
            (int(entry["start_ns"]), int(entry.get("drain_end_ns") or entry["start_ns"]))
            for entry in self._manifest.get("stages") or []
            if entry.get("start_ns") is not None
        )
        times = [sample.t_ns for sample in self.samples]
        edges = [min(times), *(edge for span in spans for edge in span), max(times)]
        found = []
        for begin, end in zip(edges[0::2], edges[1::2], strict=True):
            if end - begin >= LEAST_IDLE_NS:
                energy = window_energy(self.samples, begin, end)
                if energy.joules is not None and not energy.lower_bound:
                    found.append(energy.joules / ((end - begin) / NS_PER_S))
        return min(found, default=None)

    def of(self, window: Window | None) -> dict[str, Any]:
        """The energy of a stage's window as summary.json has it; joules is None with `why` where it is not known.

        idle_joules: what the devices would have used at rest in that time; None where no rest was sampled.
        """
        if window is None or not self.samples:
            why = "no measured window" if window is None else "no energy or power of a GPU was sampled"
            return {"joules": None, "why": why}
        found = window_energy(self.samples, window.w0_ns, window.w1_ns)
        if found.joules is None:
            return {"joules": None, "why": "; ".join(found.reasons) or "no device told its energy"}
        return {
            "joules": found.joules,
            "watts": found.joules / window.seconds,
            "lower_bound": found.lower_bound,
            "reasons": list(found.reasons),
            "idle_watts": self._idle,
            "idle_joules": None if self._idle is None else self._idle * window.seconds,
            "devices": {d.entity: {"joules": d.joules, "method": d.method} for d in found.devices},
            "why": "",
        }
