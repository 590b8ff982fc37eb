"""Where memory goes, and what is said when there is none.

The one idea: memory is given out in named phases (load, kv, prefill, graph capture), so that a failure says which one
it was and what would need less; what a step needs beside weights and cache is measured by running the largest one, not
estimated. It must not know layers.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from benchlab_engine.errors import EngineError

SHARE = 0.9  # of a device's free memory that the engine takes
RESERVE = 256 << 20  # bytes left for graphs, fragments and the libraries' own, on a device
_CPU_POOL = 1 << 30  # bytes of a cache whose size nobody asked for, on a CPU

_ADVICE = {
    "load": "take a smaller model, or a smaller form of it (--quant, --dtype)",
    "kv": "lower --kv-blocks, or take a smaller --kv-dtype",
    "prefill": "lower --max-batched-tokens, --max-seqs or --kv-blocks",
    "graph capture": "lower --max-seqs or --kv-blocks, or do without graphs (--no-graphs)",
}


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What fails inside for want of memory is an EngineError that names the phase."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(f"{name}: no memory: {_ADVICE[name]} ({first})") from error


def is_shortage(error: BaseException) -> bool:
    """Whether it is memory that was lacking. torch says so in words, for a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and ("allocate memory" in str(error) or "out of memory" in str(error))


@dataclass(frozen=True, slots=True)
class Peak:
    """num_bytes: how far memory rose. method: how that was seen."""

    num_bytes: int
    method: str


def peak(device: torch.device, run: Callable[[], object]) -> Peak:
    """Run, and say how far memory rose above what was held before.

    On CUDA: the peak of torch's allocator. On a CPU: of the process's resident memory, whose high-water mark Linux
    lets a process reset; where it cannot be reset, only a rise above the highest so far can be seen.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return Peak(torch.cuda.max_memory_allocated(device) - before, "peak of the device's allocator")
    before, method = _reset_high_water()
    run()
    return Peak(max(0, _high_water() - before), method)


def _reset_high_water() -> tuple[int, str]:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _high_water(), "rise of the process's highest resident memory"
    return _status("VmRSS"), "peak of the process's resident memory"


def _high_water() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def check_room(num_bytes: int, device: torch.device) -> None:
    """MemoryError if a CPU has not so many bytes: Linux promises memory that is not there, and the process would be
    killed when it is first written to."""
    free = available() if device.type == "cpu" else None
    if free is not None and num_bytes > free:
        raise MemoryError(f"{_mib(num_bytes)} are asked for, {_mib(free)} are available")


def available() -> int | None:
    """Bytes that this machine can still give, None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))) * 1024
    except (OSError, StopIteration, ValueError):
        return None


def blocks_that_fit(free: int, peak_bytes: int, block_bytes: int, wanted: int) -> int:
    """Blocks of a device's free memory, less what the largest step needs and a reserve; at least wanted if they fit,
    at most four times that, for a cache of prefixes. EngineError if not one fits."""
    room = int(free * SHARE) - peak_bytes - RESERVE
    if room < block_bytes:
        raise EngineError(
            f"kv: no memory: of {_mib(free)} free on the device, the largest step needs {_mib(peak_bytes)} and "
            f"{_mib(RESERVE)} are kept in reserve, which leaves no block of {block_bytes} bytes; "
            "lower --max-batched-tokens or take a smaller model"
        )
    return min(4 * wanted, room // block_bytes)


def blocks_on_cpu(block_bytes: int, wanted: int) -> int:
    """Blocks for what is wanted, at most 1 GiB of them."""
    return max(1, min(wanted, _CPU_POOL // block_bytes))


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
