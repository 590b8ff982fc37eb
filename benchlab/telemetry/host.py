"""The host and chosen process trees: CPU, memory, load, network, from /proc and nothing else.

On a system without /proc it gives what the standard library knows, and the rest as Samples without a value, once,
with the reason. CPU time that a hypervisor took away (steal) is told apart: it makes a client late without any
process looking busy.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchlab.records.sample import Sample
from benchlab.telemetry.proctree import ProcessTree

Now = Callable[[], int]

_ONLY_PROC = ("cpu_share", "cpu_steal_share", "memory_used_bytes", "net_rx_bytes", "net_tx_bytes")


class HostSource:
    """This host, and the process trees given as {entity: pid of the root} ("worker-0", "engine")."""

    name = "host"
    blocking = False

    def __init__(
        self,
        trees: Mapping[str, int] | None = None,
        *,
        proc: Path = Path("/proc"),
        period_ns: int | None = None,
    ) -> None:
        self.period_ns = period_ns
        self.notes: list[str] = []
        self._proc = proc
        self._cpu_before: tuple[int, ...] | None = None
        self._has_proc = (proc / "stat").is_file()
        self._said: set[str] = set()
        self._trees: dict[str, ProcessTree] = {}
        if not self._has_proc:
            self.notes.append(f"host telemetry on {sys.platform}: load averages only (no /proc)")
        for entity, pid in (trees or {}).items():
            self.watch(entity, pid)

    def watch(self, entity: str, pid: int) -> None:
        """Follow a process and its descendants from the next reading on, under this name; also while it runs."""
        self._trees[entity] = ProcessTree(pid, self._proc)

    def read(self, now: Now) -> list[Sample]:
        """One reading of everything. now: ns from t0."""
        samples = [*self._load(now)]
        if not self._has_proc:
            return samples + [s for metric in _ONLY_PROC for s in self._missing(now(), "host", metric, "no /proc here")]
        samples += [*self._cpu(now), *self._memory(now), *self._network(now)]
        for entity, tree in list(self._trees.items()):
            samples += self._tree(entity, tree, now)
        return samples

    def close(self) -> None:
        """Nothing is held."""

    def _missing(self, t_ns: int, entity: str, metric: str, reason: str) -> list[Sample]:
        """A Sample without a value, the first time only."""
        if f"{entity} {metric}" in self._said:
            return []
        self._said.add(f"{entity} {metric}")
        return [Sample(t_ns, self.name, entity, metric, None, reason=reason)]

    def _load(self, now: Now) -> list[Sample]:
        try:
            return [Sample(now(), self.name, "host", "load_1m", os.getloadavg()[0])]
        except OSError as error:
            return self._missing(now(), "host", "load_1m", f"load averages: {error}")

    def _cpu(self, now: Now) -> list[Sample]:
        """Shares of all cores' time since the reading before: busy, and stolen by the hypervisor."""
        words = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks, t_ns = tuple(int(word) for word in words), now()
        before, self._cpu_before = self._cpu_before, ticks
        if before is None:
            return []
        # user nice system idle iowait irq softirq steal; guest time is inside user. iowait may step back by a tick.
        spent = [max(0, after - earlier) for after, earlier in zip(ticks, before, strict=True)]
        total = sum(spent)
        if total == 0:
            return []
        busy = total - spent[3] - spent[4] - (spent[7] if len(spent) > 7 else 0)
        samples = [Sample(t_ns, self.name, "host", "cpu_share", busy / total)]
        if len(spent) > 7:
            samples.append(Sample(t_ns, self.name, "host", "cpu_steal_share", spent[7] / total))
        return samples

    def _memory(self, now: Now) -> list[Sample]:
        figures = _meminfo(self._proc)
        t_ns = now()
        if "MemTotal" not in figures or "MemAvailable" not in figures:
            return self._missing(t_ns, "host", "memory_used_bytes", "/proc/meminfo tells no MemAvailable")
        used = figures["MemTotal"] - figures["MemAvailable"]
        return [
            Sample(t_ns, self.name, "host", "memory_used_bytes", used),
            Sample(t_ns, self.name, "host", "memory_total_bytes", figures["MemTotal"]),
        ]

    def _network(self, now: Now) -> list[Sample]:
        """Bytes since boot: loopback, and all other interfaces together."""
        try:
            lines = (self._proc / "net" / "dev").read_text().splitlines()[2:]
        except OSError as error:
            return self._missing(now(), "host", "net_rx_bytes", f"/proc/net/dev: {error.strerror}")
        sums = {"lo": [0, 0], "other": [0, 0]}
        for line in lines:
            interface, _, rest = line.partition(":")
            words = rest.split()
            kind = sums["lo" if interface.strip() == "lo" else "other"]
            kind[0] += int(words[0])
            kind[1] += int(words[8])
        t_ns = now()
        return [
            Sample(t_ns, self.name, "host", f"{prefix}{metric}", value, counter=True)
            for kind, prefix in (("other", "net_"), ("lo", "net_loopback_"))
            for metric, value in zip(("rx_bytes", "tx_bytes"), sums[kind], strict=True)
        ]

    def _tree(self, entity: str, tree: ProcessTree, now: Now) -> list[Sample]:
        t_ns = now()
        use = tree.read(t_ns)
        if use is None:
            return self._missing(t_ns, entity, "cpu_s", f"process {tree.pid} is gone")
        samples = [
            Sample(t_ns, self.name, entity, "cpu_s", use.cpu_s, counter=True),
            Sample(t_ns, self.name, entity, "memory_rss_bytes", use.rss_bytes),
            Sample(t_ns, self.name, entity, "processes", use.processes),
            Sample(t_ns, self.name, entity, "threads", use.threads),
        ]
        if use.cores is not None:
            samples.append(Sample(t_ns, self.name, entity, "cpu_cores", use.cores))
        return samples


def _meminfo(proc: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    figures: dict[str, int] = {}
    try:
        text = (proc / "meminfo").read_text()
    except OSError:
        return figures
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words:
            figures[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return figures


def host_facts(proc: Path = Path("/proc")) -> dict[str, Any]:
    """For the manifest: what this host is. What cannot be known is None."""
    cpu = platform.processor() or None
    try:
        lines = (proc / "cpuinfo").read_text(errors="replace").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    memory = _meminfo(proc).get("MemTotal")
    if memory is None:
        try:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError):
            memory = None
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "name": platform.node(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "cores_usable": usable,
        "memory_bytes": memory,
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
    }
