"""The shape of a decoder from a GGUF file's metadata.

The one idea: the same frozen value as from a config.json; the keys carry the architecture's name as their prefix, and
what would change the arithmetic is honoured or refused by name. It must not know tensors' contents, only their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchlab_engine.errors import EngineError
from benchlab_engine.model.config import DecoderConfig, RopeScaling, yarn_mscale

ARCHITECTURES = ("llama", "qwen2", "qwen3")
_REFUSED = ("expert_count", "rope.scaling.alpha", "attention.sliding_window_pattern", "attention.scale")


def from_gguf(
    metadata: Mapping[str, Any], tensor_names: frozenset[str], rope_factors: Sequence[float] = ()
) -> DecoderConfig:
    """rope_factors: the contents of rope_freqs.weight, where the file has it: what each frequency is divided by."""
    family = metadata.get("general.architecture")
    if family not in ARCHITECTURES:
        raise EngineError(f"GGUF architecture {family!r} is not supported; supported: {', '.join(ARCHITECTURES)}")
    for key in _REFUSED:
        if metadata.get(f"{family}.{key}"):
            raise EngineError(f"the GGUF file asks for {family}.{key}, which is not supported")

    def number(key: str, default: float | None = None) -> float:
        value = metadata.get(f"{family}.{key}", default)
        if value is None:
            raise EngineError(f"the GGUF file lacks {family}.{key}")
        if not isinstance(value, int | float):
            raise EngineError(f"the GGUF file has {family}.{key} = {value!r}; one number for all layers is expected")
        return float(value)

    heads, hidden = int(number("attention.head_count")), int(number("embedding_length"))
    head_dim = int(number("attention.key_length", hidden // max(1, heads)))
    for key in ("attention.value_length", "rope.dimension_count"):
        if int(number(key, head_dim)) != head_dim:
            raise EngineError(f"{family}.{key} = {int(number(key))} with heads of {head_dim} is not supported")
    positions = int(number("context_length"))
    rope = _rope(metadata, family, positions, rope_factors)
    if rope is not None and rope.kind == "yarn":
        positions = max(positions, int(rope.original_positions * rope.factor))
    window = int(number("attention.sliding_window", 0))
    return DecoderConfig(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden=hidden,
        ffn=int(number("feed_forward_length")),
        num_layers=int(number("block_count")),
        num_heads=heads,
        num_kv_heads=int(number("attention.head_count_kv", heads)),
        head_dim=head_dim,
        max_positions=positions,
        norm_eps=_short(number("attention.layer_norm_rms_epsilon")),
        rope_theta=number("rope.freq_base", 10_000.0),
        tied="output.weight" not in tensor_names,
        qkv_bias="blk.0.attn_q.bias" in tensor_names,
        qk_norm="blk.0.attn_q_norm.weight" in tensor_names,
        window=0 if window >= positions else window,
        rope=rope,
    )


def _short(value: float) -> float:
    """Numbers are stored as float32: 1e-5, not 9.99...e-6."""
    return float(f"{value:.6g}")


def _rope(
    metadata: Mapping[str, Any], family: str, positions: int, rope_factors: Sequence[float]
) -> RopeScaling | None:
    def get(key: str, default: float) -> float:
        return _short(float(metadata.get(f"{family}.rope.scaling.{key}", default)))

    kind = metadata.get(f"{family}.rope.scaling.type", "none")
    factor = get("factor", float(metadata.get(f"{family}.rope.scale_linear", 1.0)))
    if kind == "none" and f"{family}.rope.scale_linear" in metadata:
        kind = "linear"
    if kind not in ("none", "linear", "yarn"):
        raise EngineError(f"GGUF rope scaling {kind!r} is not supported; supported: none, linear, yarn, rope_freqs")
    if factor <= 0:
        raise EngineError(f"GGUF rope scaling {kind} with factor {factor} makes no sense")
    if rope_factors:
        if kind != "none" and factor != 1.0:
            raise EngineError(f"GGUF with rope_freqs.weight and rope scaling {kind!r} together is not supported")
        return RopeScaling("factors", factors=tuple(float(each) for each in rope_factors))
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return RopeScaling("linear", factor)
    if f"{family}.rope.scaling.yarn_log_multiplier" in metadata:
        raise EngineError(f"{family}.rope.scaling.yarn_log_multiplier is not supported")
    given = get("attn_factor", get("yarn_attn_factor", 1.0))
    return RopeScaling(
        "yarn",
        factor,
        int(get("original_context_length", positions)),
        attention_factor=given * yarn_mscale(factor),
        beta_fast=get("yarn_beta_fast", 32.0),
        beta_slow=get("yarn_beta_slow", 1.0),
    )
