"""GGUF in every supported type and architecture, against the bytes themselves, and what is refused by name."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

import numpy as np  # noqa: E402
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType  # noqa: E402
from gguf.quants import quantize  # noqa: E402

from benchlab_engine.errors import EngineError  # noqa: E402
from benchlab_engine.model import weights  # noqa: E402
from benchlab_engine.model.config import DecoderConfig, RopeScaling  # noqa: E402
from benchlab_engine.model.decoder import Decoder  # noqa: E402
from benchlab_engine.model.rope import rotary_tables, scaled  # noqa: E402
from benchlab_engine.model.weights import read_gguf  # noqa: E402
from tests.engines.model.small import CONFIG, logits  # noqa: E402

GGUF_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "model.embed_tokens": "token_embd",
    "model.norm": "output_norm", "lm_head": "output",
}  # fmt: skip


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, index, rest = stem.split(".", 3)
        return f"blk.{index}.{GGUF_NAMES[rest]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def interleaved(weight, heads):
    """As converters write q and k for the llama architecture: each head's halves row by row in turn."""
    return weight.view(heads, 2, -1, weight.shape[-1] if weight.dim() == 2 else 1).transpose(1, 2).reshape(weight.shape)


def write_gguf(path, config, tensors, architecture="llama", kind="F32", extra=()):
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([str(index) for index in range(config.vocab_size)])
    for call in extra:
        call(writer)
    quant = GGMLQuantizationType[kind]
    for name, tensor in tensors.items():
        heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}.get(name.split(".")[-2], 0)
        stored = interleaved(tensor, heads) if heads and architecture == "llama" else tensor
        if kind == "F32" or tensor.dim() < 2:
            writer.add_tensor(gguf_name(name), stored.numpy())
        else:
            writer.add_tensor(gguf_name(name), quantize(stored.numpy(), quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {}),
        ("llama", {"tied": False, "qkv_bias": True}),
        ("qwen2", {"qkv_bias": True, "rope_theta": 1e6}),
        ("qwen3", {"qk_norm": True, "head_dim": 32}),
    ],
)
def test_each_gguf_architecture_is_the_model_it_was_written_from(tmp_path, architecture, changes):
    config = replace(CONFIG, **changes)
    tensors = weights.random(config, 4)
    write_gguf(tmp_path / "m.gguf", config, tensors, architecture)
    found_config, found, metadata = read_gguf(tmp_path / "m.gguf")
    assert found_config == config
    assert metadata["general.architecture"] == architecture
    assert sorted(found) == sorted(tensors)
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert torch.equal(logits(Decoder(config, found, torch.float32)), logits(Decoder(config, tensors, torch.float32)))


def test_the_llama_row_order_is_that_of_the_published_converter(tmp_path):
    """transformers reads the same file by its own code."""
    from transformers import AutoModelForCausalLM

    tensors = weights.random(CONFIG, 4)
    write_gguf(tmp_path / "m.gguf", CONFIG, tensors)
    other = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    state = other.state_dict()
    _, found, _ = read_gguf(tmp_path / "m.gguf")
    assert all(torch.equal(found[name], state[name]) for name in tensors)


def yarn(writer):
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(32)


def linear(writer):
    writer.add_rope_scaling_type(RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(2.0)


FACTORS = tuple(1.0 + index / 4 for index in range(8))


def factors(writer):
    writer.add_tensor("rope_freqs.weight", np.array(FACTORS, dtype=np.float32))


@pytest.mark.parametrize(
    ("call", "wanted", "positions"),
    [
        (linear, RopeScaling("linear", 2.0), 64),
        (yarn, RopeScaling("yarn", 4.0, 32, attention_factor=1.1386294361119891), 128),
        (factors, RopeScaling("factors", factors=FACTORS), 64),
        (lambda writer: writer.add_rope_scaling_type(RopeScalingType.NONE), None, 64),
    ],
)
def test_gguf_rope_scaling_is_read(tmp_path, call, wanted, positions):
    write_gguf(tmp_path / "m.gguf", CONFIG, weights.random(CONFIG, 4), extra=(call,))
    config, found, _ = read_gguf(tmp_path / "m.gguf")
    assert config.rope == wanted
    assert config.max_positions == positions
    assert "rope_freqs.weight" not in found
    assert torch.isfinite(logits(Decoder(config, found, torch.float32), 60)).all()


def test_llama3_factors_of_a_gguf_are_the_scaling_of_the_config():
    """Converters write what llama3 scaling divides each frequency by; both must give the same tables."""
    rope = RopeScaling("llama3", 8.0, 16, low_freq_factor=1.0, high_freq_factor=4.0)
    plain = 1.0 / 10_000.0 ** (torch.arange(0, 16, 2, dtype=torch.float32) / 16)
    divided = tuple((plain / scaled(plain, rope, 10_000.0)).tolist())
    one, other = replace(CONFIG, rope=rope), replace(CONFIG, rope=RopeScaling("factors", factors=divided))
    for ours, theirs in zip(
        rotary_tables(one, 64, torch.float32), rotary_tables(other, 64, torch.float32), strict=True
    ):
        assert torch.allclose(ours, theirs, atol=1e-4)


def halves(raw, at):
    return struct.unpack_from("<e", raw, at)[0]


def by_hand(kind, raw):
    """One block's weights from its bytes, number by number, after the published block layouts."""
    if kind == "F32":
        return list(struct.unpack("<32f", raw))
    if kind == "F16":
        return list(struct.unpack("<32e", raw))
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + raw[2 * i : 2 * i + 2])[0] for i in range(32)]
    if kind == "Q8_0":
        return [halves(raw, 0) * value for value in struct.unpack_from("<32b", raw, 2)]
    if kind == "Q4_0":
        levels = [raw[2 + i % 16] >> (4 * (i // 16)) & 15 for i in range(32)]
        return [halves(raw, 0) * (level - 8) for level in levels]
    if kind == "Q4_1":
        levels = [raw[4 + i % 16] >> (4 * (i // 16)) & 15 for i in range(32)]
        return [halves(raw, 0) * level + halves(raw, 2) for level in levels]
    if kind == "Q4_K":  # d, dmin; 12 bytes of eight 6-bit scales and minimums; 128 bytes of levels
        out, packed = [], raw[4:16]
        for j in range(8):
            if j < 4:
                scale, low = packed[j] & 63, packed[j + 4] & 63
            else:
                scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4)
                low = (packed[j + 4] >> 4) | (packed[j] >> 6 << 4)
            levels = [raw[16 + 32 * (j // 2) + i] >> (4 * (j % 2)) & 15 for i in range(32)]
            out += [halves(raw, 0) * scale * level - halves(raw, 2) * low for level in levels]
        return out
    # Q6_K: 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, d
    out = []
    for i in range(256):
        half, rest = divmod(i, 128)
        quarter, column = divmod(rest, 32)
        low = raw[64 * half + 32 * (quarter % 2) + column] >> (4 * (quarter // 2)) & 15
        high = raw[128 + 32 * half + column] >> (2 * quarter) & 3
        scale = struct.unpack_from("<b", raw, 192 + i // 16)[0]
        out.append(halves(raw, 208) * scale * ((low | high << 4) - 32))
    return out


SIZES = {"F32": 128, "F16": 64, "BF16": 64, "Q8_0": 34, "Q4_0": 18, "Q4_1": 20, "Q4_K": 144, "Q6_K": 210}


@pytest.mark.parametrize("kind", SIZES)
def test_each_gguf_type_is_what_its_bytes_say(tmp_path, kind):
    """Random blocks, read through a whole file, against a number-by-number reading of the same bytes."""
    width, size = (256 if kind.endswith("_K") else 32), SIZES[kind]
    generator = np.random.default_rng(3)
    rows = 64 if kind.endswith("_K") else 96
    raw = generator.integers(0, 256, (rows, size), dtype=np.uint8)
    small = generator.normal(size=(rows, 32)).astype(np.float32)
    if kind == "F32":
        raw = small.view(np.uint8)
    elif kind == "F16":
        raw = small.astype(np.float16).view(np.uint8)
    elif kind == "BF16":
        raw = (small.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:  # scales that are no NaN and not huge
        for at in {"Q4_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,)}.get(kind, (0,)):
            raw[:, at : at + 2] = generator.uniform(0.001, 0.1, (rows, 1)).astype(np.float16).view(np.uint8)
    config = DecoderConfig(
        vocab_size=90, hidden=width, ffn=rows, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=width // 2,
        max_positions=64,
    )  # fmt: skip
    tensors = weights.random(config, 1)
    del tensors["model.layers.0.mlp.up_proj.weight"]

    def add(writer):
        plain = {"F32": np.float32, "F16": np.float16}.get(kind)
        data = raw if plain is None else np.ascontiguousarray(raw).view(plain)
        writer.add_tensor("blk.0.ffn_up.weight", data, raw_dtype=None if plain else GGMLQuantizationType[kind])

    write_gguf(tmp_path / "m.gguf", config, tensors, extra=(add,))
    _, found, _ = read_gguf(tmp_path / "m.gguf")
    wanted = torch.tensor([by_hand(kind, bytes(row)) for row in raw], dtype=torch.float64)
    got = found["model.layers.0.mlp.up_proj.weight"]
    assert got.shape == wanted.shape
    assert (got.double() - wanted).abs().max() <= 1e-6 * wanted.abs().max()
    assert wanted.abs().max() > 0.05


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_a_quantised_gguf_answers_near_its_origin(tmp_path, kind):
    tensors = weights.random(CONFIG, 4)
    write_gguf(tmp_path / "m.gguf", CONFIG, tensors, kind=kind)
    config, found, _ = read_gguf(tmp_path / "m.gguf")
    wanted = logits(Decoder(CONFIG, tensors, torch.float32))
    share = (logits(Decoder(config, found, torch.float32)) - wanted).norm() / wanted.norm()
    assert 0 < share < {"F16": 0.005, "BF16": 0.02, "Q8_0": 0.06}.get(kind, 0.4)


def test_a_gguf_type_that_is_not_read_is_named(tmp_path):
    write_gguf(tmp_path / "m.gguf", CONFIG, weights.random(CONFIG, 4), kind="Q5_0")
    with pytest.raises(EngineError, match=r"token_embd\.weight has GGUF type Q5_0; supported: F32, F16, BF16, Q8_0"):
        read_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("architecture", "call", "says"),
    [
        ("gemma", None, "GGUF architecture 'gemma' is not supported; supported: llama, qwen2, qwen3"),
        ("llama", lambda writer: writer.add_expert_count(8), "llama.expert_count"),
        ("llama", lambda writer: writer.add_rope_scaling_type(RopeScalingType.LONGROPE), "rope scaling 'longrope'"),
        ("qwen2", lambda writer: writer.add_rope_dimension_count(8), "qwen2.rope.dimension_count = 8 with heads of 16"),
        ("llama", lambda writer: writer.add_value_length(8), "llama.attention.value_length = 8"),
        (
            "llama",
            lambda writer: writer.add_tensor("blk.0.ffn_gate_inp.weight", np.zeros((2, 64), np.float32)),
            r"a tensor that a Llama decoder does not: blk\.0\.ffn_gate_inp\.weight",
        ),
    ],
)
def test_a_gguf_that_asks_for_more_is_refused_by_name(tmp_path, architecture, call, says):
    write_gguf(
        tmp_path / "m.gguf", CONFIG, weights.random(CONFIG, 4), architecture, extra=() if call is None else (call,)
    )
    with pytest.raises(EngineError, match=says):
        read_gguf(tmp_path / "m.gguf")


def test_a_gguf_cut_short_is_one_clear_message(tmp_path):
    path = tmp_path / "m.gguf"
    write_gguf(path, CONFIG, weights.random(CONFIG, 4), kind="Q8_0")
    whole = path.read_bytes()
    for share in (0.1, 0.3, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(EngineError, match="cannot be read"):
            config, found, _ = read_gguf(path)
            Decoder(config, found, torch.float32)


def test_a_gguf_window_is_honoured(tmp_path):
    write_gguf(
        tmp_path / "m.gguf", CONFIG, weights.random(CONFIG, 4), extra=(lambda writer: writer.add_sliding_window(8),)
    )
    assert read_gguf(tmp_path / "m.gguf")[0].window == 8
