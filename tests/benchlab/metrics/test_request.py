"""The formulas of one request against worked examples and against faults that other tools had."""

from __future__ import annotations

import numpy as np
import pytest

from benchlab.metrics import request
from benchlab.metrics.columns import columns_of
from benchlab.metrics.quantiles import quantile
from benchlab.metrics.table import BY_NAME, METRICS, measure
from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Record
from benchlab.records.schema import REQUESTS
from tests.made_runs import columns_from, failed, steady, stream


def values(name, *records: Record) -> list[float]:
    c = columns_from(records)
    return [float(v) for v in measure(BY_NAME[name], c, np.ones(c.n, dtype=bool)).values]


def left_out(name, *records: Record) -> dict[str, int]:
    c = columns_from(records)
    return measure(BY_NAME[name], c, np.ones(c.n, dtype=bool)).left_out


def test_worked_example_1_intervals_not_tokens():
    record = steady(ttft=0.215, gap=0.020, tokens=300)

    assert values("e2e", record) == pytest.approx([6195.0])
    assert values("tpot", record) == pytest.approx([20.0])
    assert len(values("itl", record)) == 299


def test_worked_example_1_steady_stream_and_a_longer_queue():
    record = steady(ttft=0.4, gap=1 / 30, tokens=100)
    queued = steady(ttft=0.7, gap=1 / 30, tokens=100)

    assert values("e2e", record) == pytest.approx([3700.0])
    assert values("tpot", record) == pytest.approx([33.33], abs=0.01)
    assert 100 / (values("e2e", record)[0] / 1000) == pytest.approx(27.03, abs=0.01)
    assert values("stream_speed", record) == pytest.approx([30.0])
    assert values("e2e", queued) == pytest.approx([4000.0])
    assert values("tpot", queued) == pytest.approx(values("tpot", record))


def test_worked_example_1_one_stall():
    times = [0.4 + i / 30 + (1.2 if i >= 50 else 0.0) for i in range(100)]
    record = stream(chunks=times)

    assert values("tpot", record) == pytest.approx([45.45], abs=0.01)
    assert values("stall", record) == pytest.approx([1233.3], abs=0.1)
    assert quantile(np.sort(values("itl", record)), 0.99) == pytest.approx(57.3, abs=0.1)


def test_worked_example_1_one_token_is_left_out_of_both():
    record = stream(chunks=[0.3])

    assert values("ttft", record) == pytest.approx([300.0])
    assert values("tpot", record) == [] == values("itl", record)
    assert left_out("tpot", record) == {request.ONE_TOKEN: 1} == left_out("itl", record)


def test_worked_example_2_what_the_client_sees():
    record = stream(0.0, [0.051, 0.100], end=0.100)

    assert values("ttft", record) == pytest.approx([51.0])
    assert values("e2e", record) == pytest.approx([100.0])
    assert values("ttft", record)[0] - 43.0 == pytest.approx(8.0)  # transport: client TTFT less the engine's


def test_c11_all_text_in_one_read_is_no_speed():
    record = stream(chunks=[0.5] * 5, slack=[0.4, 0.4, 0.4, 0.4, 0.0])

    assert values("ttft", record) == pytest.approx([500.0])
    assert values("itl", record) == [0.0] * 4
    assert values("tpot", record) == [] == values("stream_speed", record)
    assert left_out("tpot", record) == {request.ONE_READ: 1}


def test_c14_service_and_response_are_named_apart():
    due, sent = [0.0, 0.2, 0.4, 0.6], [0.0, 0.4, 0.8, 1.2]
    records = [stream(s, [s + 0.4], intended=d, dispatched=d) for d, s in zip(due, sent, strict=True)]

    assert values("e2e", *records) == pytest.approx([400.0] * 4)
    assert values("response_e2e", *records) == pytest.approx([400.0, 600.0, 800.0, 1000.0])
    assert values("dispatch_lag", *records) == pytest.approx([0.0] * 4)


def test_c17_the_end_of_the_stream_is_not_the_last_token():
    record = stream(chunks=[0.5, 0.6, 0.7], end=1.0)

    assert values("tpot", record) == pytest.approx([100.0])
    assert values("e2e", record) == pytest.approx([700.0])
    assert values("stream_end", record) == pytest.approx([1000.0])


def test_c29_role_and_finish_chunks_are_no_tokens():
    kinds = [Kind.ROLE, Kind.CONTENT, Kind.CONTENT, Kind.FINISH, Kind.USAGE, Kind.DONE]
    record = stream(chunks=[0.02, 0.30, 0.34, 0.39, 0.391, 0.392], kinds=kinds, tokens=2)

    assert values("ttft", record) == pytest.approx([300.0])
    assert values("itl", record) == pytest.approx([40.0])
    assert values("tpot", record) == pytest.approx([40.0])


def test_c31_a_tool_call_is_output():
    record = stream(chunks=[0.4, 0.5], kinds=[Kind.TOOL_CALL] * 2, tokens=14)

    assert values("ttft", record) == pytest.approx([400.0])
    assert values("output_tokens", record) == [14.0]
    assert values("itl", record) == pytest.approx([100.0])
    assert values("tokens_per_chunk", record) == [7.0]
    assert values("ttfa", record) == []


def test_c32_several_tokens_a_chunk():
    record = stream(chunks=[0.20, 0.26, 0.32, 0.38], chunk_tokens=[1, 4, 3, 4], tokens=12)

    assert values("tpot", record) == pytest.approx([180 / 11])
    assert values("itl", record) == pytest.approx([60.0] * 3)


def test_tokens_of_the_first_chunk_are_no_intervals():
    assert values("tpot", stream(chunks=[0.2, 0.5], chunk_tokens=[4, 3], tokens=7)) == pytest.approx([100.0])


def test_c40_reasoning_that_was_not_streamed_is_not_divided_by():
    hidden = stream(chunks=[0.1 + 0.1 * i for i in range(20)], tokens=120, reasoning_tokens=100)
    shown = stream(chunks=[0.1, 0.2, 0.3], tokens=3, reasoning_tokens=2, kinds=[Kind.REASONING] * 2 + [Kind.CONTENT])
    all_hidden = stream(chunks=[0.1, 0.2], tokens=100, reasoning_tokens=100)

    assert values("output_tokens", hidden) == [20.0]
    assert values("tpot", hidden) == pytest.approx([100.0])
    assert values("tpot", shown) == pytest.approx([100.0])
    assert left_out("tpot", all_hidden) == {request.HIDDEN: 1}


def test_ttfa_is_later_than_ttft_where_a_model_reasons_first():
    record = stream(chunks=[0.1, 0.2, 0.3], kinds=[Kind.REASONING, Kind.REASONING, Kind.CONTENT])

    assert values("ttft", record) == pytest.approx([100.0])
    assert values("ttfa", record) == pytest.approx([300.0])


def test_c44_the_asked_length_divides_nothing():
    record = stream(chunks=[0.5 + i / 50 for i in range(51)], requested_tokens=500)

    assert values("tpot", record) == pytest.approx([20.0])
    assert values("output_tokens", record) == [51.0]


def test_c46_the_first_token_is_in_no_gap():
    assert values("itl", stream(chunks=[2.0, 2.05, 2.10])) == pytest.approx([50.0, 50.0])


def test_c47_tpot_leaves_the_prefill_out():
    assert values("tpot", steady(ttft=2.0, gap=0.1, tokens=11)) == pytest.approx([100.0])


def test_c49_a_single_text_event_has_no_speed():
    record = stream(chunks=[1.0], tokens=5)

    assert values("tpot", record) == [] == values("stream_speed", record)
    assert left_out("tpot", record) == {request.ONE_EVENT: 1}
    assert left_out("itl", record) == {request.ONE_EVENT: 1}


def test_gaps_never_reach_over_two_requests():
    records = [stream(chunks=[0.1, 0.2], request_id="a"), stream(5.0, [5.5, 5.6], request_id="b")]

    assert values("itl", *records) == pytest.approx([100.0, 100.0])
    assert values("stall", *records) == pytest.approx([100.0, 100.0])


def test_a_need_that_the_source_cannot_tell_is_a_gap():
    record = steady(ttft=0.1, gap=0.1, tokens=4, unknown=("chunk_ns",))
    c = columns_from([record])
    samples = measure(BY_NAME["itl"], c, np.ones(1, dtype=bool))

    assert samples.gap is not None and "chunk_ns" in samples.gap.reason
    assert samples.left_out == {"the source does not tell chunk_ns": 1}


def test_an_estimated_count_is_used_and_marked():
    record = steady(ttft=0.1, gap=0.1, tokens=4, tokens_source="chunks", unknown=("output_tokens",))
    c = columns_from([record])
    samples = measure(BY_NAME["tpot"], c, np.ones(1, dtype=bool))

    assert list(samples.values) == pytest.approx([100.0])
    assert samples.estimated == 1


def test_no_count_at_all_is_a_gap():
    record = stream(chunks=[0.1, 0.2], tokens=None, unknown=("output_tokens",))

    assert left_out("tpot", record) == {"the source does not tell output_tokens": 1}


def test_failures_without_text_have_no_latency():
    record = failed(outcome=Outcome.ERROR_HTTP)

    assert values("ttft", record) == []
    assert left_out("ttft", record) == {request.NO_TEXT: 1}


def test_every_row_of_the_table_is_whole():
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.sentence.endswith(".") and metric.unit
        assert (metric.scope == "run") == (metric.function is None)
        assert set(metric.needs) <= set(REQUESTS.names)


def test_an_empty_table_measures_nothing_and_does_not_fail():
    c = columns_of(REQUESTS.empty_table())
    for metric in METRICS:
        if metric.function is not None:
            samples = measure(metric, c, np.zeros(0, dtype=bool))
            assert len(samples.values) == 0 and samples.gap is not None


def test_reasoning_that_may_be_in_the_count_makes_tpot_a_gap():
    record = steady(ttft=0.1, gap=0.1, tokens=4, unknown=("reasoning_tokens",))

    assert left_out("tpot", record) == {request.PERHAPS_HIDDEN: 1}
    assert values("itl", record) == pytest.approx([100.0] * 3)


def test_c10_an_answer_that_was_not_streamed_has_no_first_token():
    record = stream(chunks=[0.4], tokens=2, unknown=("chunk_ns",))

    assert values("ttft", record) == [] == values("tpot", record)
    assert values("stream_end", record) == pytest.approx([400.0])
