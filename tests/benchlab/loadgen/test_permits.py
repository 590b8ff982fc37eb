"""One cap over several workers: never exceeded, no permit lost with a dead worker, the longest wait goes first."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchlab.loadgen.permits import Permits


def run(folder: Path, cap: int, workers: int, body: Callable[[list[Permits], list[int]], object]) -> None:
    """Several workers' permits in one loop; `rings[w]` counts how often w was woken."""

    async def go() -> None:
        rings = [0] * workers

        def wake(worker: int) -> Callable[[], None]:
            def woken() -> None:
                rings[worker] += 1

            return woken

        permits = [Permits(folder, n, workers=workers, cap=cap, wake=wake(n)) for n in range(workers)]
        try:
            done = body(permits, rings)
            if asyncio.iscoroutine(done):
                await done
        finally:
            for each in permits:
                each.close()

    asyncio.run(go())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    cap=st.integers(1, 4),
    workers=st.integers(1, 3),
    steps=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60),
)
def test_the_cap_is_never_exceeded_and_never_left_unused(
    tmp_path: Path, cap: int, workers: int, steps: list[tuple[int, bool]]
) -> None:
    def body(permits: list[Permits], rings: list[int]) -> None:
        held = [0] * workers
        waiting: dict[int, int] = {}
        for now, (number, take) in enumerate(steps, 1):
            worker = number % workers
            if take:
                since = waiting.get(worker, now)
                if permits[worker].take(since):
                    held[worker] += 1
                    waiting.pop(worker, None)
                    permits[worker].nobody_waits()
                else:
                    waiting[worker] = since
                    earlier = sum(at < since for other, at in waiting.items() if other != worker)
                    assert sum(held) + earlier >= cap  # refused only where it is used, or kept for who came first
            elif held[worker]:
                held[worker] -= 1
                permits[worker].give_back()
            assert sum(held) <= cap

    run(tmp_path, cap, workers, body)


def test_a_permit_that_is_given_back_wakes_who_has_waited_longest(tmp_path: Path) -> None:
    async def body(permits: list[Permits], rings: list[int]) -> None:
        first, second, third = permits
        assert first.take(1)
        assert not third.take(5) and not second.take(9)
        before = list(rings)
        first.give_back()
        await asyncio.sleep(0.02)
        assert rings[2] > before[2] and rings[1] == before[1]
        assert not second.take(9)  # it is kept for the third
        assert third.take(5)
        third.nobody_waits()
        third.give_back()
        await asyncio.sleep(0.02)
        assert rings[1] > before[1] and second.take(9)

    run(tmp_path, 1, 3, body)


def test_a_permit_kept_for_one_that_does_not_come_goes_to_the_next(tmp_path: Path) -> None:
    async def body(permits: list[Permits], rings: list[int]) -> None:
        first, second, third = permits
        assert first.take(1) and not second.take(2) and not third.take(3)
        first.give_back()  # the second is woken, and does nothing
        assert not third.take(3)
        deadline = time.monotonic() + 20
        while not third.take(3):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.07)  # longer than it takes to look again by itself

    run(tmp_path, 1, 3, body)


def test_a_worker_that_died_leaks_nothing(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, time; from pathlib import Path; from benchlab.loadgen.permits import Permits\n"
        "async def go():\n"
        "    mine = Permits(Path(sys.argv[1]), 1, workers=2, cap=2, wake=print)\n"
        "    print(mine.take(1), mine.take(2), flush=True); time.sleep(600)\n"
        "asyncio.run(go())"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == b"True True\n"

            async def body(permits: list[Permits], rings: list[int]) -> None:
                mine = permits[0]
                assert not mine.take(3)
                await asyncio.sleep(0.15)
                assert not mine.take(3)  # the other lives: its permits are its own
                os.kill(other.pid, signal.SIGKILL)
                deadline = time.monotonic() + 20
                while not mine.take(3):
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.02)
                assert mine.take(4)

            async def go() -> None:
                mine = Permits(tmp_path, 0, workers=2, cap=2, wake=lambda: None)
                try:
                    await body([mine], [])
                finally:
                    mine.close()

            asyncio.run(go())
        finally:
            other.kill()
