"""The last hand on an engine: ends a whole process group, and does so even if benchlab itself is killed.

Run as a script it is a process of its own that outlives a SIGKILL of its parent: it is told the group on stdin, and
when stdin ends without "done", or its parent changes, it ends the group. A pipe alone would not do: workers forked
later hold a copy of it. Standard library only, and no import of benchlab, so that it starts in some 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

COOKIE = "BENCHLAB_LAUNCH"
"""Environment variable that marks an engine and all it starts, also what has left its group (setsid, a daemon)."""

_PROC = Path("/proc")
_POLL_S = 0.05


def members(group: int, cookie: str) -> set[int]:
    """Processes alive in a group or session, or marked with the cookie. Without /proc: {group} while any is left."""
    if not (_PROC / "self" / "stat").exists():
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return set()
        except PermissionError:  # macOS says so of a group of zombies
            return set()
        return {group}
    mark = f"{COOKIE}={cookie}".encode()
    found = set()
    for entry in _PROC.iterdir():
        name = entry.name
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            text = (entry / "stat").read_text(errors="replace")
            state, _, process_group, session = text[text.rindex(")") + 2 :].split()[:4]
            if state in "ZX":
                continue
            inside = group in (int(process_group), int(session))
            if inside or mark in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(name))
        except (OSError, ValueError):  # ended meanwhile, or another user's
            continue
    return found


def _send(group: int, pids: set[int], number: int) -> None:
    """Signal the group at once, then those outside it. An empty group is left alone: its number may be given anew."""
    outside, inside = [], False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == group:
                inside = True
            else:
                outside.append(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if inside:
            os.killpg(group, number)
    for pid in outside:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _wait_empty(group: int, cookie: str, seconds: float, reap: Callable[[], object]) -> set[int]:
    until = time.monotonic() + seconds
    while True:
        reap()
        left = members(group, cookie)
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_POLL_S)


def end_group(group: int, cookie: str, number: int, grace_s: float, reap: Callable[[], object] = lambda: None) -> str:
    """End every member: the signal, the grace time, then SIGKILL. How it ended: "already", "asked", "killed", "stuck".

    reap: called in between, to collect the leader if it is our child. Nothing is signalled once no member is left,
    since the number of an empty group may be somebody else's.
    """
    left = members(group, cookie)
    if not left:
        reap()
        return "already"
    _send(group, left, number)
    left = _wait_empty(group, cookie, grace_s, reap)
    if not left:
        return "asked"
    for _ in range(3):  # a process may fork between the look and the blow
        _send(group, left, signal.SIGKILL)
        left = _wait_empty(group, cookie, 2.0, reap)
        if not left:
            return "killed"
    return "stuck"


def main() -> int:
    """Wait for "done" on stdin; end the group when it, or the parent, goes away without."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent, told = os.getppid(), b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.5)
        part = os.read(0, 4096) if ready else b""
        told += part
        if told.endswith(b"done\n"):
            return 0
        if (ready and not part) or os.getppid() != parent:
            break
    words = told.decode().split()
    if len(words) == 4:
        group, cookie, number_text, grace = words
        end_group(int(group), cookie, int(number_text), float(grace))
    return 0


if __name__ == "__main__":
    sys.exit(main())
