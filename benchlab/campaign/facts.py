"""Facts of this host and this code for the manifest: what a reader needs to repeat a run, or to doubt it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("httptools", "msgspec", "numpy", "pyarrow", "uvloop")


def host_facts() -> dict[str, Any]:
    """Name, CPU, cores usable, memory, kernel."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "name": platform.node(),
        "cpu": _first(Path("/proc/cpuinfo"), "model name") or platform.processor() or None,
        "cores": usable,
        "memory_bytes": _memory(),
        "kernel": platform.platform(),
        "clock_source": _read(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
    }


def client_facts() -> dict[str, Any]:
    """Python and the versions of the libraries that the numbers pass through."""
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"python": sys.version.split()[0], "platform": sys.platform, "versions": versions}


def git_facts(folder: Path) -> dict[str, Any] | None:
    """Commit and whether the tree differs from it; None outside a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _first(path: Path, key: str) -> str | None:
    for line in (_read(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return None


def _memory() -> int | None:
    total = _first(Path("/proc/meminfo"), "MemTotal")
    return int(total.split()[0]) * 1024 if total else None
