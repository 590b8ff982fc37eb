"""Facts of this code for the manifest: what a reader needs to repeat a run, or to doubt it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("httptools", "msgspec", "numpy", "pyarrow", "uvloop")


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
