"""The seven definitions, each worked out by hand on streams small enough to do so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.metrics.dialects import DIALECTS, Figure, Speech, in_dialects_of
from benchlab.metrics.dialects_read import floor_index, inverse_cdf, linear
from benchlab.metrics.goodput import SloClause
from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Record
from tests.made_runs import columns_from, failed, ns, stream

ENTRY = {"stage": 0, "w0_ns": 0, "w1_ns": ns(10), "drain_end_ns": ns(10)}
TEXT, ROLE, FINISH, DONE = Kind.CONTENT, Kind.ROLE, Kind.FINISH, Kind.DONE


def wire(sent: float = 0.0, request_id: str = "r0", **more: object) -> Record:
    """Due 50 ms early; a role at 10 ms, text at 100, 120 and 160 ms (6 tokens), finish at 170, [DONE] at 200."""
    times = [sent + at for at in (0.010, 0.100, 0.120, 0.160, 0.170, 0.200)]
    kinds = [ROLE, TEXT, TEXT, TEXT, FINISH, DONE]
    return stream(sent, times, kinds=kinds, tokens=6, intended=max(0.0, sent - 0.05), end=sent + 0.200,
                  request_id=request_id, **more)  # type: ignore[arg-type]  # fmt: skip


def speak(
    records: list[Record], tool: str, *slo: SloClause, entry: dict[str, object] = ENTRY, **more: object
) -> Speech:
    speeches = in_dialects_of(columns_from(records), entry, slo=slo, **more)  # type: ignore[arg-type]
    return next(speech for speech in speeches if speech.tool == tool)


def figure(speech: Speech, key: str) -> Figure:
    return next(f for f in speech.figures if f.key == key)


WANTED = {
    # tool: (ttft, itl mean and n, tpot, e2e) in ms for the stream above, n = 6
    "benchlab": (100, (30, 2), 60 / 5, 160),
    "vllm": (10, (40, 4), 160 / 5, 170),
    "aiperf": (100, (12, 1), 12, 160),
    "guidellm": (100, (12, 1), 160 / 6, 200),
    "inference-perf": (100, (12, 5), 12, 200),
    "genai-bench": (100, None, 100 / 5, 200),
    "sglang": (100, (30, 2), 100 / 5, 200),
    "mlperf": (150, None, 100 / 5, 250),
}


@pytest.mark.parametrize("tool", WANTED)
def test_each_tool_by_hand(tool: str) -> None:
    speech = speak([wire(1.0)], tool)
    ttft, itl, tpot, e2e = WANTED[tool]
    for key, wanted in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
        assert figure(speech, key).stats["mean"] == pytest.approx(wanted), key
        assert figure(speech, key).gap is None
    gaps = figure(speech, "itl")
    if itl is None:
        assert gaps.gap == "this tool has no such number"
        assert gaps.stats["p50"] is None
    else:
        assert (gaps.stats["mean"], gaps.n) == (pytest.approx(itl[0]), itl[1])


def test_every_dialect_is_spoken_and_ours_comes_first() -> None:
    speeches = in_dialects_of(columns_from([wire(1.0)]), ENTRY)
    assert [speech.tool for speech in speeches] == ["benchlab", *(d.name for d in DIALECTS)] == list(WANTED)


def test_tokens_of_a_chunk_are_zeros_to_inference_perf() -> None:
    gaps = figure(speak([wire(1.0)], "inference-perf"), "itl")
    # six tokens in three chunks: three zeros, and the gaps of 20 and 40 ms
    assert gaps.stats["p50"] == 0
    assert gaps.stats["p99"] == pytest.approx(np.percentile([0, 0, 0, 20, 40], 99))


def test_a_percentile_of_guidellm_is_a_sample_and_weighs_tokens() -> None:
    # 1 token a 10 ms gap against 99 tokens at 1 ms: by requests the median lies between, by tokens it is 1 ms.
    slow = stream(0.0, [0.1, 0.11], tokens=2, request_id="a")
    fast = stream(1.0, [1.1, 1.1 + 0.099], tokens=100, request_id="b")
    itl = figure(speak([slow, fast], "guidellm"), "itl")
    assert itl.stats["p50"] == pytest.approx(1.0)
    assert itl.stats["mean"] == pytest.approx((10 + 99) / 100)
    assert figure(speak([slow, fast], "aiperf"), "itl").stats["p50"] == pytest.approx(5.5)


def test_spans_differ() -> None:
    records = [wire(1.0, "a"), wire(3.0, "b"), failed(4.0, outcome=Outcome.TIMEOUT, after=1.0, request_id="c")]
    found = {tool: speak(records, tool).span_s for tool in WANTED}
    assert found["benchlab"] == found["guidellm"] == 10
    assert found["vllm"] == found["sglang"] == found["genai-bench"] == found["inference-perf"] == pytest.approx(4.0)
    assert found["aiperf"] == pytest.approx(2.16)
    assert found["mlperf"] == pytest.approx(4.05)
    assert figure(speak(records, "mlperf"), "completed_rps").stats["value"] == pytest.approx(1 / 4.05)  # one less
    assert figure(speak(records, "vllm"), "completed_rps").stats["value"] == pytest.approx(2 / 4)
    assert figure(speak(records, "vllm"), "output_tps").stats["value"] == pytest.approx(12 / 4)


def slos(*pairs: tuple[str, float]) -> tuple[SloClause, ...]:
    return tuple(SloClause(name, limit, f"{name}<={limit}ms") for name, limit in pairs)


def test_goodput_has_as_many_denominators_as_tools() -> None:
    one_token = stream(5.0, [5.01], tokens=1, request_id="one", kinds=[TEXT])
    records = [
        wire(1.0, "good"),
        one_token,
        failed(6.0, outcome=Outcome.ERROR_HTTP, request_id="bad"),
        failed(7.0, outcome=Outcome.UNFINISHED, request_id="open"),
    ]
    limits = slos(("ttft", 120), ("tpot", 40))
    share = {tool: figure(speak(records, tool, *limits), "attainment") for tool in WANTED}
    assert share["benchlab"].stats["value"] == pytest.approx(2 / 4)
    assert share["aiperf"].stats["value"] == pytest.approx(1 / 4)  # one token has no ITL: missed
    assert share["sglang"].stats["value"] == pytest.approx(2 / 4)  # one token counts as TPOT 0
    assert share["inference-perf"].stats["value"] == pytest.approx(1 / 2)  # failures are in no denominator
    assert share["guidellm"].stats["value"] == pytest.approx(1 / 2)  # one token and the cut-off one are set apart
    assert share["vllm"].gap == "this tool gives no share"
    assert share["genai-bench"].gap == share["mlperf"].gap == "this tool has no goodput"
    assert figure(speak(records, "vllm", *limits), "good_rps").n == 2


def test_a_limit_that_a_tool_does_not_know_is_a_gap() -> None:
    speech = speak([wire(1.0)], "vllm", *slos(("stall", 50)))
    assert figure(speech, "good_rps").gap == "this tool has no limit on stall"
    assert figure(speech, "good_rps").stats["value"] is None


@pytest.mark.parametrize(
    ("part", "lost"),
    [
        ("chunk_kind.silent", {"vllm": {"ttft", "itl", "tpot", "e2e"}}),
        ("chunk_ns.between", {"vllm": {"itl", "tpot", "e2e"}, "sglang": {"itl"}, "benchlab": {"itl"}}),
        ("intended_ns", {"mlperf": {"ttft", "e2e", "completed_rps", "output_tps"}}),
        ("chunk_kind.answer", {"inference-perf": {"ttft", "itl", "tpot"}}),
        ("end_ns", {"genai-bench": {"tpot", "e2e"}, "guidellm": {"e2e"}}),
    ],
)  # fmt: skip
def test_what_a_source_does_not_tell_is_a_gap_where_it_is_needed(part: str, lost: dict[str, set[str]]) -> None:
    record = replace(wire(1.0), unknown=(part,))
    for tool, keys in lost.items():
        speech = speak([record], tool)
        gaps = {f.key for f in speech.figures if f.gap and f.gap.startswith("the source does not tell")}
        assert gaps - {"icl", "ntpot"} == keys, tool
        assert all(value is None for f in speech.figures if f.key in keys for value in f.stats.values())


def test_a_tools_own_file_need_not_tell_what_its_own_words_mean() -> None:
    record = replace(wire(1.0), unknown=("chunk_kind", "chunk_kind.silent"))
    assert figure(speak([record], "vllm", source="vllm"), "ttft").gap is None
    assert figure(speak([record], "vllm", source="guidellm"), "ttft").gap is not None


def test_the_span_that_a_tool_told_is_its_own_only() -> None:
    entry = ENTRY | {"tool_span_s": 5.0}
    assert speak([wire(1.0)], "vllm", entry=entry, source="vllm").span_s == 5.0
    assert speak([wire(1.0)], "sglang", entry=entry, source="vllm").span_s == pytest.approx(0.2)


def test_durations_alone_give_no_rate_to_other_tools() -> None:
    record = replace(wire(1.0), unknown=("sent_ns.absolute",))
    assert figure(speak([record], "vllm"), "completed_rps").gap == "the source does not tell sent_ns.absolute"


def test_nothing_succeeded() -> None:
    records = [failed(1.0, outcome=Outcome.ERROR_HTTP)]
    for speech in in_dialects_of(columns_from(records), ENTRY, slo=slos(("ttft", 100))):
        for f in speech.figures:
            assert f.gap or f.stats["value"] == 0, (speech.tool, f)


def test_without_a_window_nobody_speaks() -> None:
    assert in_dialects_of(columns_from([wire(1.0)]), ENTRY | {"w1_ns": 0}) == ()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_percentile_rules_against_numpy(values: list[float], share: float) -> None:
    data = np.sort(np.array(values))
    assert linear(data, None, share) == pytest.approx(np.quantile(data, share))
    at = inverse_cdf(data, None, share)
    assert at in data
    assert at == inverse_cdf(data, np.full(len(data), 3.0), share)
    assert np.mean(data <= at) >= share - 1e-9
    assert np.mean(data < at) <= share + 1e-9
    assert floor_index(data, None, share) == data[int(len(data) * share)]
