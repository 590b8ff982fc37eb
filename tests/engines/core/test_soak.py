"""20,000 mixed requests through the core, with cancellations, an audit in and after every step."""

from __future__ import annotations

import random

import pytest

from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Sampling
from benchlab_engine.core.request import FinishReason, RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from tests.engines.core.fakes import SlotRunner, answer


def soak(num_requests: int, seed: int) -> tuple[Scheduler, dict[FinishReason, int]]:
    chance = random.Random(seed)
    now = 0
    scheduler = Scheduler(
        SchedulerConfig(
            max_seqs=8,
            max_batched_tokens=48,
            max_prefill_tokens=32,
            block_size=4,
            num_blocks=40,
            queue_limit=64,
            growth_reserve=1,
            age_ns=20,
            fair_share=True,
            speculate="ngram",
            num_drafts=3,
        )
    )
    engine = Engine(scheduler, SlotRunner(scheduler), lambda: now)
    heads = [tuple(chance.randrange(7) for _ in range(12)) for _ in range(5)]
    specs: dict[str, RequestSpec] = {}
    tokens: dict[str, list[int]] = {}
    ends: dict[FinishReason, int] = dict.fromkeys(FinishReason, 0)
    number = 0
    while number < num_requests or scheduler.requests:
        for _ in range(chance.randrange(3)):
            if number == num_requests or len(scheduler.requests) > 60:
                break
            name = f"r{number}"
            prompt = chance.choice(heads)[: chance.randint(1, 12)] + tuple(
                chance.randrange(7) for _ in range(chance.randrange(20))
            )
            parent = ""
            if chance.random() < 0.2 and scheduler.requests:
                parent = chance.choice(list(scheduler.requests))
                prompt = specs[parent].prompt
            specs[name] = RequestSpec(
                name,
                prompt,
                chance.randint(1, 24),
                Sampling(seed=number),
                frozenset({6}) if chance.random() < 0.5 else frozenset(),
                priority=chance.choice([0, 0, 1, 5]),
                tenant=chance.choice("xyz"),
                max_wait_ns=chance.choice([0, 0, 40]),
                deadline_ns=now + 60 if chance.random() < 0.1 else 0,
                parent=parent,
            )
            tokens[name] = []
            assert engine.submit(specs[name], now) is None
            number += 1
        if chance.random() < 0.1 and scheduler.requests:
            engine.cancel(chance.choice(list(scheduler.requests)), now)
        outcome = engine.step()
        assert outcome.error is None, outcome.error
        scheduler.audit()
        for emission in outcome.emissions:
            name = emission.request_id
            if emission.token is not None:
                tokens[name].append(emission.token)
            if emission.finish is not None:
                ends[emission.finish] += 1
                whole = answer(specs[name])
                done = emission.finish in (FinishReason.STOP, FinishReason.LENGTH)
                assert tokens[name] == (whole if done else whole[: len(tokens[name])])
                del specs[name], tokens[name]
        now += 1
    engine.step()
    assert scheduler.pool.num_free == 40
    return scheduler, ends


@pytest.mark.parametrize(
    "num_requests", [400, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_soak(num_requests):
    scheduler, ends = soak(num_requests, seed=num_requests)
    assert sum(ends.values()) >= num_requests - 1  # a last cancellation may still be untold
    assert ends[FinishReason.ERROR] == 0
    wanted = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.EXPIRED)
    assert all(ends[each] for each in wanted)
    assert scheduler.num_preemptions > 0
    assert sum(scheduler.speculation.num_accepted) > 0
    assert scheduler.pool.hit_tokens > 0
    # What is remembered of those who have gone is bounded by those who are there, not by all who ever came.
    assert len(scheduler._deadlines._heap._heap) < 300
    assert not scheduler.waiting._aside
    assert not scheduler.waiting._lanes
