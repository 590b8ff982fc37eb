"""A launch file: how one engine is started, known to be ready, asked for its version, and stopped. Data, no code.

Every wrong key, type or placeholder is a UsageError that names the file and the key. A user's file may begin with
`extends = "vllm"` and hold only what differs. It starts nothing.
"""

from __future__ import annotations

import hashlib
import re
import signal
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchlab.errors import UsageError
from benchlab.launch.check import CAPABILITIES, check_tables
from benchlab.shipped import launch_files
from benchlab.units import parse_duration_ns

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
GIVEN = frozenset({"python", "model", "port", "host", "served_name", "threads", "args"})
"""Placeholders that benchlab fills; those of `[defaults]` come on top."""

_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Hint:
    """A pattern of the log, and what to do about it."""

    log: re.Pattern[str]
    advice: str


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """One engine. Times in ns; `values` are `[defaults]`; `when` are arguments added only if that value is given.

    attach: nothing is started. own_listener: the port must be held by the engine itself. sha256: of the file and
    those it extends, as read. tried: where it was, or "no".
    """

    name: str
    path: Path
    sha256: str
    title: str = ""
    tried: str = ""
    install: str = ""
    attach: bool = False
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    ready_paths: tuple[str, ...] = ()
    ready_status: int = 200
    own_listener: bool = True
    ready_limit_ns: int = 300_000_000_000
    ready_every_ns: int = 100_000_000
    models_path: str = "/v1/models"
    metrics_path: str | None = None
    health_path: str | None = None
    version_argv: tuple[str, ...] = ()
    version_path: str | None = None
    version_pattern: re.Pattern[str] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_ns: int = 10_000_000_000
    capabilities: Mapping[str, bool | None] = field(default_factory=dict)
    hints: tuple[Hint, ...] = ()

    def hint_for(self, log: str) -> str:
        """The advice of the first hint that fits the log, "" when none does."""
        return next((hint.advice for hint in self.hints if hint.log.search(log)), "")


def shipped_names() -> list[str]:
    """The engines that benchlab ships a file for."""
    return sorted(path.stem for path in launch_files().glob("*.toml"))


def load_launch_file(name_or_path: str | Path) -> LaunchFile:
    """A shipped engine by name ("bundled"), or a user's FILE.toml. Raises UsageError."""
    path = _resolve(str(name_or_path), None)
    table, digest = _read(path, ())
    return _build(path, table, digest)


def _resolve(word: str, beside: Path | None) -> Path:
    """The file that a name or a path means; a relative path in `extends` is beside the file that says it."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", word):
        path = launch_files() / f"{word}.toml"
        if path.is_file():
            return path
        raise UsageError(
            f"there is no engine '{word}'",
            where="--engine",
            hint=f"one of {', '.join(shipped_names())}, or the path of a launch file (FILE.toml)",
        )
    path = Path(word).expanduser()
    if beside is not None and not path.is_absolute():
        path = beside.parent / path
    if not path.is_file():
        raise UsageError("no such launch file", where=str(path), hint=f"or a name: {', '.join(shipped_names())}")
    return path


def _read(path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], str]:
    """The tables of a file merged over those it extends, checked, and a hash of all of them."""
    if path.resolve() in seen or len(seen) >= _MAX_DEPTH:
        raise UsageError("extends itself, or too deeply", where=f"{path}: extends")
    try:
        data = path.read_bytes()
        table = tomllib.loads(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot be read as TOML: {error}", where=str(path)) from error
    check_tables(table, path)
    digest = hashlib.sha256(data)
    parent = table.pop("extends", None)
    if parent is not None:
        base, base_digest = _read(_resolve(parent, path), (*seen, path.resolve()))
        digest.update(base_digest.encode())
        hints = [*table.get("hints", []), *base.get("hints", [])]
        table = _merged(base, table)
        table["hints"] = hints
    return table, digest.hexdigest()


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _build(path: Path, table: dict[str, Any], digest: str) -> LaunchFile:
    def duration(section: str, key: str, default: str) -> int:
        text = table.get(section, {}).get(key, default)
        return parse_duration_ns(text, flag=f"{path}: [{section}] {key}")

    start, ready, paths = table.get("start", {}), table.get("ready", {}), table.get("paths", {})
    version, stop = table.get("version", {}), table.get("stop", {})
    attach = table.get("attach", False)
    if not attach and not start.get("argv"):
        raise UsageError("says no command", where=f"{path}: [start] argv", hint="or attach = true to start nothing")
    if not attach and not ready.get("paths"):
        raise UsageError("says no path", where=f"{path}: [ready] paths", hint='such as ["/health"]')
    values = {key: str(value) for key, value in table.get("defaults", {}).items()}
    when = {key: tuple(words) for key, words in start.get("when", {}).items()}
    file = LaunchFile(
        name=path.stem,
        path=path,
        sha256=digest,
        title=table.get("title", path.stem),
        tried=table.get("tried", "no"),
        install=table.get("install", ""),
        attach=attach,
        argv=tuple(start.get("argv", ())),
        env=start.get("env", {}),
        when=when,
        values=values,
        ready_paths=tuple(ready.get("paths", ())),
        ready_status=ready.get("status", 200),
        own_listener=ready.get("own_listener", True),
        ready_limit_ns=duration("ready", "limit", "5m"),
        ready_every_ns=duration("ready", "every", "100ms"),
        models_path=paths.get("models", "/v1/models"),
        metrics_path=paths.get("metrics"),
        health_path=paths.get("health"),
        version_argv=tuple(version.get("argv", ())),
        version_path=version.get("path"),
        version_pattern=re.compile(version["pattern"]) if "pattern" in version else None,
        stop_signal=signal.Signals[stop.get("signal", "SIGTERM")],
        stop_grace_ns=duration("stop", "grace", "10s"),
        capabilities={name: table.get("capabilities", {}).get(name) for name in CAPABILITIES},
        hints=tuple(Hint(re.compile(hint["log"]), hint["advice"]) for hint in table.get("hints", ())),
    )
    _check_placeholders(file)
    return file


def _check_placeholders(file: LaunchFile) -> None:
    known = GIVEN | set(file.values)
    optional = {word for text in file.env.values() for word in PLACEHOLDER.findall(text)} | set(file.when)
    places = [("[start] argv", file.argv, known), ("[version] argv", file.version_argv, known - {"args"})]
    places += [(f"[start.when] {key}", words, known | {key}) for key, words in file.when.items()]
    places += [(f"[start] env.{key}", (text,), (known | optional) - {"args"}) for key, text in file.env.items()]
    for key, words, allowed in places:
        for word in words:
            for name in PLACEHOLDER.findall(word):
                if name not in allowed:
                    raise UsageError(
                        f"{{{name}}} is no placeholder",
                        where=f"{file.path}: {key}",
                        hint=f"known: {', '.join(sorted(known))}; more can be named under [defaults]",
                    )
                if name == "args" and word != "{args}":
                    raise UsageError("{args} must be an argument of its own", where=f"{file.path}: {key}")
