"""What a user means after -d: a path, the name of a workload that ships with benchlab, or a recipe."""

from __future__ import annotations

import difflib
from pathlib import Path

from benchlab.errors import UsageError
from benchlab.shipped import shipped_workloads


def shipped_names() -> list[str]:
    """The names of the shipped workloads, sorted."""
    return sorted(path.name.removesuffix(".jsonl") for path in shipped_workloads().glob("*.jsonl"))


def recipe_in(text: str) -> str | None:
    """The recipe ("NAME" or "NAME:ITEMS") that is meant, None where a file or a shipped workload is.

    A name that is both is the shipped workload; `recipe:NAME` is always the recipe. Raises UsageError.
    """
    from benchlab.workload.make import recipe_named
    from benchlab.workload.recipes import RECIPES

    asked = text.removeprefix("recipe:")
    name, colon, count = asked.partition(":")
    if asked == text and (name not in RECIPES or name in shipped_names() or _is_there(text)):
        return None
    recipe_named(name)
    if colon and not (count.isdecimal() and len(count) < 9 and int(count)):
        raise UsageError(f"'{count[:50]}' is no number of items", where="-d/--data", hint=f"write recipe:{name}:1000")
    return asked


def _is_there(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long, or a NUL: certainly no file
        return False


def resolve(name_or_path: str | Path, *, flag: str = "-d/--data") -> Path:
    """An existing path as it is, else the shipped workload of that name, with or without `workloads/` and `.jsonl`.

    Raises UsageError that lists the shipped names.
    """
    text = str(name_or_path)
    names = shipped_names()
    if _is_there(text):
        return Path(text)
    name = text.removeprefix("./").removeprefix("workloads/").removesuffix(".jsonl")
    if name in names:
        return shipped_workloads() / f"{name}.jsonl"
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    listed = f"shipped workloads: {', '.join(names)}" if names else "no workloads are shipped with this installation"
    raise UsageError(f"no workload '{text[:200]}'", where=flag, hint=f"{hint}give a file; {listed}")
