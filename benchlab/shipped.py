"""Where the files that ship with benchlab are, in a checkout and in an installed wheel alike."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped_workloads() -> Path:
    """The folder of shipped workloads: `benchlab/_shipped/workloads` in a wheel, `workloads/` in a checkout."""
    installed = _PACKAGE / "_shipped" / "workloads"
    return installed if installed.is_dir() else _PACKAGE.parent / "workloads"


def launch_files() -> Path:
    """The folder of launch files (one TOML an engine)."""
    return _PACKAGE / "launch"
