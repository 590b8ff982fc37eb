"""A stage's condition, shown by simulated servers with fixed seeds: healthy ones are not accused, drowning ones are.

Stages are short on purpose (20 to 40 requests): that is what a first run on a small machine has. The number of
requests is fixed and their times are independent, so that the load is exactly the one named.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchlab.metrics.condition import condition_of
from benchlab.metrics.rule import Rule
from benchlab.records.event import Outcome
from benchlab.records.record import Record
from tests.made_runs import columns_from, failed, served, steady, stream, window

OPEN = {"kind": "open"}


def word(records: list[Record], length: float, *, w0: float = 0.0, stage=OPEN) -> str:
    return condition_of(columns_from(records), window(w0, length, length + 60), stage).word


def uniform(seed: int, n: int, length: float) -> list[float]:
    return sorted(np.random.default_rng(seed).uniform(0, length, n))


def queue(seed: int, n: int, length: float, *, load: float, servers: int) -> list[Record]:
    """M/D/c under `load` (1 is all it can do)."""
    work = load * servers * length / n
    return served(
        uniform(seed, n, length), work=lambda _: work, servers=servers, ttft=work / 10, gap=work / 9, cut=length + 60
    )


def unbounded(seed: int, n: int, length: float, *, stay: float) -> list[Record]:
    """M/G/inf: nobody waits for anybody; it starts empty and fills up."""
    generator = np.random.default_rng(seed)
    return [
        steady(
            at,
            ttft=0.05 * (1 + generator.exponential(0.3)),
            gap=stay * generator.uniform(0.5, 1.5) / 8,
            tokens=9,
            request_id=str(i),
        )
        for i, at in enumerate(uniform(seed, n, length))
    ]


SIZES = [(20, 20.0), (40, 30.0)]
SEEDS = range(60)


@pytest.mark.parametrize(("n", "length"), SIZES)
@pytest.mark.parametrize(("load", "servers"), [(0.6, 1), (0.5, 4)])
def test_a_healthy_queue_is_not_called_overloaded(n, length, load, servers):
    flagged = sum(word(queue(seed, n, length, load=load, servers=servers), length) == "overloaded" for seed in SEEDS)

    assert flagged <= 0.02 * len(SEEDS)


@pytest.mark.parametrize(("n", "length"), SIZES)
def test_a_server_that_fills_up_without_slowing_is_not_called_overloaded(n, length):
    flagged = sum(word(unbounded(seed, n, length, stay=5.0), length) == "overloaded" for seed in SEEDS)

    assert flagged <= 0.02 * len(SEEDS)


@pytest.mark.parametrize(("n", "length"), SIZES)
@pytest.mark.parametrize("servers", [1, 4])
def test_half_as_much_again_as_it_can_do_is_overload(n, length, servers):
    flagged = sum(word(queue(seed, n, length, load=1.5, servers=servers), length) == "overloaded" for seed in SEEDS)

    assert flagged >= 0.98 * len(SEEDS)


def test_a_constant_load_above_capacity_is_overload_and_below_is_not():
    for n, length in SIZES:
        for load, expected in ((1.5, "overloaded"), (0.9, "stable")):
            work = load * 4 * length / n
            arrivals = [i * length / n for i in range(n)]
            records = served(arrivals, work=lambda _, w=work: w, servers=4, ttft=work / 10, gap=work / 9)
            assert word(records, length) == expected


def test_a_small_overload_shows_in_a_long_stage():
    assert word(queue(0, 2000, 100.0, load=1.08, servers=4), 100.0) == "overloaded"
    assert word(queue(0, 2000, 100.0, load=0.8, servers=4), 100.0) == "stable"


def test_a_stage_of_so_many_requests_is_judged_before_its_drain():
    records = queue(0, 40, 30.0, load=1.5, servers=4)
    last = max(record.end_ns for record in records) / 1e9

    assert condition_of(columns_from(records), window(0, last, last), OPEN).word == "overloaded"
    calm = queue(0, 40, 30.0, load=0.5, servers=4)
    assert condition_of(columns_from(calm), window(0, last, last), OPEN).word == "stable"


def test_slower_answers_without_a_pile_are_no_overload():
    # Prompts that grow: each waits longer for its first text, and still leaves before the next but one comes.
    records = [steady(float(i), ttft=0.1 + 0.02 * i, gap=0.01, tokens=5, request_id=str(i)) for i in range(40)]

    assert word(records, 40.0) == "stable"


def test_a_server_that_hangs_is_not_stable():
    alive = [steady(i / 2, ttft=0.1, gap=0.01, tokens=5, request_id=f"a{i}") for i in range(20)]
    stuck = [failed(10 + i / 2, outcome=Outcome.UNFINISHED, request_id=f"s{i}") for i in range(20)]

    assert word(alive + stuck, 20.0) == "overloaded"


def test_failures_above_one_percent_are_errored():
    good = [steady(i / 10, ttft=0.1, gap=0.01, tokens=5, request_id=str(i)) for i in range(198)]
    one = failed(19.8, outcome=Outcome.ERROR_HTTP, request_id="x")
    two = failed(19.9, outcome=Outcome.ERROR_HTTP, request_id="y")

    assert word([*good, one, two], 20.0) == "stable"  # 2 of 200 is not above 1%
    assert word([*good[:197], one, two], 20.0) == "errored"


def test_what_the_client_did_not_send_is_no_failure_of_the_server():
    good = [steady(i / 2, ttft=0.1, gap=0.01, tokens=5, request_id=str(i)) for i in range(30)]
    unsent = [failed(15 + i, outcome=Outcome.NOT_SENT, request_id=f"n{i}") for i in range(3)]

    assert word(good + unsent, 20.0) == "stable"


def test_a_stage_cut_short_is_incomplete():
    records = [steady(float(i), ttft=0.1, gap=0.01, tokens=5, request_id=str(i)) for i in range(10)]

    assert word(records, 10.0, stage=OPEN | {"complete": False, "why": "interrupted"}) == "incomplete"
    assert word(records, 10.0, stage=OPEN | {"planned": 11}) == "incomplete"
    assert condition_of(columns_from([]), None, OPEN).word == "incomplete"


def test_a_stage_that_a_rule_ended_for_its_failures_is_errored():
    cut = {
        "complete": False,
        "why": "every request has failed for 30 s",
        "aborted": "every request has failed for 30 s",
    }
    records = [failed(i / 2, outcome=Outcome.ERROR_CONNECT, request_id=f"f{i}") for i in range(40)]

    assert word(records, 20.0, stage={"kind": "open", **cut}) == "errored"
    assert word(records, 20.0, stage={"kind": "open", **cut, "aborted": None}) == "incomplete"


def test_too_few_requests_are_short():
    assert word([stream(float(i), [i + 0.1], request_id=str(i)) for i in range(5)], 10.0) == "short"
    assert word([stream(float(i), [i + 0.1], request_id=str(i)) for i in range(6)], 10.0) == "stable"


def test_a_closed_loop_is_not_judged_by_its_level():
    records = [steady(i * 0.5, ttft=0.1 + 0.01 * i, gap=0.01, tokens=5, request_id=str(i)) for i in range(40)]

    assert word(records, 20.0, stage={"kind": "closed"}) == "stable"


def test_every_rule_says_its_value_and_limit():
    records = queue(0, 40, 30.0, load=0.5, servers=2)
    rules = {r.name: r for r in condition_of(columns_from(records), window(0, 30, 60), OPEN).rules}

    assert set(rules) == {"whole", "failures", "unfinished", "piling_up", "slowing_down", "samples", "littles_law"}
    assert all(isinstance(rule, Rule) and rule.limit is not None for name, rule in rules.items() if name != "whole")
