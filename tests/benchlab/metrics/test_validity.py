"""The measurement's verdict: each rule shown passing and failing, and silent about a server that is merely slow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from benchlab.metrics.audit import impossible
from benchlab.metrics.condition import condition_of
from benchlab.metrics.rule import Rule
from benchlab.metrics.validity import PUBLISH, merged, run_rules, stage_rules, verdict_of
from benchlab.records.event import Outcome
from benchlab.records.record import Record
from benchlab.records.sample import Sample
from benchlab.records.schema import SAMPLES, samples_batch
from tests.made_runs import (
    WORKER,
    MadeStage,
    columns_from,
    failed,
    made_manifest,
    made_samples,
    made_stage_entry,
    ns,
    steady,
    stream,
    window,
)


def good(n: int = 40, **more) -> list[Record]:
    return [steady(i / 2, ttft=0.1, gap=0.02, tokens=10, request_id=f"g{i}", **more) for i in range(n)]


def rules(records: list[Record], *, limits=None, kind: str = "open", manifest=None, **entry) -> dict[str, Rule]:
    stage = MadeStage(records, 0.0, 20.0, kind, offered_rps=2.0, cut=30.0, entry=entry)
    more = {} if limits is None else {"limits": limits}
    found = stage_rules(
        columns_from(records),
        window(0, 20, 30),
        made_stage_entry(0, stage),
        made_manifest([stage], **(manifest or {})),
        **more,
    )
    return {rule.name: rule for rule in found}


def test_a_clean_stage_is_valid():
    found = rules(good())

    assert verdict_of(list(found.values())) == "VALID"
    assert all(rule.state in ("pass", "not checked") for rule in found.values())


def test_a_record_missing_or_twice_is_invalid():
    assert rules(good(), planned=41)["complete_records"].state == "fail"
    assert rules([*good(), good()[0]])["complete_records"].state == "fail"
    assert rules(good(), planned=60, complete=False)["complete_records"].state == "warn"


def test_c20_a_cap_that_governed_the_run_makes_open_loop_figures_void():
    held = [stream(i / 20, [i / 20 + 1.0], held_ns=ns(0.5 * i), request_id=str(i)) for i in range(40)]
    found = rules(held)["inflight_cap"]

    assert found.state == "fail" and found.value == pytest.approx(39 / 40)
    assert "open-loop figures do not hold" in found.hint
    assert rules(held, kind="closed")["inflight_cap"].state == "not checked"


def test_c23_c28_what_the_client_did_not_send_is_its_own_fault():
    unsent = [failed(i / 2, outcome=Outcome.NOT_SENT, request_id=f"n{i}") for i in range(20, 40)]
    found = rules(good(20) + unsent)["rate_held"]

    assert found.state == "fail" and found.value == pytest.approx(0.5)


def test_c26_turns_that_a_failed_one_kept_back_are_no_lateness_but_make_the_load_another():
    lost = [
        failed(i / 2, outcome=Outcome.NOT_SENT, error_kind="session", session_id="s", request_id=f"n{i}")
        for i in range(20, 40)
    ]
    found = rules(good(20, session_id="s") + lost)

    assert found["rate_held"].state == "pass"
    assert found["whole_sessions"].state == "warn" and found["whole_sessions"].value == pytest.approx(0.5)
    assert "20 turns were never sent" in found["whole_sessions"].hint
    assert rules(good(session_id="s"))["whole_sessions"].state == "pass"
    assert rules(good())["whole_sessions"].state == "not checked"


def test_a_client_that_starts_requests_after_the_stage_did_not_hold_the_rate():
    late = [
        steady(25.0 + i, ttft=0.1, gap=0.02, tokens=3, intended=19.0, dispatched=25.0 + i, request_id=f"l{i}")
        for i in range(2)
    ]

    assert rules(good(38) + late)["rate_held"].value == pytest.approx(2 / 40)
    assert rules(good(38) + late)["rate_held"].state == "warn"


def test_c14_lateness_of_the_client_is_judged_and_the_caps_is_not():
    late = [
        steady(i / 2 + 0.03, intended=i / 2, dispatched=i / 2 + 0.03, ttft=0.1, gap=0.01, tokens=3) for i in range(40)
    ]
    late = [stream_id(record, i) for i, record in enumerate(late)]

    assert rules(late)["dispatch_lag_p99_ms"].state == "warn"
    assert rules(late)["dispatch_lag_p99_ms"].value == pytest.approx(30.0)


def stream_id(record: Record, i: int) -> Record:
    return replace(record, request_id=f"s{i}")


def test_the_lag_limit_grows_with_the_latency_measured():
    slow = [
        stream_id(steady(i / 2 + 0.03, intended=i / 2, dispatched=i / 2 + 0.03, ttft=5.0, gap=0.01, tokens=3), i)
        for i in range(40)
    ]

    assert rules(slow)["dispatch_lag_p99_ms"].limit == pytest.approx(50.0)
    assert rules(slow)["dispatch_lag_p99_ms"].state == "pass"


def test_a_busy_or_lagging_client_is_told():
    busy = [WORKER | {"cpu_s": 29.0}]
    lagging = [WORKER | {"loop_lag_ms": {"p50": 1.0, "p99": 20.0, "max": 40.0}}]

    assert rules(good(), workers=busy)["client_cpu_share"].state == "fail"
    assert rules(good(), workers=lagging)["loop_lag_p99_ms"].state == "warn"
    assert rules(good(), workers=[])["client_cpu_share"].state == "not checked"


def test_c11_a_buffering_proxy_is_seen():
    clumped = [stream(i, [i + 0.5] * 5, slack=[0.4] * 4 + [0.0], request_id=str(i)) for i in range(20)]
    found = rules(clumped)["merged_chunk_share"]

    assert merged(columns_from(clumped)) == (1.0, pytest.approx(400.0))
    assert found.state == "warn" and "100%" in found.hint


def test_c95_forced_lengths_that_were_not_kept():
    short = [steady(i / 2, ttft=0.1, gap=0.1, tokens=2, requested_tokens=64, request_id=str(i)) for i in range(10)]
    forced = {"sampling": {"ignore_eos": True}}

    assert rules(short)["output_lengths"].state == "pass"  # the answer may end early
    assert rules(short, manifest=forced)["output_lengths"].state == "warn"
    assert "2 of 64 tokens" in rules(short, manifest=forced)["output_lengths"].hint


def test_c35_more_tokens_than_were_allowed():
    long = [steady(i / 2, ttft=0.1, gap=0.01, tokens=80, requested_tokens=64, request_id=str(i)) for i in range(10)]

    assert rules(long)["output_lengths"].state == "warn"


def test_c65_a_warm_cache_in_a_workload_declared_cold():
    cold = {"workload": {"cache": "cold", "sha256": "0"}}

    assert rules(good(prompt_tokens=100, cached_tokens=100), manifest=cold)["cold_cache_hits"].state == "warn"
    assert rules(good(prompt_tokens=100, cached_tokens=5), manifest=cold)["cold_cache_hits"].state == "warn"
    assert rules(good(prompt_tokens=100, cached_tokens=0), manifest=cold)["cold_cache_hits"].state == "pass"
    assert rules(good(), manifest=cold)["cold_cache_hits"].state == "not checked"
    assert rules(good(prompt_tokens=100, cached_tokens=100))["cold_cache_hits"].state == "not checked"


def test_c70_c71_the_clients_own_failures_make_it_invalid():
    bad = failed(19.0, outcome=Outcome.ERROR_CONNECT, error_kind="client", request_id="x")
    found = rules([*good(38), bad])

    assert found["client_faults"].state == "fail"
    assert verdict_of(list(found.values())) == "INVALID"


def test_failures_of_the_server_are_no_fault_of_the_measurement():
    bad = [failed(i / 2 + 0.1, outcome=Outcome.ERROR_HTTP, http_status=503, request_id=f"x{i}") for i in range(30)]

    assert verdict_of(list(rules(good(30) + bad).values())) == "VALID"


def test_c13_impossible_numbers_are_found():
    backwards = stream(0.0, [0.3, 0.2])
    early = stream(1.0, [0.5], end=2.0)
    endless = stream(0.0, [0.1], end_ns=None)
    shuffled = stream(0.0, [0.1], dispatched=0.5)
    ghost = stream(0.0, [], outcome=Outcome.NOT_SENT)
    ragged = stream(0.0, [0.1, 0.2], chunk_slack_ns=[0])

    for record in (backwards, early, endless, shuffled, ghost, ragged):
        assert impossible(columns_from([record])), record
        assert record.audit(), "the record's own audit agrees"
        assert rules([*good(), record])["impossible_numbers"].state == "fail"
    assert impossible(columns_from(good())) == {}


def test_a_count_below_the_chunks_counts_something_else():
    odd = [steady(i / 2, ttft=0.1, gap=0.01, tokens=10, output_tokens=3, request_id=str(i)) for i in range(10)]

    assert rules(odd)["token_counts"].state == "warn"


def test_the_server_must_be_the_same_at_the_end():
    stage = MadeStage(good(), 0, 20)
    same = made_manifest([stage])
    other = made_manifest([stage], endpoint={"models_at_start": ["a"], "models_at_end": ["b"]})
    silent = made_manifest([stage], endpoint={})
    empty = SAMPLES.empty_table()

    assert run_rules(same, empty)[0].state == "pass"
    assert run_rules(other, empty)[0].state == "fail"
    assert run_rules(silent, empty)[0].state == "not checked"


def test_holes_in_telemetry():
    stage = MadeStage(good(), 0, 20)
    whole = pa.Table.from_batches([samples_batch(made_samples(20))])
    holed = [s for s in made_samples(20) if not ns(5) < s.t_ns < ns(9)] + [
        Sample(ns(20), "host", "host", "cpu_share", 1)
    ]

    assert run_rules(made_manifest([stage]), whole)[1].state == "pass"
    assert run_rules(made_manifest([stage]), pa.Table.from_batches([samples_batch(holed)]))[1].state == "warn"
    assert run_rules(made_manifest([stage]), SAMPLES.empty_table())[1].state == "not checked"
    gaps = {"telemetry": {"period_ns": ns(0.5), "gaps": [{"source": "host"}]}}
    assert run_rules(made_manifest([stage], **gaps), whole)[1].state == "warn"


def test_nobody_needs_telemetry_between_two_stages():
    stages = [MadeStage(good(), 0, 10), MadeStage([], 30, 40)]
    samples = [s for s in made_samples(40) if not ns(10) < s.t_ns < ns(30)]

    assert run_rules(made_manifest(stages), pa.Table.from_batches([samples_batch(samples)]))[1].state == "pass"


def test_publishing_asks_for_more():
    busy = [WORKER | {"cpu_s": 21.0}]

    assert rules(good(), workers=busy)["client_cpu_share"].state == "pass"
    assert rules(good(), workers=busy, limits=PUBLISH)["client_cpu_share"].state == "warn"


def test_an_overloaded_stage_leaves_the_measurement_valid():
    records = [steady(i / 2, ttft=0.1 + i * i / 40, gap=0.01, tokens=5, request_id=str(i)) for i in range(40)]

    assert condition_of(columns_from(records), window(0, 20, 90), {"kind": "open"}).word == "overloaded"
    assert verdict_of(list(rules(records).values())) == "VALID"


def test_nothing_attempted_is_not_a_crash():
    assert {rule.state for rule in rules([]).values()} <= {"pass", "not checked"}
    assert np.isnan(columns_from(good()).number("cached_tokens")).all()


def test_a_step_of_the_wall_clock_is_told() -> None:
    stage = {"stage": 0, "workers": [WORKER | {"clock_steps_ns": [5]}, WORKER | {"clock_steps_ns": []}]}

    rule = next(r for r in stage_rules(columns_from(good(1)), None, stage, {}) if r.name == "wall_clock_steps")

    assert (rule.state, rule.value) == ("warn", 1)


def test_a_last_text_in_one_read_with_its_finish_event_is_no_merged_gap() -> None:
    record = good(1)[0]
    slack = [0] * len(record.chunk_ns)
    slack[-2] = 20_000_000

    assert merged(columns_from([replace(record, chunk_slack_ns=slack)])) == (0.0, 0.0)


def test_c65_prompts_that_came_round_again_are_told() -> None:
    assert rules(good(40), repeated=10)["prompts_sent_before"].state == "warn"
    assert rules(good(40), repeated=0)["prompts_sent_before"].state == "pass"
    assert rules(good(40))["prompts_sent_before"].state == "not checked"
