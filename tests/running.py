"""Real processes for tests: the command line as a user calls it, and a paced engine. Nothing outlives its block."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLI = (sys.executable, "-m", "benchlab.cli.app")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.code}\n-- stdout\n{self.out}\n-- stderr\n{self.err}"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a test's command: plain, 100 columns, no keys or proxies of the person who runs it."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BENCHLAB_"))}
    for name in ("NO_COLOR", "FORCE_COLOR", "CI", "GITHUB_ACTIONS", "http_proxy", "HTTP_PROXY"):
        keep.pop(name, None)
    paths = [str(ROOT), str(ROOT / "engines"), keep.get("PYTHONPATH", "")]
    keep |= {"COLUMNS": "100", "TERM": "dumb", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return keep | {"PYTHONUTF8": "0"} | dict(extra or {})


def plain_signals() -> None:
    """For preexec_fn: a shell that runs tests in the background has them ignore Ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def benchlab(
    *words: str | bytes | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> Done:
    """Run `benchlab WORDS` in a process of its own."""
    argv: list[str | bytes | Path] = [*CLI, *words]
    done = subprocess.run(
        argv, cwd=cwd, env=environment(env), capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )
    return Done(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


@contextlib.contextmanager
def paced_engine(profile: str = "ttft=20ms,itl=5ms", *flags: str) -> Iterator[str]:
    """The bundled engine with the paced runner in a process of its own; gives its URL."""
    argv = [sys.executable, "-m", "benchlab_engine", "serve", "--model", "tiny", "--port", "0"]
    argv += ["--runner", f"paced:{profile}", *flags]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready http://"), f"the engine did not start: {line!r}"
            yield line.split()[1]
        finally:
            process.kill()
