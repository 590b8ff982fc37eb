"""Profiles as text, and what the cost models make of a plan: the worked roofline figures among them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.core.ledger import GIB
from benchlab_engine.core.plan import StepPlan, Work
from benchlab_engine.sim.costs import TEACHING, StepCosts, counts_of, parse_profile
from benchlab_engine.sim.devices import DEVICES, MODELS
from benchlab_engine.sim.roofline import Roofline


def decode(start, drafts=0, to_draft=0):
    return Work("d", (7,) * (1 + drafts), start, (0,), True, True, num_drafts=drafts, num_to_draft=to_draft)


def prompt(count, start=0, samples=True):
    return Work("p", (7,) * count, start, (0,), samples, False)


def plan(*works):
    return StepPlan(1, works)


def test_the_teaching_model_costs_what_the_worked_example_says():
    assert TEACHING.of(plan(decode(9), decode(3))) == 3_000_000
    assert TEACHING.of(plan(decode(9), decode(3), prompt(12))) == 9_000_000
    assert TEACHING.of(plan(decode(9), prompt(4, start=8))) == 4_800_000  # 1 + 1 + 2 + 0.8 reread
    assert TEACHING.of(plan()) == 0


def test_each_proposed_position_costs_a_decode():
    assert TEACHING.of(plan(decode(9, drafts=3))) == 5_000_000
    assert TEACHING.of(plan(decode(9, to_draft=3))) == 5_000_000


def test_context_is_what_decodes_read():
    costs = parse_profile("context=10ns")
    assert costs.of(plan(decode(100), decode(50), prompt(5, start=1000))) == 1_500
    assert counts_of([(100, 1, True), (8, 4, False)]) == (4, 1, 8, 100)


def test_accept_rides_on_every_profile(tmp_path):
    assert parse_profile("teaching,accept=0.7") == dataclasses.replace(TEACHING, accept=0.7)
    assert parse_profile("null,accept=1").accept == 1
    assert parse_profile("ttft=5ms,accept=0").accept == 0
    assert parse_profile("roofline:h100:llama-3-8b,accept=0.5").accept == 0.5
    assert parse_profile("null").accept is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "use teaching, null"),
        ("fast", "roofline:GPU:MODEL"),
        ("teaching,step=1ms", "use accept"),
        ("ttft=5", "write a number and a unit"),
        ("ttft=5ms,step=1ms", "use ttft, itl, accept"),
        ("speed=1ms", "use step, prompt, decode, reread, context, accept"),
        ("step=1ms,step=2ms", "twice"),
        ("step=1ms,,", "no key=value"),
        ("step=" + "9" * 400 + "s", "longer than any run"),
        ("null,accept=2", "give 0 to 1"),
        ("null,accept=nan", "give 0 to 1"),
        ("null,accept=x", "no number"),
        ("roofline", "use h100"),
        ("roofline:h1000:llama-3-8b", "use h100, h200, a100"),
        ("roofline:h100:gpt", "use llama-3-8b"),
        ("roofline:a100:llama-3-8b,compute=fp8", "use bf16, int8"),
        ("roofline:h100:llama-3-8b,weights=int2", "use fp32"),
        ("roofline:h100:llama-3-8b,eff=0", "more than 0"),
        ("roofline:h100:llama-3-8b,eff=1.5", "at most 1"),
        ("roofline:h100:llama-3-8b,eff=nan", "at most 1"),
        ("roofline:h100:llama-3-8b,gpus=0", "1 or more"),
        ("roofline:h100:llama-3-8b,gpus=two", "whole number"),
        ("roofline:h100:llama-3-8b,step=1ms", "use weights, kv"),
        ("fitted:", "which file"),
        ("fitted:/no/such/file", "cannot be read"),
    ],
)
def test_a_wrong_profile_says_what_is_possible(text, says):
    with pytest.raises(ValueError, match=r"^profile ") as error:
        parse_profile(text)
    assert says in str(error.value)


@given(st.text(max_size=40))
def test_any_text_is_a_profile_or_a_value_error(text):
    try:
        costs = parse_profile(text)
    except ValueError:
        return
    assert costs.of(plan(prompt(3))) >= 0


def shape(**changes):
    """The worked example's model on the worked example's device."""
    model = dataclasses.replace(MODELS["llama-3-8b"], num_parameters=8_000_000_000)
    device = dataclasses.replace(DEVICES["h100"], bytes_per_s=2e12, flop_per_s={"bf16": 200e12})
    return Roofline(device, model, **changes)


def test_roofline_of_the_worked_example():
    costs = shape()
    assert costs.seconds(1, 0, 0) == pytest.approx(0.008)
    assert costs.seconds(32, 0, 32 * 2300) == pytest.approx(0.0128, abs=0.00005)
    assert costs.seconds(2000, 0, 0) == pytest.approx(0.160)
    assert shape(weights="int8").seconds(1, 0, 0) == pytest.approx(0.004)
    assert shape(eff=0.5).seconds(1, 0, 0) == pytest.approx(0.016)


def test_a_plan_is_read_as_positions_pairs_and_cache():
    costs = shape()
    assert costs.of(plan(decode(2299))) == round(costs.seconds(1, 2300, 2300) * 1e9)
    assert costs.of(plan(prompt(100, start=50), decode(9))) == round(
        costs.seconds(101, 100 * 50 + 5050 + 10, 160) * 1e9
    )
    assert costs.of(plan(decode(2299, to_draft=2))) == costs.of(plan(decode(2299, drafts=2)))
    assert costs.of(plan()) == 0
    assert shape(overhead_ns=7000).of(plan(decode(9))) == costs.of(plan(decode(9))) + 7000


def test_several_devices_share_the_reading_and_pay_for_the_reduces():
    model = dataclasses.replace(MODELS["llama-3-70b"], num_parameters=70_000_000_000)
    device = dataclasses.replace(DEVICES["h100"], bytes_per_s=2e12)
    for each, floor_ms in ((15_000, 19.9), (60_000, 27.1)):
        costs = Roofline(device, model, num_devices=4, reduce_ns=each)
        assert costs.seconds(1, 0, 0) * 1e3 == pytest.approx(floor_ms)
    assert Roofline(device, model, reduce_ns=15_000).seconds(1, 0, 0) == pytest.approx(0.070)


def test_blocks_beside_the_weights():
    blocks = shape().num_kv_blocks(16)
    assert blocks * 16 * 131_072 / GIB == pytest.approx(57.1, abs=0.05)
    assert Roofline(DEVICES["l4"], MODELS["llama-3-70b"]).num_kv_blocks(16) == 0
    assert parse_profile("roofline:h100:llama-3-8b,kv=fp8").kv_bytes_per_token == 65_536
    assert parse_profile("roofline:h100:llama-3-8b,weights=int4").weights_bytes == pytest.approx(
        8_030_261_248 * (4 + 16 / 128) / 8, rel=1e-6
    )


def test_the_tables_are_plausible():
    for device in DEVICES.values():
        assert "data sheet" in device.source
        assert 100 < device.flop_per_s["bf16"] / device.bytes_per_s < 1000  # FLOP a byte
    for model in MODELS.values():
        assert model.num_heads % model.num_kv_heads == 0


def test_costs_are_plain_values():
    assert StepCosts() == parse_profile("null")
