"""One engine process: started in a session of its own, its output in a file, ended with everything it started.

It is ended by `end`, at interpreter exit, and by its guard when benchlab is killed outright. It knows no HTTP.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchlab.errors import StorageError
from benchlab.launch import guard
from benchlab.records.manifest import redact_text

TAIL_LINES = 20
_TAIL_BYTES = 16_384
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_running: set[EngineProcess] = set()


class EngineProcess:
    """A started process. Raises OSError as Popen does when the program cannot be started, StorageError for the log."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        *,
        stop_signal: signal.Signals = signal.SIGTERM,
        grace_s: float = 10.0,
    ) -> None:
        self.log, self.stop_signal, self.grace_s = log, stop_signal, grace_s
        self.ended = ""
        self.asked_to_end = False
        self._owner = os.getpid()
        self._cookie = secrets.token_hex(8)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        except OSError as error:
            raise StorageError(f"the engine's log cannot be written: {error.strerror}", where=str(log)) from error
        # the guard first: there must be no moment with an engine and nobody to end it
        self._guard = _start_guard()
        try:
            with output:
                self._start_offset = output.tell()
                self._process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **env, guard.COOKIE: self._cookie},
                    start_new_session=True,  # its own group: Ctrl-C is for benchlab, which then ends it in order
                )
        except BaseException:
            self._dismiss_guard()
            raise
        self._tell_guard(f"{self.pid} {self._cookie} {int(stop_signal)} {grace_s}\n")
        _running.add(self)

    @property
    def pid(self) -> int:
        """Process id of the leader, which is the group's number as well."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; the exit code, or minus the signal's number."""
        return self._process.poll()

    def describe_exit(self) -> str:
        """How it ended, in words."""
        code = self.exit_code()
        if code is None:
            return "is running"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    def owns(self, pid: int) -> bool:
        """Whether a process belongs to this engine."""
        return pid == self.pid or pid in guard.members(self.pid, self._cookie)

    def log_text(self) -> str:
        """The last 16 KiB of what it wrote, without control characters and without what looks like a secret."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start_offset, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        return redact_text(_ESCAPES.sub("", text.replace("\r", "\n")))

    def log_tail(self) -> str:
        """The last 20 lines that hold something."""
        lines = [line.rstrip()[:400] for line in self.log_text().splitlines() if line.strip()]
        return "\n".join(lines[-TAIL_LINES:])

    def end(self) -> str:
        """End the whole group and wait for it: "already", "asked", "killed" or "stuck". Again: the same answer."""
        if self.ended:
            return self.ended
        self.asked_to_end = True
        self.ended = guard.end_group(self.pid, self._cookie, self.stop_signal, self.grace_s, self._process.poll)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._dismiss_guard()
        _running.discard(self)
        return self.ended

    def _tell_guard(self, text: str) -> None:
        if self._guard.stdin is not None:
            with contextlib.suppress(OSError):
                self._guard.stdin.write(text.encode())
                self._guard.stdin.flush()

    def _dismiss_guard(self) -> None:
        self._tell_guard("done\n")
        if self._guard.stdin is not None:
            with contextlib.suppress(OSError):
                self._guard.stdin.close()
        try:
            self._guard.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()


def _start_guard() -> subprocess.Popen[bytes]:
    """The guard, as a script of its own: isolated (-I) and without site packages (-S), it starts at once."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@atexit.register
def _end_all() -> None:
    """At interpreter exit, in the process that started them only (a forked worker leaves them alone)."""
    for process in list(_running):
        if process._owner == os.getpid():
            process.end()
