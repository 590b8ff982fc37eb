"""NVIDIA GPUs, through nvidia-ml-py: what each chosen device says of itself, in plain units.

Fields are rows of a table. One that a device does not support becomes a Sample without a value, with the reason,
once; it is never 0 and never an error. No driver is a note said once. It must not know what serves on the GPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchlab.records.sample import Sample
from benchlab.telemetry.devices import Device, Selection, named_devices, visible_devices

Now = Callable[[], int]

_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_PCIE_EVERY = 4
"""NVML watches the bus for 20 ms a reading and blocks meanwhile, so PCIe is read in every fourth pass only."""

THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""NVML's bits of the clock-event (throttle) reasons."""


def throttle_names(mask: float) -> list[str]:
    """The reasons in a `throttle_reasons` value, by name."""
    return [name for bit, name in THROTTLE_REASONS.items() if int(mask) & bit]


@dataclass(frozen=True, slots=True)
class _Field:
    """One call and the metrics it gives, in their units; `every` passes."""

    metrics: tuple[str, ...]
    call: Callable[[Any, Any], tuple[float | None, ...]]
    counter: bool = False
    every: int = 1


def _scaled(value: int, factor: float) -> float | None:
    return None if value in _NOT_AVAILABLE else value * factor


def _utilization(nvml: Any, handle: Any) -> tuple[float | None, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return _scaled(rates.gpu, 0.01), _scaled(rates.memory, 0.01)


def _memory(nvml: Any, handle: Any) -> tuple[float | None, ...]:
    """used, reserved, total. Version 2 counts what the driver reserves apart; version 1 counts it as used."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return _scaled(memory.used, 1), _scaled(memory.reserved, 1), _scaled(memory.total, 1)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported, nvml.NVMLError_ArgumentVersionMismatch):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return _scaled(memory.used, 1), None, _scaled(memory.total, 1)


def _clock(kind: str) -> Callable[[Any, Any], tuple[float | None, ...]]:
    return lambda nvml, handle: (_scaled(nvml.nvmlDeviceGetClockInfo(handle, getattr(nvml, kind)), 1),)


def _throttle(nvml: Any, handle: Any) -> tuple[float | None, ...]:
    try:
        return (float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),)
    except nvml.NVMLError_FunctionNotFound:  # drivers before 535 know the older name only
        return (float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),)


def _pcie(way: str) -> Callable[[Any, Any], tuple[float | None, ...]]:
    """Bytes a second over NVML's own window of 20 ms; it gives KB/s, taken as 1000 bytes."""
    return lambda nvml, handle: (_scaled(nvml.nvmlDeviceGetPcieThroughput(handle, getattr(nvml, way)), 1000),)


_FIELDS = (
    _Field(("utilization_share", "memory_utilization_share"), _utilization),
    _Field(("memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"), _memory),
    _Field(("power_w",), lambda nvml, h: (_scaled(nvml.nvmlDeviceGetPowerUsage(h), 1e-3),)),
    _Field(("power_limit_w",), lambda nvml, h: (_scaled(nvml.nvmlDeviceGetEnforcedPowerLimit(h), 1e-3),)),
    _Field(("energy_j",), lambda nvml, h: (_scaled(nvml.nvmlDeviceGetTotalEnergyConsumption(h), 1e-3),), counter=True),
    _Field(("temperature_c",), lambda nvml, h: (_scaled(nvml.nvmlDeviceGetTemperature(h, 0), 1),)),
    _Field(("sm_clock_mhz",), _clock("NVML_CLOCK_SM")),
    _Field(("memory_clock_mhz",), _clock("NVML_CLOCK_MEM")),
    _Field(("throttle_reasons",), _throttle),
    _Field(("pcie_tx_bytes_per_s",), _pcie("NVML_PCIE_UTIL_TX_BYTES"), every=_PCIE_EVERY),
    _Field(("pcie_rx_bytes_per_s",), _pcie("NVML_PCIE_UTIL_RX_BYTES"), every=_PCIE_EVERY),
)

_LASTING = (
    "NVMLError_NotSupported",
    "NVMLError_FunctionNotFound",
    "NVMLError_NoPermission",
    "NVMLError_InvalidArgument",
)
"""Errors that will be the same next time: said once, and the field is not asked again."""


@dataclass(slots=True)
class _Watched:
    device: Device
    handle: Any
    labels: str
    unsupported: set[str] = field(default_factory=set)  # never asked again
    told: set[str] = field(default_factory=set)  # asked, has answered "not available", and the reason was said


class NvmlSource:
    """The chosen devices, read one after another. Made by `open_nvml`; without a driver it has none and a note."""

    name = "nvml"
    blocking = False
    period_ns: int | None = None

    def __init__(self, nvml: Any, watched: list[_Watched], facts: dict[str, Any], notes: list[str]) -> None:
        self._nvml, self._watched, self._facts = nvml, watched, facts
        self._passes = 0
        self.notes = notes

    @property
    def devices(self) -> tuple[Device, ...]:
        """What is read, in the order chosen."""
        return tuple(watched.device for watched in self._watched)

    def facts(self) -> dict[str, Any]:
        """For the manifest: driver, CUDA version, how devices were chosen, and each with its name, UUID and limits."""
        return self._facts

    def read(self, now: Now) -> list[Sample]:
        """One pass over all devices. now: ns from t0, read at every call to the driver. Never raises NVML's errors."""
        samples: list[Sample] = []
        for watched in self._watched:
            for row in _FIELDS:
                if self._passes % row.every == 0 and row.metrics[0] not in watched.unsupported:
                    samples.extend(self._ask(watched, row, now))
        self._passes += 1
        return samples

    def _ask(self, watched: _Watched, row: _Field, now: Now) -> list[Sample]:
        uuid, labels = watched.device.uuid, watched.labels
        try:
            values = row.call(self._nvml, watched.handle)
        except self._nvml.NVMLError as error:
            if type(error).__name__ in _LASTING:
                watched.unsupported.add(row.metrics[0])
            reason, t_ns = f"NVML: {error}", now()
            if watched.device.kind == "mig":
                reason += f" for a MIG instance (its board {watched.device.parent} may tell it, for all instances)"
            return [Sample(t_ns, self.name, uuid, metric, None, row.counter, labels, reason) for metric in row.metrics]
        t_ns, samples = now(), []
        for metric, value in zip(row.metrics, values, strict=True):
            if value is not None:
                samples.append(Sample(t_ns, self.name, uuid, metric, value, row.counter, labels))
            elif metric not in watched.told:
                watched.told.add(metric)
                reason = "NVML: value not available"
                samples.append(Sample(t_ns, self.name, uuid, metric, None, row.counter, labels, reason))
        return samples

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._nvml, self._watched = None, []


def open_nvml(named: str | None = None, environ: Mapping[str, str] | None = None) -> NvmlSource:
    """Open the driver and choose devices: those `named` (`--gpu`), else those that CUDA sees under `environ`.

    environ: of the process that serves (the launched engine's), by default our own. Without a library, a driver or a
    device the source is empty and says so in `notes`. Raises UsageError when a named device is not there.
    """
    environ = os.environ if environ is None else environ
    try:
        import pynvml
    except ImportError:
        return NvmlSource(None, [], {}, ["no GPU telemetry: the package nvidia-ml-py is not installed"])
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlSource(None, [], {}, [f"no GPU telemetry: no NVIDIA driver here ({error})"])
    try:
        handles = _enumerate(pynvml)
        found = [device for device, _ in handles]
        if named is not None:
            selection = named_devices(found, named)
        else:
            selection = visible_devices(
                found, environ.get("CUDA_VISIBLE_DEVICES"), order=environ.get("CUDA_DEVICE_ORDER")
            )
        by_uuid = {device.uuid: handle for device, handle in handles}
        watched = [_Watched(device, by_uuid[device.uuid], _labels(device)) for device in selection.devices]
        notes = list(selection.notes)
        if not watched:
            notes.append(f"no GPU telemetry: no device of {len(found)} is chosen ({selection.how})")
        return NvmlSource(pynvml, watched, _facts(pynvml, watched, selection), notes)
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        return NvmlSource(None, [], {}, [f"no GPU telemetry: the driver failed ({error})"])
    except BaseException:
        pynvml.nvmlShutdown()
        raise


def _labels(device: Device) -> str:
    labels = f'index="{device.index}",bus_id="{device.bus_id}",kind="{device.kind}"'
    return labels if device.parent is None else f'{labels},parent="{device.parent}"'


def _try(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's answer, None where the device does not know it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _enumerate(nvml: Any) -> list[tuple[Device, Any]]:
    """Every board in bus order, each MIG board followed by its instances. A board that fails (lost) is left out."""
    found: list[tuple[Device, Any]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = _try(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        uuid = None if handle is None else _try(nvml, nvml.nvmlDeviceGetUUID, handle)
        if uuid is None:
            continue
        mig = _try(nvml, nvml.nvmlDeviceGetMigMode, handle)
        cut = mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE
        pci = _try(nvml, nvml.nvmlDeviceGetPciInfo, handle)
        bus_id = "" if pci is None else _text(pci.busId)
        name = _text(_try(nvml, nvml.nvmlDeviceGetName, handle) or "")
        board = Device(index, _text(uuid), bus_id, name, "mig-parent" if cut else "gpu")
        found.append((board, handle))
        for slot in range(_try(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0 if cut else 0):
            inner = _try(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
            inner_uuid = None if inner is None else _try(nvml, nvml.nvmlDeviceGetUUID, inner)
            if inner_uuid is None:  # an empty slot
                continue
            name = _text(_try(nvml, nvml.nvmlDeviceGetName, inner) or f"{board.name} MIG")
            gpu_instance = _try(nvml, nvml.nvmlDeviceGetGpuInstanceId, inner)
            compute_instance = _try(nvml, nvml.nvmlDeviceGetComputeInstanceId, inner)
            instance = Device(index, _text(inner_uuid), bus_id, name, "mig", board.uuid, gpu_instance, compute_instance)
            found.append((instance, inner))
    return found


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _facts(nvml: Any, watched: list[_Watched], selection: Selection) -> dict[str, Any]:
    cuda = _try(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "driver": _try(nvml, nvml.nvmlSystemGetDriverVersion),
        "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "chosen_by": selection.how,
        "devices": [_device_facts(nvml, each.device, each.handle) for each in watched],
    }


def _device_facts(nvml: Any, device: Device, handle: Any) -> dict[str, Any]:
    memory = _try(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    limit = _try(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    mig = {"gpu": False, "mig-parent": True, "mig": True}[device.kind]
    return {
        "name": device.name,
        "uuid": device.uuid,
        "bus_id": device.bus_id,
        "index": device.index,
        "kind": device.kind,
        "mig_mode": mig,
        "parent": device.parent,
        "gpu_instance": device.gpu_instance,
        "compute_instance": device.compute_instance,
        "memory_total_bytes": None if memory is None else memory.total,
        "power_limit_w": None if limit is None else limit / 1000,
        "max_sm_clock_mhz": _try(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
    }
