"""Faults told to the user: what failed, where, and what to try next. Carries the exit code, knows nothing else."""

from __future__ import annotations

USAGE = 2
CANNOT_LOAD = 3


class EngineError(Exception):
    """A clear message and an exit code: 2 usage, 3 cannot load or bind."""

    def __init__(self, message: str, code: int = CANNOT_LOAD) -> None:
        super().__init__(message)
        self.code = code
