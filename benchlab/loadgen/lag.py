"""How late this process's event loop is, sampled all through a stage: part of the certificate of every run."""

from __future__ import annotations

import asyncio

from benchlab.clock import Clock
from benchlab.units import NS_PER_MS, NS_PER_S

_PERIOD_NS = 50 * NS_PER_MS


class LoopLag:
    """Asks to be called each 50 ms and notes how much later it was, in ms (uvloop's timers round to 1 ms)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lags_ms: list[float] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._lags_ms = []
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            wanted = self._clock.monotonic_ns() + _PERIOD_NS
            await asyncio.sleep(_PERIOD_NS / NS_PER_S)
            self._lags_ms.append((self._clock.monotonic_ns() - wanted) / NS_PER_MS)

    def stop(self) -> dict[str, float | None]:
        """p50, p99 and max of the lag in ms since `start`; None where nothing was sampled."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        lags = sorted(max(0.0, lag) for lag in self._lags_ms)
        if not lags:
            return {"p50": None, "p99": None, "max": None}
        return {"p50": lags[len(lags) // 2], "p99": lags[min(len(lags) - 1, int(len(lags) * 0.99))], "max": lags[-1]}
