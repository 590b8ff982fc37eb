"""Runs a client beside the paced server, and writes down what its whole process tree cost, moment by moment.

The one idea: CPU and memory of everything the client started, sampled with a clock, so that any window of the run can
be priced afterwards. Linux, /proc only. It must not know clients or loads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_TICK = os.sysconf("SC_CLK_TCK")
_EVERY_S, _LOOK_EVERY = 0.05, 6


@dataclass
class Watched:
    """A client's run. at_ns, client_s, server_s, busy_s, mine_s: samples of the clock, of CPU seconds of the client's
    tree, the server, the whole machine and this process. peak_mb: of anonymous memory, shared pages once; rss_mb: of
    all resident pages, shared ones once for each process. weighed: moments and MB. code: None where it ran out of
    time."""

    code: int | None
    started_ns: int
    ended_ns: int
    at_ns: list[int]
    client_s: list[float]
    server_s: list[float]
    busy_s: list[float]
    mine_s: list[float]
    peak_mb: float
    rss_mb: float
    processes: int
    weighed: list[tuple[int, float]] = field(default_factory=list)

    def peak_until(self, at_ns: int) -> float:
        """Peak memory in MB up to then: of the load without what is made of it afterwards."""
        return max((mb for when, mb in self.weighed if when <= at_ns), default=0.0)

    def cost(self, window: tuple[int, int]) -> dict[str, float]:
        """CPU seconds in the window: the client's, the server's, and what others used of this machine."""
        found = {}
        for name in ("client_s", "server_s", "busy_s", "mine_s"):
            low, high = np.interp(window, self.at_ns, getattr(self, name))
            found[name] = float(high - low)
        others = found["busy_s"] - found["client_s"] - found["server_s"] - found["mine_s"]
        return {"client_s": found["client_s"], "server_s": found["server_s"], "others_s": max(0.0, others)}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def ahead() -> Iterator[Path | None]:
    """A control group of the scheduler whose processes go before everybody else's, so that what else runs on this
    machine takes little from a measurement. None where that is not allowed."""
    for top, weight, most in (("cpu", "cpu.shares", "262144"), ("", "cpu.weight", "10000")):
        group = Path("/sys/fs/cgroup") / top / f"benchlab-peers-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / weight).write_text(most)
            yield group
            return
        except OSError:
            continue
        finally:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.05)
    yield None


_SHORT_SLICE_NS = 100_000
_LAUNCH = """
import ctypes, os, struct, sys
cores, group, slice_ns = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
if group:
    open(group + "/cgroup.procs", "w").write(str(os.getpid()))
    if os.uname().machine == "x86_64":
        settings = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, slice_ns, 0, 0)
        ctypes.CDLL(None).syscall(314, 0, settings, 0)
os.execvp(sys.argv[4], sys.argv[4:])
"""
"""Settings: struct sched_attr with a short slice, syscall sched_setattr of x86-64; elsewhere no slice
is set and a process that wakes may have to wait for the one that runs, some milliseconds."""


def _placed(argv: Sequence[str], cores: Sequence[int], group: Path | None) -> list[str]:
    """The command on these cores, in this control group and with a short slice, so that it runs when it wakes."""
    where = [",".join(map(str, cores)), str(group or ""), str(_SHORT_SLICE_NS)]
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, *where, *argv]


@contextlib.contextmanager
def served(program: Path, flags: Sequence[str], log: Path, core: int, group: Path | None) -> Iterator[tuple[int, int]]:
    """The paced server on a core: its pid and its port. Its log is whole when the context has ended."""
    port = free_port()
    argv = [str(program), "--port", str(port), "--log", str(log), *flags]
    server = subprocess.Popen(_placed(argv, [core], group), stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(250):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        yield server.pid, port
    finally:
        server.terminate()
        server.wait()


def _stat(pid: int) -> tuple[int, float]:
    """Parent, and CPU seconds with those of the children that it has waited for."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(words[1]), sum(map(int, words[11:15])) / _TICK


class Tree:
    """A process and all that it started, those too whose parent has gone since. `look` finds new ones (it reads every
    process of the machine, so seldom), `used` adds up the CPU seconds of those known."""

    def __init__(self, root: int) -> None:
        self.known = {root}
        self._highest = 0.0

    def look(self) -> None:
        parents: dict[int, int] = {}
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                with contextlib.suppress(OSError, IndexError):
                    parents[int(place.name)] = _stat(int(place.name))[0]
        self.known &= parents.keys()
        grown = True
        while grown:
            new = {pid for pid, parent in parents.items() if parent in self.known} - self.known
            self.known |= new
            grown = bool(new)

    def used(self) -> float:
        total = 0.0
        for pid in self.known:
            with contextlib.suppress(OSError, IndexError):
                total += _stat(pid)[1]
        self._highest = max(self._highest, total)
        return self._highest


def _memory(pids: Sequence[int]) -> tuple[float, float]:
    anonymous = resident = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss_Anon:"):
                    anonymous += int(line.split()[1])
                elif line.startswith("Rss:"):
                    resident += int(line.split()[1])
    return anonymous / 1024, resident / 1024


def _busy() -> float:
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(word) for word in words]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICK


def run(
    argv: Sequence[str],
    *,
    server: int,
    cores: Sequence[int],
    out: Path,
    folder: Path,
    environment: Mapping[str, str],
    limit_s: float,
    group: Path | None,
) -> Watched:
    """Run it to its end, or for `limit_s`. What it prints goes to `out`."""
    found = Watched(None, time.monotonic_ns(), 0, [], [], [], [], [], 0.0, 0.0, 0)
    with out.open("wb") as stream:
        client = subprocess.Popen(
            _placed(argv, cores, group), stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=folder,
            env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip
        tree, ended = Tree(client.pid), False
        try:
            while True:
                ended = client.poll() is not None
                if len(found.at_ns) % _LOOK_EVERY == 0:
                    tree.look()
                    _weigh(found, tree)
                _sample(found, tree, server)
                if ended or time.monotonic_ns() - found.started_ns > limit_s * 1e9:
                    break
                time.sleep(_EVERY_S)
        finally:
            found.ended_ns = time.monotonic_ns()
            tree.look()
            for pid in tree.known - {client.pid} if ended else tree.known:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            client.wait()
    found.code = client.returncode if ended else None
    return found


def _sample(found: Watched, tree: Tree, server: int) -> None:
    found.at_ns.append(time.monotonic_ns())
    found.client_s.append(tree.used())
    found.server_s.append(_stat(server)[1])
    found.busy_s.append(_busy())
    found.mine_s.append(time.process_time())


def _weigh(found: Watched, tree: Tree) -> None:
    anonymous, resident = _memory(list(tree.known))
    found.peak_mb, found.rss_mb = max(found.peak_mb, anonymous), max(found.rss_mb, resident)
    found.weighed.append((time.monotonic_ns(), anonymous))
    found.processes = max(found.processes, len(tree.known))
