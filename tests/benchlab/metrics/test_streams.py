"""Stalls, fluidity, sessions, the level in flight and the tables by kind: by hand, and against slow references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.metrics.buckets import tables
from benchlab.metrics.fluidity import on_time
from benchlab.metrics.goodput import SloClause, good_requests
from benchlab.metrics.level import in_flight, in_flight_peak, staircase
from benchlab.metrics.run import in_flight_at, in_flight_mean
from benchlab.metrics.session import PARTIAL, session_counts
from benchlab.metrics.summary import summarise_tables
from benchlab.metrics.table import BY_NAME, measure
from benchlab.records.event import Outcome
from benchlab.records.schema import SAMPLES
from tests.made_runs import (
    MadeStage,
    columns_from,
    failed,
    made_manifest,
    made_sweep,
    served,
    steady,
    stream,
    table_of,
    window,
)


def values(c, name):
    return [float(v) for v in measure(BY_NAME[name], c, np.ones(c.n, dtype=bool)).values]


def test_stalls_are_counted_over_each_limit():
    c = columns_from([stream(0.0, [0.1, 0.25, 0.35, 0.95, 2.15]), stream(1.0, [1.1], request_id="r1")])

    assert values(c, "stalls_100ms") == [3.0]  # 150, 100, 600, 1200 ms: a gap of the limit is not over it
    assert values(c, "stalls_500ms") == [2.0] and values(c, "stalls_1s") == [1.0]
    assert sum(measure(BY_NAME["stalls_1s"], c, np.ones(2, bool)).left_out.values()) == 1


# -- fluidity


def reference(record, first: float, each: float) -> tuple[int, int]:
    """(met, came), token by token as the rule says it."""
    due, met, came = record.sent_ns + first * 1e6, 0, 0
    for ns, tokens in zip(record.chunk_ns, record.chunk_tokens, strict=True):
        for _ in range(tokens):
            came += 1
            met += ns <= due
            due = max(due, ns) + each * 1e6
    return met, came


def test_early_tokens_are_carried_and_a_stall_is_one_miss():
    even = stream(0.0, [0.1 + 0.02 * i for i in range(10)], chunk_tokens=[1] * 10)
    stalled = stream(0.0, [0.1, 0.12, 0.14, 1.14, 1.16, 1.18], chunk_tokens=[1] * 6, request_id="s")
    ahead = stream(0.0, [0.1, 0.11, 0.12, 0.13, 0.26, 0.27], chunk_tokens=[1] * 6, request_id="a")
    late = stream(0.0, [0.9, 0.92], chunk_tokens=[1] * 2, request_id="l")
    c = columns_from([even, stalled, ahead, late, failed(1.0, outcome=Outcome.ERROR_HTTP, request_id="f")])
    met, came = on_time(c, 200.0, 40.0)

    assert met.tolist()[:4] == [10.0, 5.0, 6.0, 1.0] and came.tolist()[:4] == [10.0, 6.0, 6.0, 2.0]
    assert np.isnan(met[4]) and np.isnan(came[4])


streams = st.lists(
    st.tuples(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 4)), max_size=30)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(1, 300), st.integers(1, 60))
def test_fluidity_is_the_rule_token_by_token(many, first, each):
    records = []
    for number, (sent, steps) in enumerate(many):
        at, chunks, tokens = sent, [], []
        for step, held in steps:
            at += step
            chunks.append(at / 1000)
            tokens.append(held)
        records.append(
            stream(sent / 1000, chunks, chunk_tokens=tokens, tokens=sum(tokens) or None, request_id=str(number))
        )
    met, came = on_time(columns_from(records), first, each)
    for number, record in enumerate(records):
        expected = reference(record, first, each)
        assert (np.isnan(met[number]) and expected[1] == 0) or (met[number], came[number]) == expected


def test_many_long_streams_do_not_run_into_each_other():
    """Times so far apart that their sum over all streams does not fit into 64 bits."""
    records = [stream(0.0, [0.1, 4_000_000.0 * (i + 1)], chunk_tokens=[1, 1], request_id=str(i)) for i in range(400)]
    met, _ = on_time(columns_from(records), 200.0, 40.0)
    assert met.tolist() == [1.0] * 400


def test_the_share_needs_both_limits():
    records = [steady(0.1 * i, ttft=0.1, gap=0.05, tokens=11, request_id=str(i)) for i in range(20)]
    stage = MadeStage(records, 0.0, 10.0)

    def share(*slo):
        made = summarise_tables(made_manifest([stage]), table_of(records), SAMPLES.empty_table(), run_id="r", slo=slo)
        return made["stages"][0]["fluid_share"], made["stages"][0]["fluid_share_ci95"]

    ttft, tpot = SloClause("ttft", 150.0, "ttft=150ms"), SloClause("tpot", 40.0, "tpot=40ms")
    # 50 ms carried: deadlines at 150, 190, ...; tokens at 100, 150, ...: the seventh at 400 against 390, then each one
    assert share(ttft, tpot)[0] == pytest.approx(6 / 11) and share(ttft, tpot)[1][0] <= 6 / 11
    easy = share(ttft, SloClause("tpot", 60.0, "tpot=60ms"))
    assert easy[0] == 1.0 and easy[1][1] == 1.0 and 0.8 < easy[1][0] < 0.9  # twenty requests prove no more
    assert share(ttft) == (None, None) and share() == (None, None)


# -- the level in flight


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60)), min_size=1, max_size=30))
def test_the_staircase_is_the_level_at_every_instant(spans):
    records = [stream(a / 10, [(a + b) / 10 + 0.001], request_id=str(i)) for i, (a, b) in enumerate(spans)]
    c, w = columns_from(records), window(2.0, 9.0)
    instants, level = staircase(c, w)
    lasting = np.diff(instants)
    middle = (instants[:-1] + instants[1:]) / 2
    assert (in_flight_at(c, w, middle)[lasting > 1] == level[lasting > 1]).all()
    found = in_flight(c, w)
    assert found["mean"] == pytest.approx(in_flight_mean(c, w), abs=1e-9)
    assert np.mean(found["series"]["mean"]) == pytest.approx(found["mean"], abs=1e-9)
    assert found["max"] == in_flight_peak(c, w) >= found["p99"] >= found["p50"] >= 0


def test_levels_are_weighted_by_time():
    """One request for 9 s, ten at once for 1 s: the time-weighted median is 1, however many requests say 10."""
    records = [stream(0.0, [9.0], request_id="long")]
    records += [stream(9.0, [10.0], request_id=str(i)) for i in range(10)]
    found = in_flight(columns_from(records), window(0.0, 10.0))
    assert (found["p50"], found["p90"], found["max"]) == (1.0, 1.0, 10.0)
    assert found["mean"] == pytest.approx(1.9)
    law = found["little"]
    assert law["product"] == pytest.approx(law["rate"] * law["stay_s"]) and law["disagreement"] is not None


def test_who_leaves_as_another_enters_was_not_there_with_it():
    records = [stream(float(i), [i + 1.0], request_id=str(i)) for i in range(5)]
    found = in_flight(columns_from(records), window(0.0, 5.0))
    assert found["max"] == found["p50"] == 1.0 and found["mean"] == pytest.approx(1.0)


# -- sessions


def session(name: str, turns: list[float], *, wait: float = 0.0, lost: int | None = None):
    at, records = 0.0, []
    for number, took in enumerate(turns):
        request_id = f"{name}-{number}"
        more = {"session_id": name, "turn": number, "request_id": request_id}
        if lost is not None and number >= lost:
            records.append(failed(at, outcome=Outcome.NOT_SENT, error_kind="session", **more))
            continue
        records.append(stream(at, [at + took / 2, at + took], **more))
        at += took + wait
    return records


def test_sessions_are_timed_to_their_last_answer_and_partial_ones_counted():
    records = session("a", [1.0, 2.0], wait=0.5) + session("b", [1.0, 1.0, 1.0], lost=1)
    records.append(stream(0.0, [0.5], request_id="alone"))
    c = columns_from(list(reversed(records)))
    inside = np.ones(c.n, dtype=bool)

    assert values(c, "session_time") == [pytest.approx(3500.0)]
    assert values(c, "session_wait") == [pytest.approx(3000.0)]
    assert values(c, "session_turns") == [2.0]
    assert measure(BY_NAME["session_time"], c, inside).left_out == {PARTIAL: 1}
    counts = session_counts(c, inside)
    assert (counts["sessions"], counts["whole"], counts["partial"]) == (2, 1, 1)
    assert session_counts(columns_from([stream(0.0, [1.0])]), np.ones(1, bool)) is None


def test_a_session_belongs_where_it_began():
    records = session("a", [4.0, 4.0, 4.0])
    stage = MadeStage(records, 0.0, 5.0, cut=20.0)
    made = summarise_tables(made_manifest([stage]), table_of(records), SAMPLES.empty_table(), run_id="r")
    block = made["stages"][0]["metrics"]["session_time"]
    assert block["n"] == 1 and block["mean"] == pytest.approx(12_000.0)
    assert made["stages"][0]["sessions"]["whole"] == 1


# -- by kind


def test_each_kind_has_a_row_of_its_own():
    quick = [steady(i, ttft=0.1, gap=0.01, tokens=4, request_id=f"q{i}", tags=("chat",), prompt_tokens=100, tenant="a")
             for i in range(6)]  # fmt: skip
    slow = [steady(i, ttft=2.0, gap=0.01, tokens=40, request_id=f"s{i}", tags=("code", "x"), prompt_tokens=9000)
            for i in range(3)]  # fmt: skip
    bad = failed(7.0, outcome=Outcome.ERROR_HTTP, request_id="bad", tags=("code",))
    c = columns_from([*quick, *slow, bad])
    inside = np.ones(c.n, dtype=bool)
    good = good_requests(c, [SloClause("ttft", 500.0, "ttft=500ms")])
    found = tables(c, inside, good, (50, 95))

    assert set(found) == {"length", "task", "tenant"}
    assert [(row["key"], row["attempted"], row["ok"]) for row in found["task"]] == [("chat", 6, 6), ("code", 4, 3)]
    chat, code = found["task"]
    assert chat["ttft"]["p50"] == pytest.approx(100) and code["ttft"]["p50"] == pytest.approx(2000)
    assert chat["ttft"]["n"] == 6 and "p95" in chat["ttft"]["indicative"]
    assert (chat["attainment"], code["attainment"], code["failed_share"]) == (1.0, 0.0, 0.25)
    assert found["length"][0]["key"] == "65-128 in, 3-4 out"
    assert sum(row["attempted"] for row in found["length"]) == 10


def test_a_part_whose_requests_are_alike_is_less_sure_of_itself():
    """Sixty requests of a tenant, thirty quick and then thirty slow, and the same times quick and slow in turn."""
    turns = {"runs": [0.1] * 30 + [0.9] * 30, "mixed": [0.1, 0.9] * 30}
    records = [
        steady(2 * i + place, ttft=ttft, gap=0.01, tokens=4, request_id=f"{name}{i}", tenant=name)
        for place, (name, each) in enumerate(turns.items())
        for i, ttft in enumerate(each)
    ]
    c = columns_from(list(reversed(records)))
    good = good_requests(c, [SloClause("ttft", 500.0, "ttft=500ms")])
    rows = {row["key"]: row for row in tables(c, np.ones(c.n, dtype=bool), good, (50, 95))["tenant"]}
    width = {name: row["attainment_ci95"][1] - row["attainment_ci95"][0] for name, row in rows.items()}
    assert width["runs"] > 1.5 * width["mixed"] and rows["runs"]["attainment"] == rows["mixed"]["attainment"] == 0.5
    assert "p50" in rows["runs"]["ttft"]["indicative"] and "p50" not in rows["mixed"]["ttft"]["indicative"]


def test_many_kinds_stay_a_short_table():
    records = [steady(i / 10, ttft=0.1, gap=0.01, tokens=4, request_id=str(i), tenant=f"t{i}") for i in range(90)]
    rows = tables(columns_from(records), np.ones(90, bool), None, (50,))["tenant"]
    assert len(rows) == 40 and rows[-1]["key"] == "others (51)" and sum(row["attempted"] for row in rows) == 90


def test_a_served_queue_obeys_littles_law_with_its_level():
    records = served([0.25 * i for i in range(400)], work=lambda _: 0.2)
    found = in_flight(columns_from(records), window(10.0, 90.0))
    assert found["little"]["disagreement"] < 0.01 and found["little"]["long_enough"]


def test_every_stage_of_a_sweep_has_the_blocks():
    stages = made_sweep()
    from dataclasses import replace

    records = [replace(r, stage=number) for number, stage in enumerate(stages) for r in stage.records]
    made = summarise_tables(made_manifest(stages), table_of(records), SAMPLES.empty_table(), run_id="r")
    for stage in made["stages"]:
        assert len(stage["in_flight"]["series"]["mean"]) == 60 and stage["sessions"] is None
        assert stage["completed_rps_ci95"][0] <= stage["completed_rps"] <= stage["completed_rps_ci95"][1]
        assert stage["output_tps_ci95"][0] <= stage["output_tps"] <= stage["output_tps_ci95"][1]
        assert stage["total_tps_ci95"][0] <= stage["total_tps"] <= stage["total_tps_ci95"][1]
        assert stage["failed_share_exact95"][0] <= stage["failed_share"] <= stage["failed_share_exact95"][1]
        assert stage["metrics"]["ttft"]["ci95"]["mean"][0] <= stage["metrics"]["ttft"]["mean"]
