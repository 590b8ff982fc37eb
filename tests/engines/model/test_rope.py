"""Rotary tables against transformers' own, position by position, far beyond the trained length."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from dataclasses import replace  # noqa: E402

from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model.config import RopeScaling, from_hugging_face, tiny  # noqa: E402
from benchlab_engine.model.rope import full_tables, rotary_tables, rotate  # noqa: E402

KINDS = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama3": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    "yarn, mscale": {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707,
                     "mscale_all_dim": 1.0, "beta_fast": 16, "beta_slow": 2, "truncate": False},
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_tables_equal_those_of_transformers(name, head_dim):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    theirs = LlamaConfig(
        hidden_size=2 * head_dim, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=131072,
        rope_theta=500_000.0, rope_scaling=KINDS[name],
    )  # fmt: skip
    ours = from_hugging_face(theirs.to_dict())
    assert (ours.rope is None) == (name == "default")
    cos, sin = rotary_tables(ours, 100_000, torch.float32)
    positions = torch.tensor([0, 1, 5, 4095, 8191, 8192, 40_000, 99_999])
    expected_cos, expected_sin = LlamaRotaryEmbedding(theirs)(torch.zeros(1), positions[None])
    half = head_dim // 2
    # Near 100,000 a frequency's last bit is worth 0.006 radians.
    assert (cos[positions] - expected_cos[0, :, :half]).abs().max() < 0.01
    assert (sin[positions] - expected_sin[0, :, :half]).abs().max() < 0.01
    assert (cos[positions[:4]] - expected_cos[0, :4, :half]).abs().max() < 1e-3


def test_factors_divide_each_frequency_and_a_wrong_number_of_them_is_an_error():
    plain, half = tiny(9), tiny(9).head_dim // 2
    scaled = replace(plain, rope=RopeScaling("factors", factors=(2.0,) * half))
    cos, _ = rotary_tables(plain, 10, torch.float32)
    slow, _ = rotary_tables(scaled, 20, torch.float32)
    assert torch.allclose(slow[::2], cos)
    with pytest.raises(EngineError, match="3 rope factors for 8 frequencies"):
        rotary_tables(replace(plain, rope=RopeScaling("factors", factors=(1.0, 2.0, 3.0))), 2, torch.float32)


def test_a_turn_keeps_lengths_and_depends_on_distance_alone():
    cos, sin = full_tables(*rotary_tables(tiny(9), 30, torch.float64))
    x = torch.randn(2, 1, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def turned(*places):
        found = x.clone()
        rotate(found, cos[list(places)], sin[list(places)])
        return found

    def dot(one, two):
        found = turned(one, two)
        return float(found[0, 0] @ found[1, 0])

    assert dot(3, 7) == pytest.approx(dot(23, 27))
    assert turned(9, 9).norm() == pytest.approx(float(x.norm()))
