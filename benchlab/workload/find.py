"""From what a user types after -d to a file: a path, or the name of a workload that ships with benchlab."""

from __future__ import annotations

import difflib
from pathlib import Path

from benchlab.errors import UsageError
from benchlab.shipped import shipped_workloads


def shipped_names() -> list[str]:
    """The names of the shipped workloads, sorted."""
    return sorted(path.name.removesuffix(".jsonl") for path in shipped_workloads().glob("*.jsonl"))


def resolve(name_or_path: str | Path, *, flag: str = "-d/--data") -> Path:
    """An existing path as it is, else the shipped workload of that name, with or without `workloads/` and `.jsonl`.

    Raises UsageError that lists the shipped names.
    """
    text = str(name_or_path)
    names = shipped_names()
    try:
        if text and Path(text).exists():
            return Path(text)
    except (OSError, ValueError):  # too long, or a NUL: certainly no file
        pass
    name = text.removeprefix("./").removeprefix("workloads/").removesuffix(".jsonl")
    if name in names:
        return shipped_workloads() / f"{name}.jsonl"
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    listed = f"shipped workloads: {', '.join(names)}" if names else "no workloads are shipped with this installation"
    raise UsageError(f"no workload '{text[:200]}'", where=flag, hint=f"{hint}give a file; {listed}")
