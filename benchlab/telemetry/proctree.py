"""One process and all it started: how much CPU they have used together, never going down when one of them ends.

A process that ends takes its counters with it; its last known time is kept, and what it used after the last reading
is lost (at most one period). A descendant seen once stays in the tree when its parent ends before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MAX_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class TreeUse:
    """cpu_s: seconds used since the tree was first read, a counter (with all that the processes had used before).
    cores: cores busy since the reading before. rss_bytes: resident memory, shared pages counted once a process."""

    cpu_s: float
    cores: float | None
    rss_bytes: int
    processes: int
    threads: int


@dataclass(frozen=True, slots=True)
class _Stat:
    started: int
    ticks: int
    threads: int
    rss_bytes: int
    parent: int


def _read_stat(proc: Path, pid: int) -> _Stat | None:
    """A process's figures, None when it is gone (or a zombie, which holds nothing any more)."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    words = text[text.rindex(")") + 2 :].split()  # the name before may hold spaces and brackets
    if words[0] in "ZX":
        return None
    return _Stat(
        started=int(words[19]),
        ticks=int(words[11]) + int(words[12]),
        threads=int(words[17]),
        rss_bytes=max(0, int(words[21])) * _PAGE,
        parent=int(words[1]),
    )


class ProcessTree:
    """The tree under `pid`."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self.pid = pid
        self._proc = proc
        self._seen: dict[int, _Stat] = {}
        self._ended_ticks = 0
        self._before: tuple[int, int] | None = None

    def read(self, t_ns: int) -> TreeUse | None:
        """What the tree has used by now, None once nothing of it is left. t_ns: this reading's time."""
        alive: dict[int, _Stat] = {}
        queue = [self.pid, *self._seen]
        while queue and len(alive) < _MAX_PROCESSES:
            pid = queue.pop()
            if pid in alive:
                continue
            stat = _read_stat(self._proc, pid)
            known = self._seen.get(pid)
            if stat is None or (known is not None and known.started != stat.started):  # ended, number given anew
                continue
            alive[pid] = stat
            queue.extend(self._children(pid))
        self._ended_ticks += sum(stat.ticks for pid, stat in self._seen.items() if pid not in alive)
        self._seen = alive
        if not alive:
            return None
        ticks = self._ended_ticks + sum(stat.ticks for stat in alive.values())
        before, self._before = self._before, (t_ns, ticks)
        cores = None
        if before is not None and t_ns > before[0]:
            cores = (ticks - before[1]) / _TICKS / ((t_ns - before[0]) / 1e9)
        return TreeUse(
            cpu_s=ticks / _TICKS,
            cores=cores,
            rss_bytes=sum(stat.rss_bytes for stat in alive.values()),
            processes=len(alive),
            threads=sum(stat.threads for stat in alive.values()),
        )

    def _children(self, pid: int) -> list[int]:
        """Children of all its threads, by the kernel's list; by a walk over /proc where there is no such list."""
        children: list[int] = []
        try:
            for task in (self._proc / str(pid) / "task").iterdir():
                children.extend(int(word) for word in (task / "children").read_text().split())
            return children
        except FileNotFoundError:
            if (self._proc / str(pid) / "task" / str(pid)).is_dir():  # alive: this kernel keeps no list of children
                return [p for p in _all_pids(self._proc) if (s := _read_stat(self._proc, p)) and s.parent == pid]
            return children
        except OSError:  # ended meanwhile
            return children


def _all_pids(proc: Path) -> list[int]:
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
