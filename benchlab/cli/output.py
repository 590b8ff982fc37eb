"""How a command prints its result and what it exits with, the same for all of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchlab.errors import Exit, UsageError

FORMATS = ("table", "json", "md", "csv")


def check_format(name: str, known: Sequence[str] = FORMATS) -> str:
    """The format, or UsageError."""
    if name not in known:
        raise UsageError(f"'{name}' is no format here", where="--format", hint=f"one of {', '.join(known)}")
    return name


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """What is printed inside may meet a reader that has gone (`| head`): the exit code is then still the run's."""
    try:
        yield
    except BrokenPipeError:
        drop_stdout()


def drop_stdout() -> None:
    """From now on what goes to stdout goes nowhere, what is still buffered too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def width() -> int:
    """Columns to write for: COLUMNS, else the terminal's, else 100; never below 80."""
    return max(80, shutil.get_terminal_size((100, 24)).columns)


def print_summary(
    summary: Mapping[str, Any], form: str, *, run: Path | None = None, report: Path | None = None, detail: bool = False
) -> None:
    """The result on stdout, and nothing else there."""
    with reader_may_leave():
        _print_summary(dict(summary), form, run, report, detail)


def _print_summary(whole: dict[str, Any], form: str, run: Path | None, report: Path | None, detail: bool) -> None:
    from benchlab.report import tables, text

    if form == "json":
        print(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False))
    elif form == "md":
        print(tables.markdown(whole))
    elif form == "csv":
        sys.stdout.write(tables.csv(whole))
    else:
        from rich.console import Console

        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        console = Console(width=width(), no_color=plain, highlight=False, soft_wrap=False)
        text.print_result(console, whole, run_path=run, report_path=report, detail=detail)


def finish(summary: Mapping[str, Any], *, extra: list[Exit] | None = None, why: str = "") -> int:
    """The exit code by INTERFACES.md's precedence, its reason said last on stderr."""
    from benchlab.errors import most_severe
    from benchlab.selection.gate import exit_code

    gates = summary.get("gates") or []
    code = most_severe([exit_code(summary, gates=gates), *(extra or [])])
    if code is Exit.OK:
        reason = f"{len(gates)} gate{'s' * (len(gates) != 1)} passed" if gates else "done"
    elif code is Exit.INVALID:
        rules = (summary.get("verdict") or {}).get("rules") or []
        reason = "INVALID: " + ", ".join(str(rule["name"]) for rule in rules if rule.get("state") == "fail")
    elif code is Exit.GATE:
        failed = [gate for gate in gates if not gate.get("passed")]
        reason = "gate: " + "; ".join(str(gate.get("why") or gate.get("name")) for gate in failed[:3])
    else:
        reason = why or code.name.lower()
    return say_exit(code, reason)


def say_exit(code: Exit | int, why: str) -> int:
    """The last line on stderr: the exit code and why."""
    print(f"benchlab: exit {int(code)} ({why})", file=sys.stderr)
    return int(code)
