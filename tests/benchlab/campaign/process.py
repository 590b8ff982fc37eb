"""A `benchlab` command in a process of its own that can be listened to, signalled and killed with its children."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[3]


def environment(**more: str) -> dict[str, str]:
    """A plain environment: no key of the person who runs the tests, no colours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BENCHLAB_"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "engines")])
    return kept | {"PYTHONPATH": path, "TERM": "dumb", "COLUMNS": "120", "CI": "1"} | more


def processes() -> Iterator[tuple[int, int]]:
    """(pid, parent) of every process that is no zombie."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(path.parent.name), int(parent)


def descendants(pid: int) -> list[int]:
    """Every process below `pid`."""
    below: list[int] = []
    todo = [pid]
    table = list(processes())
    while todo:
        parent = todo.pop()
        found = [child for child, of in table if of == parent]
        below += found
        todo += found
    return below


def gone(pids: list[int], limit_s: float = 10.0) -> bool:
    """Whether all of these end within the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if not {pid for pid, _ in processes()} & set(pids):
            return True
        time.sleep(0.05)
    return False


class Command:
    """`benchlab WORDS` under way. Leaving the block kills what is left of it."""

    def __init__(self, *words: str | Path, cwd: Path, before: str = "", **env: str) -> None:
        argv: list[str] = [sys.executable, "-m", "benchlab.cli.app", *map(str, words)]
        if before:
            argv = ["bash", "-c", f'{before}; exec "$@"', "bash", *argv]
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.err = ""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._seen: set[int] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put(None)

    def until(self, text: str, limit_s: float = 60.0) -> None:
        """Wait for a line of stderr that holds `text`."""
        end = time.monotonic() + limit_s
        while (left := end - time.monotonic()) > 0:
            line = self._lines.get(timeout=left)
            assert line is not None, f"ended before it said {text!r}:\n{self.err}"
            self.err += line
            if text in line:
                return
        raise AssertionError(f"never said {text!r}:\n{self.err}")

    def children(self) -> list[int]:
        """Its processes, remembered, so that the end of the block can end them."""
        self._seen |= set(found := descendants(self.process.pid))
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone, its children noted before."""
        self.children()
        os.kill(self.process.pid, number)

    def kill_all(self) -> None:
        """SIGKILL to the command and then to all its children."""
        below = self.children()
        for pid in [self.process.pid, *below]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self, limit_s: float = 60.0) -> int:
        """Wait for its end; the exit code. What it said is in `err`."""
        code = self.process.wait(limit_s)
        self._reader.join(5)
        while not self._lines.empty():
            self.err += self._lines.get() or ""
        return code

    @property
    def left(self) -> list[int]:
        """Children seen at any time that do not end now either."""
        return [] if gone(list(self._seen)) else sorted(self._seen & {pid for pid, _ in processes()})

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        for pid in self._seen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


ENGINE = '''
"""Serves like an engine and ends on its own: `--die S` after S seconds, `--load S` before it answers."""
import asyncio, os, sys, time
sys.path[:0] = [%(root)r]
from tests.benchlab.loadgen.logging_server import LoggingServer
words = sys.argv[2:]
def value(name): return float(words[words.index(name) + 1]) if name in words else None
print("loading", flush=True)
time.sleep(value("--load") or 0)
class Here(LoggingServer):
    async def _serve(self, ready):
        real = asyncio.start_server
        asyncio.start_server = lambda accept, host, port, **more: real(accept, host, int(sys.argv[1]), **more)
        await super()._serve(ready)
with Here(gap_s=0.02) as server:
    time.sleep(value("--die") or 600)
    print("CheeseError: out of cheese", flush=True)
    os._exit(7)
'''

LAUNCH = """
title = "an engine for tests"
tried = "yes"
[start]
argv = ["{{python}}", "{script}", "{{port}}", "{{args}}"]
[ready]
paths = ["/v1/models"]
limit = "30s"
every = "50ms"
[stop]
grace = "5s"
"""


def launch_file(folder: Path) -> Path:
    """A launch file whose engine takes `--die S` and `--load S` by `--engine-arg`."""
    (folder / "engine.py").write_text(ENGINE % {"root": str(ROOT)})
    path = folder / "engine.toml"
    path.write_text(LAUNCH.format(script=folder / "engine.py"))
    return path
