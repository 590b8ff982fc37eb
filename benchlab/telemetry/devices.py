"""Which devices a run's numbers may speak of: from a list of what NVML found and what CUDA is allowed to see.

NVML counts every board in the order of the bus; CUDA counts what `CUDA_VISIBLE_DEVICES` lists, in its order. Taking
one index for the other samples a GPU that did no work. Pure: it asks no driver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchlab.errors import UsageError

Kind = Literal["gpu", "mig-parent", "mig"]

_OLD_MIG = re.compile(r"^MIG-(GPU-[^/]+)/(\d+)/(\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Device:
    """One thing NVML can be asked about.

    kind: a whole "gpu"; a "mig-parent" (a board cut into instances: it is no device that CUDA can use); or a "mig"
    instance of one. index: NVML's index of the board. parent: the board's UUID, for an instance.
    """

    index: int
    uuid: str
    bus_id: str = ""
    name: str = ""
    kind: Kind = "gpu"
    parent: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices in CUDA's (or the user's) order, how they were chosen, and what was odd about it."""

    devices: tuple[Device, ...]
    how: str
    notes: tuple[str, ...] = field(default=())


def _instances(found: Sequence[Device], parent: Device) -> list[Device]:
    return [device for device in found if device.parent == parent.uuid]


def _by_uuid(found: Sequence[Device], word: str) -> list[Device]:
    old = _OLD_MIG.match(word)
    if old:
        board, gpu_instance, compute_instance = old.group(1).lower(), int(old.group(2)), int(old.group(3))
        return [
            device
            for device in found
            if (device.parent or "").lower().startswith(board)
            and (device.gpu_instance, device.compute_instance) == (gpu_instance, compute_instance)
        ]
    return [device for device in found if device.uuid.lower().startswith(word.lower())]


def _find(found: Sequence[Device], word: str) -> tuple[Device | None, str]:
    """The device a word names, or None and why not."""
    if re.fullmatch(r"\+?\d+", word):
        boards = [device for device in found if device.kind != "mig" and device.index == int(word)]
        return (boards[0], "") if boards else (None, f"there is no GPU {word}")
    if not word.upper().startswith(("GPU-", "MIG-")):
        return None, f"'{word}' is neither an index nor a UUID"
    matches = _by_uuid(found, word)
    if len(matches) > 1:
        return None, f"'{word}' fits {len(matches)} devices"
    return (matches[0], "") if matches else (None, f"no device's UUID begins with {word}")


def visible_devices(found: Sequence[Device], variable: str | None, *, order: str | None = None) -> Selection:
    """What CUDA sees, by `CUDA_VISIBLE_DEVICES` (None: not set; "" and "-1": nothing).

    As in CUDA, the first word that names nothing ends the list. order: `CUDA_DEVICE_ORDER`; unless it is PCI_BUS_ID,
    CUDA numbers the fastest GPU first, so that indexes among unlike GPUs cannot be mapped with certainty: noted.
    """
    if variable is None:
        return Selection(tuple(found), "all devices (CUDA_VISIBLE_DEVICES is not set)")
    how = f"CUDA_VISIBLE_DEVICES={variable!r}"
    chosen: list[Device] = []
    notes: list[str] = []
    words = [word.strip() for word in variable.split(",")] if variable.strip() else []
    for word in words:
        if word.startswith("-"):
            break
        device, why = _find(found, word)
        if device is None:
            notes.append(f"{how}: {why}; CUDA ends its list there")
            break
        if device.kind == "mig-parent":
            inside = _instances(found, device)
            if not inside:
                notes.append(f"{how}: GPU {device.index} is in MIG mode without an instance: CUDA sees nothing of it")
                break
            notes.append(f"{how}: GPU {device.index} is in MIG mode: CUDA uses its first instance only")
            device = inside[0]
        if device in chosen:
            notes.append(f"{how}: {word} names a device a second time; it is sampled once")
            continue
        chosen.append(device)
    by_index = any(word.lstrip("+").isdecimal() for word in words)
    if by_index and order != "PCI_BUS_ID" and len({d.name for d in found if d.kind != "mig"}) > 1:
        notes.append(
            "the GPUs here are of different kinds and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA may number them "
            "otherwise than NVML; name them by UUID to be sure"
        )
    return Selection(tuple(chosen), how, tuple(notes))


def named_devices(found: Sequence[Device], flag: str) -> Selection:
    """What the user named by `--gpu 0,1` (NVML indexes) or UUIDs; a MIG board brings its instances along.

    Raises UsageError for a name that fits no device, with those that are there.
    """
    chosen: list[Device] = []
    for word in (part.strip() for part in flag.split(",")):
        device, why = _find(found, word)
        if device is None:
            there = ", ".join(f"{d.index} ({d.uuid})" for d in found if d.kind != "mig") or "none"
            raise UsageError(why, where=f"--gpu {flag}", hint=f"the GPUs of this host: {there}")
        for each in [device, *(_instances(found, device) if device.kind == "mig-parent" else ())]:
            if each not in chosen:
                chosen.append(each)
    return Selection(tuple(chosen), f"--gpu {flag}")
