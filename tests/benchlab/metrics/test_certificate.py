"""The client's certificate: headroom from its own CPU, lateness on the scale of what is measured, error of stamps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchlab.metrics.certificate import certificate, median_ttft_ms, stamp_error_ms
from benchlab.metrics.limits import CI, PUBLISH
from benchlab.metrics.validity import stage_rules, verdict_of
from benchlab.records.event import Outcome
from benchlab.records.record import Record
from tests.made_runs import WORKER, columns_from, failed, ns, steady, stream, window

IN_TIME = 20.0


def good(n: int = 40, **more) -> list[Record]:
    return [steady(i / 2, ttft=0.1, gap=0.02, tokens=10, request_id=f"g{i}", **more) for i in range(n)]


def told(records: list[Record], *workers: dict, kind: str = "open", **more) -> dict:
    c = columns_from(records)
    entry = {"kind": kind, "w1_ns": ns(IN_TIME), "workers": list(workers)} | more
    return certificate(c, np.ones(c.n, dtype=np.bool_), entry)


def rules(records: list[Record], *workers: dict, kind: str = "open", limits=CI) -> dict:
    entry = {"stage": 0, "kind": kind, "w1_ns": ns(IN_TIME), "workers": list(workers), "planned": len(records)}
    found = stage_rules(columns_from(records), window(0, IN_TIME, 40), entry, {}, limits)
    return {rule.name: rule for rule in found}


def worker(cpu_s: float, wall_s: float = 20.0, events: int = 400, **more) -> dict:
    return WORKER | {"cpu_s": cpu_s, "wall_s": wall_s, "events": events, "events_sending": events} | more


def test_headroom_is_the_ceiling_by_cpu_over_the_load_due() -> None:
    found = told(good(), worker(2.0))

    assert found["workers"][0]["ceiling_eps"] == pytest.approx(200.0)
    assert found["workers"][0]["due_eps"] == pytest.approx(20.0)
    assert found["headroom"] == pytest.approx(10.0)


def test_what_a_late_client_did_not_send_counts_as_load_due() -> None:
    """Half of the arrivals were never begun: the load due is twice what was carried, and headroom halves."""
    unsent = [failed(i / 2, outcome=Outcome.NOT_SENT, request_id=f"n{i}") for i in range(20, 40)]
    carried = good(20)

    all_well, starved = told(carried, worker(10.0, events=200)), told(carried + unsent, worker(10.0, events=200))

    assert all_well["headroom"] == pytest.approx(2.0)
    assert starved["headroom"] == pytest.approx(1.0)
    assert (starved["not_sent"], starved["late"]) == (20, 20)


def test_a_client_that_took_longer_over_its_sending_than_was_planned() -> None:
    """It carried all events, in twice the time: the load due was twice what its own wall time says."""
    assert told(good(), worker(20.0, wall_s=40.0))["headroom"] == pytest.approx(2.0)
    assert told(good(), worker(20.0, wall_s=40.0), start_ns=0)["headroom"] == pytest.approx(1.0)
    assert told(good(), worker(20.0, wall_s=40.0), start_ns=0, kind="closed")["headroom"] == pytest.approx(2.0)


def test_requests_begun_after_the_sending_are_backlog_too_but_not_in_a_closed_loop() -> None:
    late = [
        steady(25.0 + i, ttft=0.1, gap=0.02, tokens=10, intended=19.0, dispatched=25.0 + i, request_id=f"l{i}")
        for i in range(4)
    ]

    assert told(good(36) + late, worker(1.0))["late"] == 4
    assert told(good(36) + late, worker(1.0), kind="closed")["late"] == 0


def test_the_least_headroom_of_all_workers_counts() -> None:
    found = told(good(), worker(1.0, worker=0), worker(19.5, worker=1))

    assert [w["worker"] for w in found["workers"]] == [0, 1]
    assert found["headroom"] == pytest.approx(20 / 19.5)
    assert found["cpu_share"] == pytest.approx(0.975)


@pytest.mark.parametrize(("cpu_s", "state"), [(10.0, "pass"), (17.0, "warn"), (19.8, "fail")])
def test_headroom_is_judged(cpu_s: float, state: str) -> None:
    found = rules(good(), worker(cpu_s))

    assert found["client_headroom"].state == state
    assert (found["client_headroom"].hint == "") == (state == "pass")


def test_publishing_asks_for_more_headroom() -> None:
    assert rules(good(), worker(14.0))["client_headroom"].state == "pass"
    assert rules(good(), worker(14.0), limits=PUBLISH)["client_headroom"].state == "warn"


def test_what_the_workers_do_not_tell_is_not_checked() -> None:
    silent = {"worker": 0, "cpu_s": None, "wall_s": None, "events": 0}

    assert told(good(), silent)["headroom"] is None
    assert rules(good(), silent)["client_headroom"].state == "not checked"
    assert rules(good())["client_headroom"].state == "not checked"


@pytest.mark.parametrize(("ttft", "limit", "fail"), [(0.05, 5.0, 50.0), (2.0, 20.0, 100.0), (10.0, 100.0, 500.0)])
def test_limits_on_lateness_grow_with_the_ttft(ttft: float, limit: float, fail: float) -> None:
    slow = [steady(i / 2, ttft=ttft, gap=0.01, tokens=3, request_id=f"s{i}") for i in range(40)]
    c = columns_from(slow)

    assert median_ttft_ms(c, np.ones(40, dtype=np.bool_)) == pytest.approx(ttft * 1000)
    assert CI.lag(ttft * 1000) == pytest.approx((limit, fail))
    found = rules(slow, worker(1.0, loop_lag_ms={"p50": 0.1, "p99": (limit + fail) / 2, "max": fail}))
    for name in ("dispatch_lag_p99_ms", "loop_lag_p99_ms", "stamp_error_p99_ms"):
        assert found[name].limit == pytest.approx(limit)
    assert found["loop_lag_p99_ms"].state == "warn"
    late = rules(slow, worker(1.0, loop_lag_ms={"p50": 0.1, "p99": fail * 1.01, "max": fail}))
    assert late["loop_lag_p99_ms"].state == "fail"
    assert verdict_of(list(late.values())) == "INVALID"


def test_a_client_that_was_late_is_invalid_however_well_the_server_did() -> None:
    late = [
        replace(
            steady(i / 2 + 0.2, intended=i / 2, dispatched=i / 2 + 0.2, ttft=0.1, gap=0.01, tokens=3),
            request_id=f"s{i}",
        )
        for i in range(39)
    ]

    assert rules(late, worker(1.0))["dispatch_lag_p99_ms"].state == "fail"


def test_the_stamp_error_is_the_slack_of_merged_texts_and_the_clocks_own() -> None:
    sharp = good(20)
    blurred = [stream(i, [i + 0.1, i + 0.2, i + 0.2], slack=[0, 0.03, 0], request_id=f"m{i}") for i in range(20)]
    clock = worker(1.0, offset_error_ns=200_000)
    entry = {"workers": [clock]}

    assert stamp_error_ms(columns_from([replace(r, stamp_source="kernel") for r in sharp]), entry) == pytest.approx(0.2)
    found = stamp_error_ms(columns_from([replace(r, stamp_source="kernel") for r in blurred]), entry)
    assert found == pytest.approx(30.2)
    assert stamp_error_ms(columns_from([failed(1.0, outcome=Outcome.TIMEOUT)]), entry) is None


def test_stamps_of_a_callback_are_as_late_as_the_loop() -> None:
    entry = {"workers": [worker(1.0, loop_lag_ms={"p50": 1.0, "p99": 7.0, "max": 9.0}, offset_error_ns=100)]}

    def bound(source: str) -> float | None:
        return stamp_error_ms(columns_from([replace(r, stamp_source=source) for r in good()]), entry)

    assert bound("callback") == pytest.approx(7.0)
    assert bound("kernel") == pytest.approx(0.0001)


def test_it_says_which_stamps_it_had() -> None:
    kernel = [replace(r, stamp_source="kernel") for r in good(2)]
    callback = [replace(r, stamp_source="callback", request_id=f"c{r.request_id}") for r in good(2)]

    assert told(kernel)["stamps"] == "kernel"
    assert told(callback)["stamps"] == "callback"
    assert told(kernel + callback)["stamps"] == "mixed"
    unsent = [replace(r, outcome=Outcome.NOT_SENT, chunk_ns=(), chunk_slack_ns=(), chunk_tokens=(), chunk_kind=(),
                      request_id=f"n{r.request_id}") for r in callback]  # fmt: skip
    assert told(kernel + unsent)["stamps"] == "kernel", "what was never answered has no stamps of any source"
    assert told([failed(1.0, outcome=Outcome.TIMEOUT)])["stamps"] is None
