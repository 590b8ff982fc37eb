"""Cost profiles, faults, the pace and the paced runner's tokens."""

from __future__ import annotations

import pytest

from benchlab_engine.core.plan import Sampling, StepPlan, Work
from benchlab_engine.sim.costs import StepCosts, parse_duration, parse_profile
from benchlab_engine.sim.faults import Fault, parse_fault
from benchlab_engine.sim.runner import PacedRunner, SleepingPace


def work(name="a", tokens=(1,), start=0, decode=False, seed=0):
    return Work(name, tuple(tokens), start, (0,), True, decode, Sampling(seed=seed))


@pytest.mark.parametrize(("text", "ns"), [("50ms", 50_000_000), ("0.5ms", 500_000), ("2s", 2 * 10**9), ("7us", 7_000)])
def test_durations_carry_units(text, ns):
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["50", "ms", "-1ms", "1 hour", ""])
def test_a_duration_without_a_unit_is_refused(text):
    with pytest.raises(ValueError, match="write a number and a unit"):
        parse_duration(text)


def test_profiles():
    assert parse_profile("null") == StepCosts()
    assert parse_profile("teaching").prompt_token == 500_000
    fixed = parse_profile("ttft=50ms,itl=20ms")
    assert fixed.of(StepPlan(1, (work(),))) == 50_000_000
    assert fixed.of(StepPlan(1, (work(start=3, decode=True),))) == 20_000_000
    assert parse_profile("step=2ms,decode=1ms").of(StepPlan(1, (work(decode=True), work(decode=True)))) == 4_000_000
    for wrong in ("fast", "ttft=5", "speed=1ms"):
        with pytest.raises(ValueError):
            parse_profile(wrong)


def test_faults():
    assert parse_fault("") == Fault()
    assert parse_fault("stall=500ms@3, no-done,usage=+7") == Fault(
        stall_ns=500_000_000, stall_at=3, no_done=True, usage_offset=7
    )
    for wrong in ("explode", "reset@x", "stall=5@1", "status=200"):
        with pytest.raises(ValueError, match="fault"):
            parse_fault(wrong)


def test_tokens_depend_on_seed_and_position_alone():
    runner = PacedRunner(StepCosts(), range(1000), lambda _: None)

    def token(*works):
        return runner.execute(StepPlan(1, works)).tokens["a"][0]

    alone = token(work(start=5))
    assert token(work("b", start=9), work(start=5)) == alone
    assert token(work(start=5, seed=1)) != alone
    assert token(work(start=6)) != alone


def test_the_pace_is_an_absolute_grid():
    now, slept = [0], []

    def sleep(seconds):
        slept.append(round(seconds * 1e9))
        now[0] += round(seconds * 1e9) + 100_000  # every wake-up is late

    pace = SleepingPace(lambda: now[0], sleep)
    for _ in range(10):
        pace(10_000_000)
    assert now[0] == 100_000_000 + 100_000  # lateness has not added up
    now[0] += 10**9
    pace(10_000_000)
    assert slept[-1] == 10_000_000  # after a rest, a fresh start
