"""The paced runner: the same scheduler, blocks and times as a real model, and no arithmetic.

The one idea: tokens by seed, durations by cost model, and a pace that is handed in: slept when served, counted when
simulated. It must not know the wire or any tensor library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchlab_engine.core.plan import StepPlan, StepResult
from benchlab_engine.sim.costs import StepCosts

_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """One well-stirred 64-bit number of several: the same on every machine."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ (number & _MASK)) & _MASK
        state = (state * 0xBF58476D1CE4E5B9) & _MASK
        state ^= state >> 29
        state = (state * 0x94D049BB133111EB) & _MASK
        state ^= state >> 32
    return state


class SleepingPace:
    """Waits until each step's absolute end, so that one late wake-up does not shift the steps after it."""

    def __init__(
        self, clock: Callable[[], int] = time.monotonic_ns, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._end_ns = 0

    def __call__(self, duration_ns: int) -> None:
        """Return duration_ns after the end of the step before, or after now if the engine stood idle since."""
        now = self._clock()
        # A gap of up to a millisecond is the loop's own time between two steps of one busy stretch.
        start = self._end_ns if 0 <= now - self._end_ns < 1_000_000 + duration_ns // 4 else now
        self._end_ns = start + duration_ns
        remaining = self._end_ns - now
        if remaining > 0:
            self._sleep(remaining / 1e9)


class PacedRunner:
    """costs: the cost model. vocabulary: token ids to draw from. pace: called with the duration of each step, ns."""

    def __init__(self, costs: StepCosts, vocabulary: Sequence[int], pace: Callable[[int], None], seed: int = 0) -> None:
        self._costs = costs
        self._vocabulary = vocabulary
        self._pace = pace
        self._seed = seed

    def execute(self, plan: StepPlan) -> StepResult:
        """Take the plan's time and give each sampling work its token."""
        duration = self._costs.of(plan)
        tokens = {
            work.request_id: (
                self._vocabulary[
                    mix(self._seed, work.sampling.seed, work.start + len(work.token_ids)) % len(self._vocabulary)
                ],
            )
            for work in plan.works
            if work.samples
        }
        self._pace(duration)
        return StepResult(tokens, duration)
