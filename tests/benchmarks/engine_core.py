"""What deciding a step costs: plan and settle of the engine's core, no model and no server.

    python -m tests.benchmarks.engine_core

CPU time of this process a step (wall times on shared machines are noise), the median over the steps. "decode": every
sequence decodes in every step. "mix": one sequence in eight ends and is replaced in turn, so that prompts are admitted,
looked up in the prefix cache, computed in chunks and published beside the decodes.
"""

from __future__ import annotations

import statistics
import time

from benchlab_engine.core.plan import StepPlan, StepResult
from benchlab_engine.core.request import RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig

_WARM, _STEPS = 20, 200
_PROMPT = 200


def _result(plan: StepPlan) -> StepResult:
    """A token for each work that gives one; and, where there are proposals, each of them right."""
    return StepResult(
        {
            work.request_id: (*work.token_ids[len(work.token_ids) - work.num_drafts :], plan.number % 32_000)
            for work in plan.works
            if work.samples
        }
    )


def _costs(scheduler: Scheduler, refill: bool) -> tuple[list[float], list[float], float]:
    """Seconds of plan and of settle for each step, and the mean number of positions a step computed."""
    plans: list[float] = []
    settles: list[float] = []
    positions = number = 0
    for step in range(_WARM + _STEPS):
        while refill and len(scheduler.requests) < scheduler.config.max_seqs:
            _submit(scheduler, number, 8 + number % 8)
            number += 1
        start = time.process_time()
        plan = scheduler.plan(step)
        middle = time.process_time()
        result = _result(plan)
        before = time.process_time()
        scheduler.settle(plan, result, step)
        end = time.process_time()
        if step >= _WARM:
            plans.append(middle - start)
            settles.append(end - before)
            positions += sum(len(work.token_ids) for work in plan.works)
    return plans, settles, positions / _STEPS


def _submit(scheduler: Scheduler, number: int, new: int) -> None:
    prompt = (*range(96), *range(number, number + _PROMPT - 96))  # a system prompt, and the user's own words
    refusal = scheduler.submit(RequestSpec(f"r{number}", prompt, new), 0)
    assert refusal is None, refusal


def _scheduler(running: int, blocks: int, **more: object) -> Scheduler:
    return Scheduler(
        SchedulerConfig(max_seqs=running, max_batched_tokens=8192, num_blocks=blocks, queue_limit=10_000, **more)
    )


def _decoding(running: int, blocks: int, **more: object) -> Scheduler:
    scheduler = _scheduler(running, blocks, **more)
    for number in range(running):
        _submit(scheduler, number, 4_000)
    while any(not request.output for request in scheduler.requests.values()):
        plan = scheduler.plan(0)
        scheduler.settle(plan, _result(plan), 0)
    return scheduler


def main() -> None:
    """Print the table."""
    names = ("running", "blocks", "positions", "plan us", "settle us", "sum us", "us/seq")
    print(f"{'':<8} {'{:>8} {:>8} {:>10} {:>9} {:>10} {:>8} {:>7}'.format(*names)}")
    for blocks in (1_000, 10_000, 100_000):
        for running in (16, 64, 256):
            if blocks * 16 < running * (_PROMPT + _WARM + _STEPS + 16):
                print(f"{'decode':<8} {running:>8} {blocks:>8}   does not fit without preemption: not measured")
                continue
            _line("decode", running, blocks, *_costs(_decoding(running, blocks), False))
    for running in (16, 64, 256):
        _line("mix", running, 100_000, *_costs(_scheduler(running, 100_000), True))
    ngram = {"speculate": "ngram", "num_drafts": 4}
    _line("ngram:4", 256, 100_000, *_costs(_decoding(256, 100_000, **ngram), False))
    _line("fair", 256, 100_000, *_costs(_decoding(256, 100_000, fair_share=True), False))


def _line(title: str, running: int, blocks: int, plans: list[float], settles: list[float], positions: float) -> None:
    plan, settle = statistics.median(plans) * 1e6, statistics.median(settles) * 1e6
    total = statistics.median(a + b for a, b in zip(plans, settles, strict=True)) * 1e6
    print(
        f"{title:<8} {running:>8} {blocks:>8} {positions:>10,.0f} {plan:>9,.0f} {settle:>10,.0f} {total:>8,.0f} "
        f"{total / running:>7.2f}"
    )


if __name__ == "__main__":
    main()
