"""An engine from launch file to a URL that answers: `with Engine.start(load_launch_file("bundled"), ...) as engine`.

It is ready when its readiness paths answer, within a limit; one that dies or stays silent is a TargetError with the
end of its log. It is ended whatever happens. What it was (argv, version, flags) goes to the manifest by `facts`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchlab.clock import Clock, SystemClock
from benchlab.errors import TargetError, UsageError
from benchlab.launch.command import Command, build_command, fill
from benchlab.launch.launch_file import LaunchFile, load_launch_file, shipped_names
from benchlab.launch.ports import choose_port, listeners
from benchlab.launch.process import EngineProcess
from benchlab.records.manifest import redact_argv, redact_headers
from benchlab.units import NS_PER_S, format_duration

__all__ = ["Death", "Engine", "LaunchFile", "load_launch_file", "shipped_names"]

_ANSWER_S = 5.0
_VERSION_S = 30.0


def ledger_in(log: str) -> dict[str, Any] | None:
    """Where an engine's memory went, bytes by part, if its log says so in a line `{"ledger": {...}}`; else None."""
    for line in log.splitlines():
        if line.startswith('{"ledger"'):
            try:
                found = json.loads(line)["ledger"]
            except (ValueError, KeyError, RecursionError):
                continue
            return found if isinstance(found, dict) else None
    return None


def _url(host: str, port: int) -> str:
    """Where to ask: a server on every address is asked on the loopback one."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@dataclass(frozen=True, slots=True)
class Death:
    """An engine that ended without being asked. what: how; log_tail: its last lines; hint: what may help."""

    what: str
    exit_code: int
    log_tail: str
    hint: str


class Engine:
    """A running engine, or one that runs already (attach). Made by `start`; a context manager that ends it.

    url: where it answers. env: the variables stated for it, beyond those of this process (CUDA_VISIBLE_DEVICES, say).
    version, ready_s, ledger (of its memory): None where not known. notes: what was odd, for the manifest.
    """

    def __init__(self, file: LaunchFile, url: str) -> None:
        self.file, self.url = file, url
        self.notes: list[str] = []
        self.version: str | None = None
        self.ready_s: float | None = None
        self.ledger: dict[str, Any] | None = None
        self.stopped = ""
        self.env: dict[str, str] = {}
        self._process: EngineProcess | None = None
        self._command: Command | None = None

    @classmethod
    def start(
        cls,
        file: LaunchFile,
        *,
        log: Path | None = None,
        url: str | None = None,
        model: str | None = None,
        served_name: str | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        threads: int | None = None,
        python: str | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        values: Mapping[str, str | int] | None = None,
        ready_limit_ns: int | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> Engine:
        """Start the engine of a launch file and return once it is ready; with attach, just take its `url`.

        log: where its output goes, in the run directory. port: None chooses a free one. args: added to its command.
        values: for placeholders of the file's own. Raises UsageError (a value missing, the port taken, no such
        program) and TargetError (it died, or was not ready in time); in both cases nothing is left running.
        """
        if file.attach:
            if not url:
                raise UsageError("nothing is started by this launch file", where=str(file.path), hint="give -u URL")
            return cls(file, url.rstrip("/"))
        if log is None:
            raise UsageError("no place for the engine's log", where="Engine.start")
        port = choose_port(host, port)
        given: dict[str, str | int | None] = {} if "python" in file.values else {"python": sys.executable}
        given |= dict(values or {})
        stated = dict(python=python, model=model, served_name=served_name, host=host, port=port, threads=threads)
        given |= {key: value for key, value in stated.items() if value is not None}
        command = build_command(file, given, args)
        engine = cls(file, _url(host, port))
        engine._command = command
        engine.env = {**command.env, **(env or {})}
        clock = clock or SystemClock()
        began_ns = clock.monotonic_ns()
        try:
            engine._process = EngineProcess(
                command.argv,
                engine.env,
                log,
                stop_signal=file.stop_signal,
                grace_s=file.stop_grace_ns / NS_PER_S,
            )
        except OSError as error:
            raise UsageError(
                f"'{command.argv[0]}' cannot be started: {error.strerror}",
                where=f"{file.path}: [start] argv",
                hint=file.install,
            ) from error
        try:
            limit_ns = file.ready_limit_ns if ready_limit_ns is None else ready_limit_ns
            engine._wait_ready(began_ns, limit_ns, clock, pause)
            engine.ready_s = (clock.monotonic_ns() - began_ns) / NS_PER_S
            engine._check_listener(port)
            engine.version = engine._ask_version()
            engine.ledger = ledger_in(engine._process.log_text()) if engine._process else None
        except BaseException:
            engine.stop()
            raise
        return engine

    def _wait_ready(self, began_ns: int, limit_ns: int, clock: Clock, pause: Callable[[float], object]) -> None:
        import httpx

        last = "no answer yet"
        # no proxy of the environment stands between this host and itself
        with httpx.Client(trust_env=False, timeout=_ANSWER_S) as client:
            waiting_for = list(self.file.ready_paths)
            while waiting_for:
                taken_ns = clock.monotonic_ns() - began_ns
                death = self.died()
                if death is not None:
                    raise self._failed(f"{death.what} after {format_duration(taken_ns)}, before it was ready")
                if taken_ns >= limit_ns:
                    raise self._failed(
                        f"was not ready within {format_duration(limit_ns)} (GET {waiting_for[0]}: {last})"
                    )
                try:
                    # the headers are enough; a body need not end
                    with client.stream("GET", self.url + waiting_for[0]) as response:
                        last = f"answered {response.status_code}"
                        if response.status_code == self.file.ready_status:
                            waiting_for.pop(0)
                            continue
                except httpx.HTTPError as error:
                    last = type(error).__name__
                pause(self.file.ready_every_ns / NS_PER_S)

    def _failed(self, what: str) -> TargetError:
        """The error of an engine that did not come up: what happened, the end of its log, and a hint."""
        assert self._process is not None
        # a process that dies while it still writes: its children may hold the last lines, so end them first
        self.stop()
        tail = self._process.log_tail()
        shown = "\n".join(f"    | {line}" for line in tail.splitlines()) or "    | (it wrote nothing)"
        return TargetError(
            f"{self.file.title} {what}; the end of its log ({self._process.log}):\n{shown}",
            hint=self._hint() or f"read the log, or start it by hand: {' '.join(redact_argv(list(self._argv)))}",
        )

    def _hint(self) -> str:
        assert self._process is not None
        hint = self.file.hint_for(self._process.log_text())
        if not hint and self._process.exit_code() == -9 and self._process.ended in ("", "already"):
            return "SIGKILL that nobody here sent is most often the kernel's, out of memory: see dmesg"
        return hint

    @property
    def _argv(self) -> tuple[str, ...]:
        return () if self._command is None else self._command.argv

    def _check_listener(self, port: int) -> None:
        """That the answer came from this engine, and not from another that took the port in between."""
        assert self._process is not None
        if not self.file.own_listener:
            return
        known = [listener for listener in listeners(port) if listener.pid is not None]
        if known and not any(self._process.owns(listener.pid) for listener in known if listener.pid is not None):
            raise TargetError(
                f"port {port} is answered by {known[0]}, not by the {self.file.title} that was started",
                where=self.url,
                hint="give another port; or own_listener = false under [ready], if it answers through another process "
                "(a container)",
            )

    def _ask_version(self) -> str | None:
        """The engine's version by its command or its path; None with a note where it does not tell."""
        try:
            text = self._version_text()
        except Exception as error:  # a version is worth a note, never a run
            self.notes.append(f"the version of {self.file.title} is not known: {type(error).__name__}: {error}")
            return None
        if text is None:
            return None
        pattern = self.file.version_pattern
        found = pattern.search(text) if pattern else None
        if pattern and found is None:
            self.notes.append(f"the version of {self.file.title} is not known: its answer does not hold one")
            return None
        version = (found.group(1) if found and found.groups() else found.group() if found else text).strip()
        return version.splitlines()[0][:200] if version else None

    def _version_text(self) -> str | None:
        if self.file.version_argv and self._command is not None:
            words = fill(self.file.version_argv, self._command.values, f"{self.file.path}: [version] argv")
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_S, check=False, text=True
            )
            return f"{done.stdout}\n{done.stderr}" if done.returncode == 0 else None
        if self.file.version_path:
            import httpx

            with httpx.Client(trust_env=False, timeout=_ANSWER_S) as client:
                return client.get(self.url + self.file.version_path).raise_for_status().text
        return None

    @property
    def pid(self) -> int | None:
        """The leader's process id; None when attached."""
        return None if self._process is None else self._process.pid

    @property
    def metrics_url(self) -> str | None:
        """Where its Prometheus metrics are, None when its launch file names no place."""
        return None if self.file.metrics_path is None else self.url + self.file.metrics_path

    def died(self) -> Death | None:
        """Whether it ended without being asked, such as in mid-run; None while it runs, or when attached."""
        process = self._process
        if process is None or process.asked_to_end:
            return None
        code = process.exit_code()
        return None if code is None else Death(process.describe_exit(), code, process.log_tail(), self._hint())

    def stop(self) -> str:
        """End it and all it started. How: "" (attached), "already", "asked", "killed" or "stuck" (noted)."""
        if self._process is not None:
            self.stopped = self._process.end()
            note = f"processes of {self.file.title} could not be ended (group {self._process.pid})"
            if self.stopped == "stuck" and note not in self.notes:
                self.notes.append(note)
        return self.stopped

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def facts(self) -> dict[str, Any]:
        """The manifest's `engine` entry, secrets removed. For an attached engine only its name and its URL."""
        if self._command is None or self._process is None:
            return {"name": self.file.name, "url": self.url, "attached": True}
        values = self._command.values
        return {
            "name": self.file.name,
            "title": self.file.title,
            "argv": redact_argv(list(self._command.argv)),
            "env": redact_headers(self.env),
            "version": self.version,
            "ready_s": self.ready_s,
            "pid": self.pid,
            "url": self.url,
            "log": str(self._process.log),
            "stopped": self.stopped or None,
            "notes": list(self.notes),
            "facts": {
                "model": values.get("model"),
                "served_name": name if (name := values.get("served_name")) in self._argv else None,
                "threads": values.get("threads"),
                "ledger": self.ledger,
                "values": redact_headers(dict(values)),
                "capabilities": dict(self.file.capabilities),
                "launch_file": str(self.file.path),
                "launch_sha256": self.file.sha256,
                "tried": self.file.tried,
            },
        }
