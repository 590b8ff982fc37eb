"""The shape of a launch file: which tables and keys there are, and of what type. It reads and starts nothing."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchlab.errors import UsageError

CAPABILITIES = (
    "chat",
    "completions",
    "messages",
    "tokenize",
    "ignore_eos",
    "usage",
    "continuous_usage",
    "cancels",
)
"""What a launch file may claim of an engine; a capability that it does not mention is not known (None)."""

Check = Callable[[Any], str]
"""Why a value is wrong, "" when it is right."""


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value else "must be a text"


def _texts(value: Any) -> str:
    ok = isinstance(value, list) and value and all(isinstance(word, str) for word in value)
    return "" if ok else "must be a list of texts"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


def _status(value: Any) -> str:
    ok = isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
    return "" if ok else "must be an HTTP status such as 200"


def _url_path(value: Any) -> str:
    return "" if isinstance(value, str) and value.startswith("/") else 'must be a path such as "/health"'


def _url_paths(value: Any) -> str:
    return "" if isinstance(value, list) and value and not any(map(_url_path, value)) else "must be a list of paths"


def _regex(value: Any) -> str:
    try:
        re.compile(value)
    except (re.error, TypeError) as error:
        return f"is no regular expression: {error}"
    return ""


def _signal(value: Any) -> str:
    return (
        "" if isinstance(value, str) and value in signal.Signals.__members__ else 'must be a signal such as "SIGTERM"'
    )


def _duration(value: Any) -> str:
    return "" if isinstance(value, str) else 'must be a time with its unit, such as "30s"'


def _table_of(check: Check, name: str = r"[A-Za-z_][A-Za-z0-9_]*") -> Check:
    def inner(value: Any) -> str:
        if not isinstance(value, Mapping):
            return "must be a table"
        for key, each in value.items():
            why = check(each) if re.fullmatch(name, key) else "is no fit name"
            if why:
                return f"{key} {why}"
        return ""

    return inner


def _scalar(value: Any) -> str:
    return "" if isinstance(value, str | int | float) and not isinstance(value, bool) else "must be a text or a number"


_TOP: dict[str, Check] = {
    "title": _text,
    "tried": _text,
    "install": _text,
    "attach": _flag,
    "extends": _text,
    "defaults": _table_of(_scalar, r"[a-z_]+"),
    "capabilities": _table_of(_flag),
}
_TABLES: dict[str, dict[str, Check]] = {
    "start": {"argv": _texts, "env": _table_of(lambda v: "" if isinstance(v, str) else "must be a text"),
              "when": _table_of(_texts, r"[a-z_]+")},
    "ready": {"paths": _url_paths, "status": _status, "limit": _duration, "every": _duration,
              "own_listener": _flag},
    "paths": {"models": _url_path, "metrics": _url_path, "health": _url_path},
    "version": {"argv": _texts, "path": _url_path, "pattern": _regex},
    "stop": {"signal": _signal, "grace": _duration},
}  # fmt: skip
_HINT: dict[str, Check] = {"log": _regex, "advice": _text}


def _check(table: Any, checks: dict[str, Check], where: str) -> None:
    if not isinstance(table, Mapping):
        raise UsageError("must be a table", where=where)
    for key, value in table.items():
        if key not in checks:
            raise UsageError(f"unknown key '{key}'", where=where, hint=f"the keys here are {', '.join(sorted(checks))}")
        why = checks[key](value)
        if why:
            raise UsageError(why, where=f"{where} {key}")


def check_tables(table: Mapping[str, Any], path: Path) -> None:
    """Check a launch file as TOML gave it. Raises UsageError naming the file, the table and the key."""
    top = {key: value for key, value in table.items() if key not in _TABLES and key != "hints"}
    known = _TOP | {name: _text for name in (*_TABLES, "hints")}  # named in the hint; checked below
    _check(top, known, f"{path}:")
    for name, checks in _TABLES.items():
        if name in table:
            _check(table[name], checks, f"{path}: [{name}]")
    for name in table.get("capabilities", {}):
        if name not in CAPABILITIES:
            where = f"{path}: [capabilities]"
            raise UsageError(f"unknown key '{name}'", where=where, hint=f"one of {', '.join(CAPABILITIES)}")
    hints = table.get("hints", [])
    if not isinstance(hints, list):
        raise UsageError("must be tables [[hints]]", where=f"{path}: hints")
    for number, hint in enumerate(hints, 1):
        where = f"{path}: [[hints]] {number}"
        _check(hint, _HINT, where)
        missing = set(_HINT) - set(hint)
        if missing:
            raise UsageError(f"lacks {', '.join(sorted(missing))}", where=where)
