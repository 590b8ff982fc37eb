"""Writes the report files of a run. It must not know what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchlab.records.manifest import write_whole
from benchlab.records.store import Run


def write_report(run: Run, summary: dict[str, Any], path: Path) -> None:
    """Write the HTML page of a run whole or not at all; makes the folder. Raises StorageError."""
    from benchlab.report.page import build

    write_page(build(run, summary), path)


def write_page(text: str, path: Path) -> None:
    """Write a page, or another text for people or tools, whole or not at all; makes the folder. Raises StorageError."""
    from benchlab.errors import StorageError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot be made: {error.strerror or error}", where=str(path.parent)) from error
    write_whole(path, text.encode("utf-8"))
