"""What of this host bears on timing: timers, loop lag, clocks, frequency, limits, neighbours, virtualisation.

The one idea: each fact by name, with a word where it is known to spoil measurements (`note`), and None where the host
does not tell. Reads /proc and /sys; measures for about a second. It must not know the load generator's results.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from benchlab.clock import SystemClock
from benchlab.doctor.ceiling import num_ports
from benchlab.loadgen.lag import LoopLag
from benchlab.loadgen.limits import raise_descriptor_limit
from benchlab.loadgen.timer import WakeTimer
from benchlab.telemetry.host import host_facts
from benchlab.units import NS_PER_MS, NS_PER_S, format_number

_WAKES = 120
_STEP_NS = 2_600_000
"""Between wakes: no multiple of a millisecond, so that a timer that rounds to one shows it."""
_LAG_S = 0.6
_MIN_DESCRIPTORS = 4096
_TIME_ERROR, _STA_UNSYNC = 5, 0x0040


@dataclass(frozen=True, slots=True)
class Fact:
    """name: snake_case and stable. value: as words for people. note: why it matters, '' where nothing is amiss."""

    name: str
    value: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Timers:
    """Lateness in ms, p50 and p99: of the absolute timer that sends requests, of the loop's own, and of the idle
    loop (max too)."""

    loop: str
    wake_p50: float
    wake_p99: float
    sleep_p50: float
    sleep_p99: float
    lag_p50: float | None
    lag_p99: float | None
    lag_max: float | None


def measure_timers() -> Timers:
    """On a loop of the kind that the workers use; about a second and a half."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_timers("asyncio"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_timers("uvloop"))


async def _timers(name: str) -> Timers:
    clock = SystemClock()
    wakes, sleeps = await _wakes(clock), await _sleeps(clock)
    lag = LoopLag(clock)
    lag.start()
    await asyncio.sleep(_LAG_S)
    lags = lag.stop()
    (w50, w99), (s50, s99) = (tuple(float(q) for q in np.quantile(found, [0.5, 0.99])) for found in (wakes, sleeps))
    return Timers(name, w50, w99, s50, s99, lags["p50"], lags["p99"], lags["max"])


async def _wakes(clock: SystemClock) -> list[float]:
    """Lateness of the timer that wakes the plan, ms."""
    late: list[float] = []
    done = asyncio.Event()
    due = clock.monotonic_ns() + _STEP_NS

    def wake() -> None:
        nonlocal due
        late.append((clock.monotonic_ns() - due) / NS_PER_MS)
        if len(late) == _WAKES:
            done.set()
            return
        due += _STEP_NS
        timer.set_ns(due)

    timer = WakeTimer(asyncio.get_running_loop(), clock, wake)
    timer.set_ns(due)
    await done.wait()
    timer.close()
    return late


async def _sleeps(clock: SystemClock) -> list[float]:
    """Lateness of the loop's own timer, ms."""
    late: list[float] = []
    for _ in range(_WAKES // 2):
        due = clock.monotonic_ns() + _STEP_NS
        await asyncio.sleep(_STEP_NS / NS_PER_S)
        late.append((clock.monotonic_ns() - due) / NS_PER_MS)
    return late


def facts(proc: Path = Path("/proc"), sys_folder: Path = Path("/sys")) -> list[Fact]:
    """Everything that is read and not measured, but for what was stolen, which takes 0.2 s."""
    plain = host_facts(proc)
    return [
        Fact("host", f"{plain['kernel']}, {plain['machine']}, Python {sys.version.split()[0]}"),
        _cores(plain, sys_folder),
        _load(plain),
        _stolen(proc),
        _governor(sys_folder),
        _frequency(proc, sys_folder),
        _clock_source(sys_folder),
        _time_sync(),
        _virtual(proc, sys_folder),
        _descriptors(),
        Fact("local_ports", None if (ports := num_ports()) is None else f"{ports:,} to one address"),
        _library("uvloop", "the loop is 2 to 3 times slower without it: pip install uvloop"),
        _library("httptools", ""),
    ]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _cores(plain: dict[str, Any], sys_folder: Path) -> Fact:
    usable, all_cores = plain["cores_usable"], plain["cores"]
    words = f"{usable} of {all_cores} usable" if usable and usable != all_cores else f"{all_cores}"
    quota = (_read(sys_folder / "fs/cgroup/cpu.max") or "max").split()
    note = ""
    if quota[0].isdigit() and len(quota) == 2 and int(quota[1]):
        share = int(quota[0]) / int(quota[1])
        words += f", quota {share:g}"
        if share < (usable or all_cores or 1):
            note = "a CPU quota stops the client in mid-run; give it whole cores"
    elif (usable or all_cores or 1) < 2:
        note = "client and server share one core"
    return Fact("cores", words, note)


def _load(plain: dict[str, Any]) -> Fact:
    try:
        one, five, _ = os.getloadavg()
    except OSError:
        return Fact("load_average", None)
    busy = one > 0.5 * (plain["cores_usable"] or plain["cores"] or 1)
    return Fact("load_average", f"{one:.2f} in 1 min, {five:.2f} in 5", "others compute on this host" if busy else "")


def _ticks(proc: Path) -> list[int] | None:
    text = _read(proc / "stat")
    words = text.split("\n", 1)[0].split()[1:9] if text else []
    return [int(word) for word in words] if len(words) == 8 else None


def _stolen(proc: Path) -> Fact:
    """CPU time that the hypervisor gave to others."""
    before = _ticks(proc)
    time.sleep(0.2)
    after = _ticks(proc)
    if before is None or after is None or sum(after) <= sum(before):
        return Fact("cpu_stolen", None)
    share = (after[7] - before[7]) / (sum(after) - sum(before))
    note = "a hypervisor takes time away: latencies get tails that no process explains" if share > 0.02 else ""
    return Fact("cpu_stolen", f"{share:.1%}", note)


def _governor(sys_folder: Path) -> Fact:
    name = _read(sys_folder / "devices/system/cpu/cpu0/cpufreq/scaling_governor")
    slow = name in ("powersave", "conservative", "ondemand")
    return Fact("cpu_governor", name, "clocks change with the load; `performance` is steadier" if slow else "")


def _frequency(proc: Path, sys_folder: Path) -> Fact:
    now = _read(sys_folder / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    most = _read(sys_folder / "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if now and now.isdigit():
        top = f" of {int(most) / 1e6:.2f}" if most and most.isdigit() else ""
        return Fact("cpu_frequency", f"{int(now) / 1e6:.2f}{top} GHz")
    lines = (_read(proc / "cpuinfo") or "").splitlines()
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("cpu MHz")]
    return Fact("cpu_frequency", f"{float(found[0]) / 1e3:.2f} GHz" if found else None)


def _clock_source(sys_folder: Path) -> Fact:
    name = _read(sys_folder / "devices/system/clocksource/clocksource0/current_clocksource")
    slow = name in ("hpet", "acpi_pm", "jiffies", "pit")
    return Fact("clock_source", name, "each reading is a slow one (microseconds)" if slow else "")


def _time_sync() -> Fact:
    """Whether something disciplines the wall clock: only telemetry of other hosts depends on it."""
    if sys.platform != "linux":
        return Fact("time_sync", None)
    buffer = ctypes.create_string_buffer(512)  # struct timex, all zero: read only
    state = ctypes.CDLL(None).adjtimex(buffer)
    if state < 0:
        return Fact("time_sync", None)
    status = int.from_bytes(buffer.raw[40:44], sys.byteorder)
    if state == _TIME_ERROR or status & _STA_UNSYNC:
        return Fact("time_sync", "not synchronised", "a later correction may step the wall clock (marked if it does)")
    return Fact("time_sync", "synchronised")


def _virtual(proc: Path, sys_folder: Path) -> Fact:
    """What the host admits: hypervisor, container."""
    found: list[str] = []
    flags = next((line for line in (_read(proc / "cpuinfo") or "").splitlines() if line.startswith("flags")), "")
    if " hypervisor" in flags:
        product = _read(sys_folder / "class/dmi/id/product_name") or _read(sys_folder / "hypervisor/type")
        found.append(f"virtual machine{f' ({product})' if product else ''}")
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        found.append("container")
    return Fact("virtualisation", ", ".join(found) or ("none told" if flags else None))


def _descriptors() -> Fact:
    limit = raise_descriptor_limit(None)
    if limit is None:
        return Fact("open_files", None)
    low = limit < _MIN_DESCRIPTORS
    return Fact("open_files", f"{limit:,} a process", "raise it before a large run: ulimit -Hn 65536" if low else "")


def _library(name: str, note: str) -> Fact:
    try:
        return Fact(name, version(name))
    except PackageNotFoundError:
        return Fact(name, "not installed", note)


def timer_notes(timers: Timers) -> list[str]:
    """Words on what the timers show; empty where they are good."""
    checks: list[tuple[float | None, float, Callable[[str], str]]] = [
        (timers.wake_p99, 1.0, lambda ms: f"requests can go out {ms} ms late on this host even without load"),
        (timers.lag_p99, 5.0, lambda ms: f"the idle loop was up to {ms} ms late: something else holds the cores"),
    ]
    return [words(format_number(value)) for value, limit, words in checks if value is not None and value > limit]
