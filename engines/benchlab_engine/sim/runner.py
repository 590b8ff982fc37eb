"""The paced runner: the same scheduler, blocks and times as a real model, and no arithmetic.

The one idea: tokens by seed, durations by cost model, and a pace that is handed in: slept when served, counted when
simulated. It must not know the wire or any tensor library.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from benchlab_engine.core.plan import StepPlan, StepResult, TokenLogprobs, Work
from benchlab_engine.sim.costs import CostModel

_MASK = (1 << 64) - 1
_ACCEPT, _CHANCE = 1, 2
"""Streams of chance beside the tokens' own."""


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
    """Tokens by seed and position alone, whatever else is in the batch; copies of blocks cost and move nothing.

    costs: the cost model, whose `accept` is the chance that a proposed token passes. Without one, a proposal passes if
    it is the token that this runner gives at that position itself; what it proposes itself then always passes.
    vocabulary: token ids to draw from. pace: called with the duration of each step, ns.
    """

    def __init__(self, costs: CostModel, vocabulary: Sequence[int], pace: Callable[[int], None], seed: int = 0) -> None:
        self._costs = costs
        self._vocabulary = vocabulary
        self._pace = pace
        self._seed = seed

    def execute(self, plan: StepPlan) -> StepResult:
        """Take the plan's time and give each sampling work its tokens."""
        duration = self._costs.of(plan)
        tokens: dict[str, tuple[int, ...]] = {}
        logprobs: dict[str, tuple[TokenLogprobs, ...]] = {}
        for work in plan.works:
            if not work.samples:
                continue
            first = work.start + len(work.token_ids) - work.num_drafts
            given = self._verified(work, first)
            tokens[work.request_id] = given
            if work.sampling.logprobs is not None:
                logprobs[work.request_id] = tuple(self._logprobs(work, first + i, t) for i, t in enumerate(given))
        self._pace(duration)
        return StepResult(tokens, duration, logprobs)

    def _token(self, work: Work, position: int, other_than: int = -1) -> int:
        """The token at a position; the next in the vocabulary where that one must not be drawn."""
        vocabulary = self._vocabulary
        place = mix(self._seed, work.sampling.seed, position) % len(vocabulary)
        if work.banned or other_than >= 0:
            for step in range(len(vocabulary)):
                token = vocabulary[(place + step) % len(vocabulary)]
                if token not in work.banned and token != other_than:
                    return token
        return vocabulary[place]

    def _verified(self, work: Work, first: int) -> tuple[int, ...]:
        """Proposals from left to right until one fails, then a token of the runner's own."""
        if not work.num_drafts and not work.num_to_draft:
            return (self._token(work, first),)
        accept, out = self._costs.accept, list[int]()
        proposals = work.token_ids[-work.num_drafts :] if work.num_drafts else (-1,) * work.num_to_draft
        for place, proposal in enumerate(proposals, start=first):
            own = self._token(work, place)
            if accept is None:
                passes = proposal in (-1, own)
            else:
                passes = mix(self._seed, work.sampling.seed, place, _ACCEPT) < accept * (_MASK + 1)
                passes = passes and proposal not in work.banned
            if not passes:
                return (*out, self._token(work, place, other_than=proposal))
            out.append(own if proposal == -1 else proposal)
        return (*out, self._token(work, first + len(proposals)))

    def _logprobs(self, work: Work, position: int, token: int) -> TokenLogprobs:
        """Made by seed: the token is the likeliest, and each alternative has half of what is left."""
        chance = 0.5 + 0.45 * mix(self._seed, work.sampling.seed, position, _CHANCE) / _MASK
        others = [each for each in dict.fromkeys(self._vocabulary) if each != token]
        top, left = [(token, math.log(chance))], 1 - chance
        for other in others[: max(0, (work.sampling.logprobs or 0) - 1)]:
            left /= 2
            top.append((other, math.log(left)))
        return TokenLogprobs(math.log(chance), tuple(top) if work.sampling.logprobs else ())
