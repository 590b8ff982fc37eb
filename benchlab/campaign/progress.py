"""What is said while a run is on, to standard error: plain lines for logs, one live line for a terminal, or nothing.

Live values are provisional: they are counters, not measurements.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TextIO

from benchlab.loadgen.counters import Counts

_PLAIN_EVERY_S = 10.0
_LIVE_EVERY_S = 0.25


class Progress:
    """mode: live | plain | json | none. `clock` gives seconds; only used to limit how often something is said."""

    def __init__(self, mode: str, out: TextIO | None = None) -> None:
        self._mode, self._out = mode, out or sys.stderr
        self._last = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """One line, in every mode but none."""
        if self._mode == "none":
            return
        self._clear()
        line = json.dumps({"event": "note", "text": text}) if self._mode == "json" else text
        print(line, file=self._out, flush=True)

    def stage(self, index: int, total: int, name: str, planned: int | None, seconds: float | None) -> None:
        """A stage begins."""
        about = f", about {seconds:.0f} s" if seconds else ""
        number = f", {planned} requests" if planned is not None else ""
        self._last = time.monotonic()
        self.say(f"stage {index + 1}/{total}  {name}{number}{about}")

    def tick(self, name: str, elapsed_s: float, total_s: float | None, counts: Counts) -> None:
        """The counters, as often as the mode allows."""
        now = time.monotonic()
        every = _LIVE_EVERY_S if self._mode == "live" else _PLAIN_EVERY_S
        if self._mode == "none" or now - self._last < every:
            return
        self._last = now
        if self._mode == "json":
            fields = {"event": "tick", "stage": name, "elapsed_s": round(elapsed_s, 1), "ok": counts.ok}
            fields |= {"failed": counts.failed, "in_flight": counts.inflight, "held": counts.held}
            print(json.dumps(fields), file=self._out, flush=True)
            return
        of = f"/{total_s:.0f}" if total_s else ""
        ttft = f"  last ttft {counts.ttft_us / 1000:,.0f} ms" if counts.ttft_us >= 0 else ""
        text = (
            f"  {name}  {elapsed_s:.0f}{of} s  sent {counts.dispatched - counts.held}  in flight {counts.inflight}"
            f"  ok {counts.ok}  failed {counts.failed}{ttft}"
        )
        if self._mode == "live":
            self._out.write(f"\r\x1b[2K{text[:100]}")
            self._out.flush()
            self._open = True
        else:
            print(text, file=self._out, flush=True)

    def _clear(self) -> None:
        if self._open:
            self._out.write("\r\x1b[2K")
            self._open = False

    def close(self) -> None:
        self._clear()
        self._out.flush()


def choose_mode(asked: str, *, quiet: bool, terminal: bool, ci: bool) -> str:
    """auto becomes live on a terminal and plain elsewhere; quiet is none."""
    if quiet:
        return "none"
    return ("live" if terminal and not ci else "plain") if asked == "auto" else asked
