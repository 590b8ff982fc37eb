"""Checkpoints that come quantised, against weights packed by published implementations; whole models; refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from safetensors.torch import load_file, save_file  # noqa: E402

from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model import weights  # noqa: E402
from benchlab_engine.model.checkpoint import scheme_of  # noqa: E402
from benchlab_engine.model.checkpoint_words import unpack_awq, unpack_compressed, unpack_gptq  # noqa: E402
from benchlab_engine.model.config import DecoderConfig  # noqa: E402
from benchlab_engine.model.decoder import Decoder  # noqa: E402
from benchlab_engine.model.linear import JoinedLinear  # noqa: E402
from benchlab_engine.model.load import load  # noqa: E402
from benchlab_engine.model.quant_groups import GroupLinear, Packed, rounded, stored  # noqa: E402
from tests.engines.model.small import logits  # noqa: E402

FIXTURES = Path(__file__).parents[2] / "fixtures" / "quant"
CASES = {
    "awq": (unpack_awq, 4, 0),
    "gptq-v1-asym": (unpack_gptq, 4, 1),
    "gptq-v1-desc-act": (unpack_gptq, 4, 1),
    "gptq-v1-8bit": (unpack_gptq, 8, 1),
    "gptq-v2-asym": (unpack_gptq, 4, 0),
    "gptq-v2-sym": (unpack_gptq, 4, 0),
    "compressed-int4-group-sym": (unpack_compressed, 4, 0),
    "compressed-int4-group-asym": (unpack_compressed, 4, 0),
    "compressed-int8-channel": (unpack_compressed, 8, 0),
}


def unpacked(name):
    unpack, bits, offset = CASES[name]
    parts = load_file(FIXTURES / f"{name}.safetensors")
    return Packed(*unpack(parts, bits, offset)), parts


@pytest.mark.parametrize("name", CASES)
def test_published_packing_is_read_as_its_own_code_reads_it(name):
    packed, parts = unpacked(name)
    # GPTQModel multiplies in float16, so that its own floats are rounded once more.
    assert (packed.floats() - parts["expected"]).abs().max() < (2e-3 if name.startswith("gptq-v2") else 1e-6)
    original, bits = parts["original"].float(), packed.groups.bits
    relative = (packed.floats() - original).square().mean().sqrt() / original.square().mean().sqrt()
    assert relative < (0.13 if bits == 4 else 0.02)
    assert (packed.order is not None) == (name == "gptq-v1-desc-act")
    assert (packed.groups.zeros is None) == (
        name in {"gptq-v2-sym", "gptq-v1-8bit"} or name.endswith(("-sym", "channel"))
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_with_packed_weights_equal_those_with_floats(name, dtype):
    packed, parts = unpacked(name)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    bias = torch.arange(32.0)
    wanted = x @ parts["expected"].t() + bias
    linear = stored(packed, bias.to(dtype), dtype, "cpu")
    assert (linear(x.to(dtype)).float() - wanted).abs().max() < 0.02 * wanted.abs().max()
    assert linear.parts()["packed"] == 64 * 32 * packed.groups.bits // 8
    plain = GroupLinear(packed.groups, bias, packed.order)
    assert (plain(x) - wanted).abs().max() < (0.02 if name.startswith("gptq-v2") else 1e-4)
    assert plain.to("cpu").num_bytes == sum(plain.parts().values())


def words(levels, bits):
    """[rows, columns] -> [rows, words], neighbours in a row share a word, lowest bits first."""
    fields = levels.to(torch.int64).view(len(levels), -1, 32 // bits)
    found = (fields << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(found >= 1 << 31, found - (1 << 32), found).to(torch.int32)


AWQ = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])


def pack_awq(levels, zeros, scales):
    def mixed(rows):
        return rows.reshape(len(rows), -1, 8)[:, :, AWQ].reshape(len(rows), -1)

    return {
        "qweight": words(mixed(levels.t()), 4), "qzeros": words(mixed(zeros.t()), 4), "scales": scales.t().contiguous(),
    }  # fmt: skip


def pack_gptq(levels, zeros, scales, offset, g_idx, bits=4):
    stored_zeros = (zeros.to(torch.int64) - offset) & ((1 << bits) - 1)
    return {
        "qweight": words(levels, bits).t().contiguous(), "qzeros": words(stored_zeros.t(), bits),
        "scales": scales.t().contiguous(), "g_idx": g_idx,
    }  # fmt: skip


def pack_compressed(levels, zeros, scales):
    return {
        "weight_packed": words(levels, 4), "weight_zero_point": words(zeros.t(), 4).t().contiguous(),
        "weight_scale": scales, "weight_shape": torch.tensor(levels.shape),
    }  # fmt: skip


def test_this_files_packers_are_the_published_ones():
    """Bit for bit, so that the models below are packed as those packages would."""
    for name in ("awq", "gptq-v1-asym", "gptq-v2-asym", "compressed-int4-group-asym"):
        packed, parts = unpacked(name)
        groups = packed.groups
        if name == "awq":
            made = pack_awq(groups.levels, groups.zeros, groups.scales)
        elif name.startswith("gptq"):
            made = pack_gptq(groups.levels, groups.zeros, groups.scales, CASES[name][2], parts["g_idx"])
        else:
            made = pack_compressed(groups.levels, groups.zeros, groups.scales)
        assert {key: torch.equal(value, parts[key]) for key, value in made.items()} == dict.fromkeys(made, True)


CONFIG = DecoderConfig(
    vocab_size=90, hidden=64, ffn=96, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, max_positions=64,
    qkv_bias=True, norm_eps=1e-6,
)  # fmt: skip
JSON = {
    "model_type": "qwen2", "vocab_size": 90, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": True,
}  # fmt: skip
COMPRESSED = {
    "quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
        "num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32}}},
}  # fmt: skip
SCHEMES = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False},
    "gptq, desc_act": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False},
    "gptq, orders of their own": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True},
    "gptq_v2": {"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"},
    "compressed": COMPRESSED,
}


def write(folder, name, quantization=None):
    """A tiny model in packed form; returns the floats that the packed numbers stand for."""
    floats, out = {}, {}
    for index, (key, weight) in enumerate(weights.random(CONFIG, 1).items()):
        floats[key] = out[key] = weight
        if "_proj.weight" not in key:
            continue
        mixed = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(7))
        if name == "gptq, orders of their own":
            mixed = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(index))
        g_idx = torch.arange(weight.shape[1], dtype=torch.int32) // 32
        if name.startswith("gptq, "):
            g_idx = g_idx[mixed]
        order = g_idx.sort(stable=True).indices
        groups = rounded(weight[:, order], 4, 32, False, torch.float16)
        zeros = (-groups.minimums.float() / groups.scales.float()).round().clamp(0, 15).to(torch.uint8)
        expanded = zeros.float().repeat_interleave(32, 1), groups.scales.float().repeat_interleave(32, 1)
        levels = torch.empty_like(groups.levels)
        levels[:, order] = groups.levels
        floats[key] = torch.empty_like(weight)
        floats[key][:, order] = (groups.levels.float() - expanded[0]) * expanded[1]
        if name == "awq":
            made = pack_awq(levels, zeros, groups.scales)
        elif name.startswith("gptq"):
            made = pack_gptq(levels, zeros, groups.scales, 0 if name == "gptq_v2" else 1, g_idx)
        else:
            made = pack_compressed(levels, zeros, groups.scales)
        del out[key]
        out |= {f"{key.removesuffix('.weight')}.{part}": value for part, value in made.items()}
    save_file(out, folder / "model.safetensors")
    text = JSON | {"quantization_config": SCHEMES[name] if quantization is None else quantization}
    (folder / "config.json").write_text(json.dumps(text))
    return floats


@pytest.mark.parametrize("name", SCHEMES)
def test_a_packed_model_answers_as_its_floats_do(tmp_path, name, monkeypatch):
    floats = write(tmp_path, name)
    wanted = logits(Decoder(CONFIG, floats, torch.float32))
    model = load(tmp_path, 0, "fp32", 0, 90, device="cpu")
    assert model.decoder.config == CONFIG
    assert (logits(model.decoder) - wanted).abs().max() < 0.02 * wanted.abs().max()
    joined = isinstance(model.decoder.layers[0].qkv, JoinedLinear)
    assert joined == (name == "gptq, orders of their own")
    ledger = model.ledger()
    assert "int4 in groups of 32" in ledger["products"]
    assert ledger["weights_packed"] == 2 * (64 * 128 + 64 * 64 + 3 * 64 * 96) // 2
    # Without torch's kernel nothing is rounded to bfloat16: the same answers to the last digits.
    monkeypatch.setattr("benchlab_engine.model.quant_groups.serves", lambda *_: False)
    plain = load(tmp_path, 0, "fp32", 0, 90, device="cpu").decoder
    assert (logits(plain) - wanted).abs().max() < 1e-4 * wanted.abs().max()
    _, tensors = weights.read_directory(tmp_path)
    assert all((tensors[key] - floats[key]).abs().max() < 1e-6 for key in tensors)


def test_some_modules_may_be_left_as_they_were(tmp_path):
    floats = write(tmp_path, "awq")
    kept = load_file(tmp_path / "model.safetensors")
    for module in ("self_attn.k_proj", "mlp.down_proj"):
        name = f"model.layers.1.{module}"
        kept = {
            key: value for key, value in kept.items() if not key.startswith(f"{name}.q") and key != f"{name}.scales"
        }
        kept[f"{name}.weight"] = floats[f"{name}.weight"]
    save_file(kept, tmp_path / "model.safetensors")
    decoder = load(tmp_path, 0, "fp32", 0, 90, device="cpu").decoder
    wanted = logits(Decoder(CONFIG, floats, torch.float32))
    assert (logits(decoder) - wanted).abs().max() < 0.02 * wanted.abs().max()


def test_a_packed_model_is_not_quantised_again(tmp_path):
    write(tmp_path, "awq")
    with pytest.raises(EngineError, match=r"q_proj comes quantised in the checkpoint; --quant none"):
        load(tmp_path, 0, "fp32", 0, 90, device="cpu", quant="int8")


def test_biases_of_zeros_are_dropped_where_the_model_has_none(tmp_path):
    floats = write(tmp_path, "gptq")
    kept = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.self_attn.o_proj.bias"
    save_file(kept | {name: torch.zeros(64)}, tmp_path / "model.safetensors")
    wanted = logits(Decoder(CONFIG, floats, torch.float32))
    found = logits(load(tmp_path, 0, "fp32", 0, 90, device="cpu").decoder)
    assert (found - wanted).abs().max() < 0.02 * wanted.abs().max()
    save_file(kept | {name: torch.ones(64)}, tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match=r"o_proj\.bias, which a decoder of this config has no place for"):
        load(tmp_path, 0, "fp32", 0, 90, device="cpu")


WEIGHTS = COMPRESSED["config_groups"]["group_0"]["weights"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"quant_method": "bitsandbytes"}, r"quant_method 'bitsandbytes' is not supported; supported: awq .*gptq"),
        ({"quant_method": "fp8"}, "quant_method 'fp8'"),
        ({}, None),
        ("awq", "not a table"),
        (SCHEMES["awq"] | {"bits": 3}, "awq with 3 bits"),
        (SCHEMES["awq"] | {"version": "gemv"}, "awq version 'gemv' is not supported; only gemm"),
        (SCHEMES["awq"] | {"group_size": 12}, "group_size 12"),
        (SCHEMES["awq"] | {"group_size": "32"}, "group_size is '32'"),
        ({"quant_method": "awq", "bits": 4}, "lacks group_size"),
        (SCHEMES["gptq"] | {"bits": 2}, "gptq with 2 bits is not supported; only 4 and 8"),
        (SCHEMES["gptq"] | {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        (SCHEMES["gptq"] | {"dynamic": {"x": {}}}, "dynamic is not supported"),
        (COMPRESSED | {"format": "nvfp4-pack-quantized"}, "format 'nvfp4-pack-quantized'"),
        (COMPRESSED | {"config_groups": {}}, "exactly one"),
        (
            COMPRESSED | {"config_groups": {"a": {"weights": WEIGHTS, "input_activations": {"num_bits": 8}}}},
            "nothing else",
        ),
        (COMPRESSED | {"config_groups": {"a": {"weights": WEIGHTS | {"num_bits": 3}}}}, "3 bits of int"),
        (COMPRESSED | {"config_groups": {"a": {"weights": WEIGHTS | {"strategy": "block"}}}}, "strategy 'block'"),
    ],
)
def test_schemes_that_are_not_read_are_refused_by_name(asked, says):
    if says is None:
        assert scheme_of({"quantization_config": asked}) is None
        return
    with pytest.raises(EngineError, match=says):
        scheme_of({"quantization_config": asked})


def test_a_packed_module_that_is_not_whole_is_named(tmp_path):
    write(tmp_path, "gptq")
    kept = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.down_proj"

    def opened(changes):
        save_file(
            {key: value for key, value in (kept | changes).items() if value is not None}, tmp_path / "model.safetensors"
        )
        return load(tmp_path, 0, "fp32", 0, 90, device="cpu")

    with pytest.raises(EngineError, match=rf"{name} cannot be unpacked as gptq: 'scales'"):
        opened({f"{name}.scales": None})
    with pytest.raises(EngineError, match=rf"{name} has scales .* groups of 32 ask for \(64, 3\)"):
        opened({f"{name}.scales": torch.ones(1, 64), f"{name}.g_idx": torch.zeros(96, dtype=torch.int32)})
    with pytest.raises(EngineError, match="does not put 96 columns into 3 groups of one size"):
        opened({f"{name}.g_idx": torch.zeros(96, dtype=torch.int32)})
    with pytest.raises(EngineError, match="two dimensions are expected"):
        opened({f"{name}.qweight": torch.zeros(3, dtype=torch.int32)})
    write(tmp_path, "gptq", SCHEMES["awq"])
    with pytest.raises(EngineError, match="model"):
        load(tmp_path, 0, "fp32", 0, 90, device="cpu")
    (tmp_path / "config.json").write_text(json.dumps(JSON | {"quantization_config": COMPRESSED}))
    with pytest.raises(EngineError, match=r"says compressed, but no tensor is named \*\.weight_packed"):
        load(tmp_path, 0, "fp32", 0, 90, device="cpu")
