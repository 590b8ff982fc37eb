"""What failed, where, and the next thing to try: the one shape of every error that a user sees.

An error is raised where the fault is known and printed once, at the command line. It carries the exit code of
INTERFACES.md, so that no caller has to translate.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line; they are an interface, see `benchlab --help`."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    UNREACHABLE = 3
    INVALID = 4
    INCONCLUSIVE = 5
    NOT_COMPARABLE = 6
    ABORTED = 7
    GATE = 99
    INTERRUPTED = 130
    TERMINATED = 143


_PRECEDENCE = (
    Exit.INTERRUPTED,
    Exit.TERMINATED,
    Exit.USAGE,
    Exit.UNREACHABLE,
    Exit.INTERNAL,
    Exit.ABORTED,
    Exit.INVALID,
    Exit.NOT_COMPARABLE,
    Exit.GATE,
    Exit.INCONCLUSIVE,
    Exit.OK,
)


def most_severe(codes: list[Exit]) -> Exit:
    """The one code to exit with when several apply (130/143 > 2 > 3 > 1 > 7 > 4 > 6 > 99 > 5 > 0)."""
    return min(codes, key=_PRECEDENCE.index, default=Exit.OK)


class BenchlabError(Exception):
    """A fault told to the user.

    what: what failed, one clause. where: file and line, URL, flag or stage. hint: the next thing to try.
    """

    exit_code: Exit = Exit.INTERNAL

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        text = self.what if not self.where else f"{self.where}: {self.what}"
        return text if not self.hint else f"{text}\n  try: {self.hint}"


class UsageError(BenchlabError):
    """A flag, a configuration or an input file is wrong (exit 2)."""

    exit_code = Exit.USAGE


class TargetError(BenchlabError):
    """The endpoint cannot be reached, is not ready, or refuses every request of this kind (exit 3)."""

    exit_code = Exit.UNREACHABLE


class NotComparableError(BenchlabError):
    """A baseline is missing, or the two runs did not do the same thing (exit 6)."""

    exit_code = Exit.NOT_COMPARABLE


class StorageError(BenchlabError):
    """The run directory cannot be written: disk full, no permission (exit 1, what was measured is kept)."""

    exit_code = Exit.INTERNAL
