"""Flags of load: ranges, ramps, shapes, peers' spellings; what is wrong is refused with the next step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchlab.cli.loads import parse_loads, parse_shapes
from benchlab.errors import UsageError
from benchlab.loadgen.arrivals import Arrival
from benchlab.units import NS_PER_S

PLAIN: dict[str, Any] = {
    "rate": None, "concurrency": None, "arrival": "poisson", "think": None, "timeout": "120s", "requests": None,
}  # fmt: skip


def loads(sweep: bool = True, **flags: Any) -> list[Any]:
    return [load.rate or load.concurrency for load in parse_loads(PLAIN | flags, sweep=sweep)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,2,4", [1, 2, 4]),
        ("1..32:x2", [1, 2, 4, 8, 16, 32]),
        ("2..10:+2", [2, 4, 6, 8, 10]),
        ("0.5..4:x2,9", [0.5, 1, 2, 4, 9]),
        ("1..30:x2", [1, 2, 4, 8, 16]),
        ("60/min..3:+1", [1, 2, 3]),
        ("0.1..0.5:+0.1", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("5..5:+1", [5]),
    ],
)
def test_rates_and_ranges(text: str, found: list[float]) -> None:
    assert loads(rate=text) == pytest.approx(found)


def test_users_and_ranges() -> None:
    assert loads(concurrency="1..32:x2") == [1, 2, 4, 8, 16, 32]
    assert loads(concurrency="1..10:x1.5") == [1, 2, 3, 5, 8]
    assert loads(concurrency="3,3") == [3, 3]
    assert loads(sweep=False) == [1, 4, 16]


@pytest.mark.parametrize(
    "text", ["", ",", "x", "0", "-1", "1..", "1..8", "8..1:x2", "1..8:x1", "1..8:+0", "1..8:x", "1..8:2", "1..1e9:+1",
             "1..8:xnan", "..8:x2", "inf"],
)  # fmt: skip
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        loads(rate=text)
    with pytest.raises(UsageError):
        loads(concurrency=text)


def test_ramps_are_stages_of_their_own() -> None:
    found = parse_loads(PLAIN | {"rate": "3", "ramp": ["linear:2..20", "step:1,2"]}, sweep=True)

    assert [load.name for load in found] == ["3/s", "linear:2..20", "step:1,2"] and found[1].rate == 11
    with pytest.raises(UsageError, match="times of its own"):
        parse_loads(PLAIN | {"ramp": ["linear:2..20"], "arrival": "trace"}, sweep=True)


def test_burstiness_is_gamma_and_stands_for_arrival() -> None:
    (load,) = parse_loads(PLAIN | {"rate": "3", "burstiness": "0.5"}, sweep=True)

    assert load.arrival == Arrival("gamma", cv=1 / math.sqrt(0.5))
    with pytest.raises(UsageError, match="both say"):
        parse_loads(PLAIN | {"rate": "3", "burstiness": "0.5", "arrival": "constant"}, sweep=True)


def test_a_stage_without_any_time_limit_gets_one() -> None:
    def limit(**flags: Any) -> int | None:
        found: int | None = parse_shapes(PLAIN | flags)["stage_limit_ns"]
        return found

    assert limit() is None and limit(requests=5) is None and limit(timeout="none") is None
    assert limit(timeout="none", requests=5) == 3600 * NS_PER_S
    assert limit(timeout="none", requests=5, stage_limit="none") is None
    assert limit(stage_limit="90s") == 90 * NS_PER_S


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"trace_scale": 2.0}, "--arrival trace"),
        ({"trace_loop": 2}, "--arrival trace"),
        ({"pacing": "exact"}, "normal, precise"),
        ({"abandon": ["after=1s", "tokens=3"]}, "more than 100%"),
        ({"abandon": ["soon"]}, "after=2s"),
        ({"think": "2"}, "2ms or 2s"),
        ({"source_address": "nowhere"}, "no address"),
        ({"source_address": "203.0.113.77"}, "addresses of this host"),
        ({"source_address": "127.0.0.1", "transport": "aiohttp"}, "native"),
        ({"abort_after": "30"}, "30ms or 30s"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_next_step(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shapes(PLAIN | flags)
    assert words in str(caught.value)


def test_a_replay_has_its_load_already(tmp_path: Path) -> None:
    from benchlab.cli.app import main

    assert main(["run", "-u", "http://127.0.0.1:9", "--replay", str(tmp_path), "-r", "4"]) == 2
    assert main(["run", "-u", "http://127.0.0.1:9", "--replay", str(tmp_path / "none")]) == 2
