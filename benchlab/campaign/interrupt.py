"""Ctrl-C and SIGTERM during a run: the first asks for an orderly end, the second does without the drain."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from benchlab.errors import BenchlabError, Exit


class NothingMeasuredError(BenchlabError):
    """A signal came before there was anything to keep."""

    def __init__(self, code: Exit) -> None:
        super().__init__("interrupted before anything was measured")
        self.exit_code = code


class Interrupt:
    """`code` is the exit code once a signal came. While `loading`, the first signal is only noted there; before that,
    and at the second, KeyboardInterrupt is raised where the program is. Once `ending`, signals change nothing: what
    was measured is being stored.
    """

    def __init__(self) -> None:
        self.code: Exit | None = None
        self.loading = self.ending = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self.ending:
            return
        again = self.code is not None
        if not again:
            self.code = Exit.INTERRUPTED if number == signal.SIGINT else Exit.TERMINATED
        if again or not self.loading:
            self.ending = self.loading
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is KeyboardInterrupt and self.code is not None:
            raise NothingMeasuredError(self.code) from None
