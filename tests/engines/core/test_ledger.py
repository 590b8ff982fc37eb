"""The worked examples of memory and roofline, row by row, and what the arithmetic must refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.core import ledger
from benchlab_engine.core.ledger import GIB, MIB

llama_8b_token = ledger.kv_bytes_per_token(32, 8, 128, 2)


def test_kv_of_an_8b_model():
    assert llama_8b_token == 131_072 == 128 * 1024
    assert 4096 * llama_8b_token == 536_870_912 == 512 * MIB
    assert 2299 * llama_8b_token / MIB == pytest.approx(287.4, abs=0.05)
    assert 2299 * llama_8b_token / 1e6 == pytest.approx(301.3, abs=0.05)


def test_the_last_token_is_never_fed_back():
    assert ledger.cached_positions(2000, 300) == 2299
    assert ledger.cached_positions(5, 1) == 5


def test_kv_budget_and_the_sequences_that_fit():
    weights = ledger.weights_bytes(8_000_000_000, "bf16")
    assert weights == 16_000_000_000
    assert weights / GIB == pytest.approx(14.9, abs=0.05)
    budget = ledger.kv_budget_bytes(80 * GIB, 0.9, weights)
    assert budget / GIB == pytest.approx(57.1, abs=0.05)
    assert ledger.sequences_that_fit(budget, 512 * MIB) == 114
    assert ledger.sequences_that_fit(budget, 287.5 * MIB) == 203
    assert 32_768 * llama_8b_token == 4 * GIB
    assert ledger.sequences_that_fit(budget, 32_768 * llama_8b_token) == 14


def test_blocks_and_slack():
    assert ledger.blocks_of(2300, 16) == 144
    assert 144 * 16 * llama_8b_token == 288 * MIB
    by_16 = ledger.paging([17, 33, 65], 16)
    assert (by_16.num_tokens, by_16.num_blocks, by_16.num_slots, by_16.num_idle) == (115, 10, 160, 45)
    by_4 = ledger.paging([17, 33, 65], 4)
    assert (by_4.num_slots, by_4.num_blocks) == (124, 31)


def test_ledger_of_a_7b_configuration():
    weights = ledger.weights_bytes(7_000_000_000, "bf16")
    kv = 16 * 4096 * 128 * 1024
    whole = ledger.Ledger(weights=weights, kv=kv, workspace=3 * GIB, reserve=4 * GIB)
    assert weights / GIB == pytest.approx(13.04, abs=0.005)
    assert kv == 8 * GIB
    assert whole.total / GIB == pytest.approx(28.04, abs=0.005)
    assert whole.left_of(40 * GIB) > 0 > whole.left_of(28 * GIB)


@pytest.mark.parametrize(
    ("number_format", "gigabytes"),
    [("fp32", 28), ("fp16", 14), ("bf16", 14), ("int8", 7), ("fp8", 7), ("int4", 3.5)],
)
def test_weights_by_format(number_format, gigabytes):
    assert ledger.weights_bytes(7_000_000_000, number_format) == gigabytes * 1e9


def test_scales_come_on_top():
    assert ledger.scales_bytes(7_000_000_000, 128) == 7_000_000_000 // 128 * 2
    assert ledger.scales_bytes(129, 128, 4, zero_points=True) == 2 * 4 * 2


def test_kv_of_a_7b_model_with_four_heads():
    a_token = ledger.kv_bytes_per_token(28, 4, 128, 2)
    assert a_token == 57_344
    assert 32_768 * a_token == 1.75 * GIB
    assert 10 * 32_768 * a_token == 17.5 * GIB


def test_kv_of_a_70b_model():
    a_token = ledger.kv_bytes_per_token(80, 8, 128, 2)
    assert a_token == 327_680
    assert 8000 * a_token / 1e9 == pytest.approx(2.62, abs=0.005)
    assert ledger.sequences_that_fit(40e9, 8000 * a_token) == 15
    assert 40e9 // a_token == pytest.approx(122_000, abs=500)
    assert ledger.sequences_that_fit(40e9, 128 * 1024 * a_token) == 0


def test_prefill_flop():
    flop = ledger.matmul_flop(8_000_000_000, 2000)
    assert flop == 3.2e13
    assert ledger.seconds_to_compute(flop, 200e12) == pytest.approx(0.160)


def test_decode_floor():
    assert ledger.seconds_to_read(16e9, 2e12) == pytest.approx(0.008)  # 125 tokens/s for one stream
    assert ledger.seconds_to_read(ledger.weights_bytes(8_000_000_000, "int8"), 2e12) == pytest.approx(0.004)
    kv = 32 * 2300 * llama_8b_token
    assert kv / 1e9 == pytest.approx(9.65, abs=0.005)
    assert ledger.seconds_to_read(kv, 2e12) == pytest.approx(0.0048, abs=0.00005)
    floor = ledger.seconds_to_read(16e9 + kv, 2e12)
    assert floor == pytest.approx(0.0128, abs=0.00005)
    assert 32 / floor == pytest.approx(2500, abs=10)
    assert 0.020 / floor == pytest.approx(1.6, abs=0.05)


def test_several_devices():
    weights = ledger.weights_bytes(70_000_000_000, "bf16")
    assert weights == 140e9
    assert weights / GIB == pytest.approx(130.4, abs=0.05)
    assert weights / 2 / GIB == pytest.approx(65.2, abs=0.05)
    assert ledger.kv_budget_bytes(80 * GIB, 0.9, weights, 2) / GIB == pytest.approx(6.8, abs=0.05)
    assert weights / 4 / GIB == pytest.approx(32.6, abs=0.05)
    assert ledger.kv_budget_bytes(80 * GIB, 0.9, weights, 4) / GIB == pytest.approx(39.4, abs=0.05)
    assert ledger.kv_budget_bytes(80 * GIB, 0.9, weights, 1) < 0
    assert ledger.seconds_to_read(weights / 4, 2e12) == pytest.approx(0.0175)
    assert ledger.seconds_to_read(weights, 2e12) == pytest.approx(0.070)


@pytest.mark.parametrize(("microseconds", "step_ms", "floor_ms"), [(15, 2.4, 19.9), (60, 9.6, 27.1)])
def test_all_reduces(microseconds, step_ms, floor_ms):
    step = ledger.allreduce_seconds(80, microseconds * 1e-6)
    assert step * 1e3 == pytest.approx(step_ms)
    assert (step + ledger.seconds_to_read(140e9 / 4, 2e12)) * 1e3 == pytest.approx(floor_ms)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="use fp32, fp16"):
        ledger.weights_bytes(1, "int2")
    with pytest.raises(ValueError, match="usable share"):
        ledger.kv_budget_bytes(1, 90, 1)
    with pytest.raises(ValueError, match="devices"):
        ledger.kv_budget_bytes(1, 0.9, 1, 0)
    with pytest.raises(ValueError, match="group"):
        ledger.scales_bytes(1, 0)


@given(st.lists(st.integers(0, 10_000), max_size=20), st.integers(1, 64))
def test_a_sequence_never_idles_a_whole_block(lengths, block_size):
    laid = ledger.paging(lengths, block_size)
    assert 0 <= laid.num_idle <= len(lengths) * (block_size - 1)
    assert laid.num_slots == laid.num_blocks * block_size


@given(st.integers(0, 500), st.integers(0, 200), st.integers(1, 200))
def test_pairs_of_a_chunked_prefill_are_those_of_the_whole(start, first, second):
    parts = ledger.attended_pairs(start, first) + ledger.attended_pairs(start + first, second)
    assert parts == ledger.attended_pairs(start, first + second)
