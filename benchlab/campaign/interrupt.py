"""Ctrl-C and SIGTERM during a run: the first asks for an orderly end, the second does without the drain."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from benchlab.errors import Exit


class Interrupt:
    """`code` is the exit code once a signal came. While `loading`, the first signal is only noted there; before that,
    and from the second on, KeyboardInterrupt is raised where the program is.
    """

    def __init__(self) -> None:
        self.code: Exit | None = None
        self.loading = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        again = self.code is not None
        self.code = Exit.INTERRUPTED if number == signal.SIGINT else Exit.TERMINATED
        if again or not self.loading:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
