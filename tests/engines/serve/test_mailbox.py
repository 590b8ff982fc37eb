"""The mailbox when things go wrong: an engine that dies is seen by everybody who waits for it."""

from __future__ import annotations

import asyncio
import time

import pytest

from benchlab_engine.core.loop import Engine
from benchlab_engine.core.request import FinishReason, RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.serve.gauges import Gauges
from benchlab_engine.serve.mailbox import Mailbox
from benchlab_engine.sim.costs import StepCosts
from benchlab_engine.sim.runner import PacedRunner


def mailbox(runner):
    engine = Engine(Scheduler(SchedulerConfig(max_seqs=2, queue_limit=0)), runner, time.monotonic_ns)
    return Mailbox(engine, Gauges(engine.scheduler, {}))


async def hear(ticket):
    """All news of a request, in order."""
    news = asyncio.Queue()
    ticket.listener = news.put_nowait
    out = []
    while not out or out[-1].finish is None:
        out.append(await asyncio.wait_for(news.get(), 10))
    return out


async def news_of(box, count):
    box.start(asyncio.get_running_loop())
    (ticket,) = box.submit([RequestSpec("a", (1, 2), count)], 0)
    return await hear(ticket)


def test_tokens_come_in_order_and_the_ticket_moves_to_the_past():
    box = mailbox(PacedRunner(StepCosts(), (7,), lambda _: None))
    news = asyncio.run(news_of(box, 5))
    box.stop()
    assert [each.token for each in news] == [7] * 5
    assert not box.live
    assert list(box.past) == ["a"]
    box.engine.scheduler.audit()


def test_a_failed_step_is_an_error_and_the_engine_goes_on():
    class Sometimes:
        calls = 0

        def execute(self, plan):
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("broken once")
            return PacedRunner(StepCosts(), (7,), lambda _: None).execute(plan)

    box = mailbox(Sometimes())

    async def twice():
        first = await news_of(box, 3)
        (ticket,) = box.submit([RequestSpec("b", (1,), 1)], 0)
        return first, (await hear(ticket))[0]

    first, second = asyncio.run(twice())
    box.stop()
    assert first[-1].finish is FinishReason.ERROR
    assert box.failure == "RuntimeError: broken once"
    assert second.token == 7
    assert not box.broken


def test_an_engine_that_dies_is_told_to_who_waits(capfd):
    class Fatal:
        def execute(self, plan):
            raise SystemExit("gone")

    box = mailbox(Fatal())
    news = asyncio.run(news_of(box, 3))
    box.stop()
    assert news[-1].finish is FinishReason.ERROR
    assert box.broken
    assert "SystemExit: gone" in capfd.readouterr().err


def test_who_comes_as_the_engine_dies_is_told_too():
    class Fatal:
        def execute(self, plan):
            raise SystemExit("gone")

    box = mailbox(Fatal())

    async def late():
        box.start(asyncio.get_running_loop())
        box.submit([RequestSpec("a", (1,), 1)], 0)
        while not box.broken:
            time.sleep(0.001)  # the event loop must not turn before the second one is there
        box.stop()
        (ticket,) = box.submit([RequestSpec("b", (1,), 1)], 0)
        return await hear(ticket)

    assert asyncio.run(late())[-1].finish is FinishReason.ERROR


@pytest.mark.parametrize("name", ["a", "b"])
def test_refusals_come_before_the_engine_is_asked(name):
    box = mailbox(PacedRunner(StepCosts(), (7,), lambda _: None))  # never started: nothing is taken up
    assert box.submit([RequestSpec("a", (1,), 1)], 0)[0].spec.request_id == "a"
    box.submit([RequestSpec("c", (1,), 1)], 0)
    assert box.submit([RequestSpec(name, (1,), 1)], 0).kind == ("duplicate" if name == "a" else "queue_full")
