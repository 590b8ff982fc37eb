"""What a run leaves behind beside its evidence: logs that said something, and nothing where nothing was measured."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from benchlab.campaign.interrupt import Interrupt
from benchlab.records.store import drop_spool


def remove_if_unused(path: Path, interrupt: Interrupt) -> None:
    """A run that ended before its first stage leaves nothing but logs, and none if the user ended it."""
    if (path / "manifest.json").exists():
        return
    if interrupt.code is None:
        keep_logs(path)
    else:
        (path / "engine.log").unlink(missing_ok=True)
    drop_spool(path)
    (path / "items.parquet").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.rmdir()


def keep_logs(path: Path) -> None:
    """A worker's log is kept only if it said something."""
    for log in (path / "spool").glob("worker-*.log"):
        with contextlib.suppress(OSError):
            if log.stat().st_size:
                os.replace(log, path / log.name)  # noqa: PTH105 - same folder tree, keeps the name
