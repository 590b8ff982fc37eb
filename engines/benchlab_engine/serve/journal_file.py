"""The journal as a file, written and lived through again.

The one idea: every entry is a line, written as it comes; a disk that fails costs the journal, never the engine. It must
not know what an entry says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchlab_engine.core.journal import JournalError, read_lines, write_line
from benchlab_engine.core.replay import replay
from benchlab_engine.errors import CANNOT_LOAD, USAGE, EngineError

_DIFFERS = 1  # exit code


class JournalFile:
    """Call it with each entry. EngineError when the file cannot be made; one that is there is never written over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("x", encoding="utf-8", buffering=1 << 16)
        except FileExistsError:
            raise EngineError(f"--journal {path}: the file is there already; give another name", CANNOT_LOAD) from None
        except OSError as error:
            raise EngineError(
                f"--journal {path}: {error.strerror}; give a file that can be made", CANNOT_LOAD
            ) from None
        self._is_open = True

    def __call__(self, entry: dict[str, Any]) -> None:
        """Write one entry."""
        if not self._is_open:
            return
        try:
            self._file.write(write_line(entry))
        except OSError as error:
            self._is_open = False
            print(f"--journal {self._path}: {error}; the journal ends here", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """Write out what is left."""
        self._is_open = False
        try:
            self._file.close()
        except OSError as error:
            print(f"--journal {self._path}: {error}; its end is missing", file=sys.stderr, flush=True)  # noqa: T201

    def discard(self) -> None:
        """Take the file away: nothing was served, and the next try may have its name."""
        self.close()
        self._path.unlink(missing_ok=True)


def replay_file(path: Path) -> str:
    """Plan a journal's steps again and say that all came out equal. EngineError: the first that did not."""
    try:
        with path.open(encoding="utf-8") as lines:
            result = replay(None, read_lines(lines))
    except (OSError, UnicodeDecodeError, JournalError) as error:
        raise EngineError(f"{path}: {error}; give a file that serve --journal wrote", USAGE) from None
    if result.difference is not None:
        raise EngineError(f"{path}: {result.num_steps} steps came out equal, then {result.difference}", _DIFFERS)
    return f"{result.num_steps} steps, every plan as it was"
