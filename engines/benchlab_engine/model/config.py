"""The shape of a decoder, from any source, or a refusal that names what is not supported.

The one idea: one frozen value that the rest of the room reads; everything a checkpoint can ask for that would change
the arithmetic is either in it or refused by name. It must not know tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchlab_engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes in elements. qkv_bias: Qwen2's. qk_norm: Qwen3's. tied: the head is the embedding."""

    vocab_size: int
    hidden: int
    ffn: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    tied: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Keys and values of one position, all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes


_FAMILIES = {"llama": (False, False), "mistral": (False, False), "qwen2": (True, False), "qwen3": (False, True)}


def from_hugging_face(config: Mapping[str, Any]) -> DecoderConfig:
    """From a config.json. EngineError names the field that this engine cannot honour."""
    family = config.get("model_type")
    if family not in _FAMILIES:
        raise EngineError(f"model_type {family!r} is not supported; supported: {', '.join(_FAMILIES)}")
    qkv_bias, qk_norm = _FAMILIES[family]
    if family != "qwen2" and config.get("attention_bias"):
        raise EngineError(f"{family} with attention_bias=true is not supported")
    if config.get("mlp_bias"):
        raise EngineError("mlp_bias=true is not supported")
    if config.get("hidden_act", "silu") != "silu":
        raise EngineError(f"hidden_act {config['hidden_act']!r} is not supported; only silu")
    if config.get("quantization_config"):
        raise EngineError("quantization_config: quantized checkpoints are not supported yet")
    positions = int(config["max_position_embeddings"])
    window = config.get("sliding_window") if config.get("use_sliding_window", family == "mistral") else None
    if window is not None:
        positions = min(positions, int(window))  # within the window, sliding attention is plain attention
    heads = int(config["num_attention_heads"])
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise EngineError(f"rope scaling {kind!r} is not supported yet")
    return DecoderConfig(
        vocab_size=int(config["vocab_size"]),
        hidden=int(config["hidden_size"]),
        ffn=int(config["intermediate_size"]),
        num_layers=int(config["num_hidden_layers"]),
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        max_positions=positions,
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
    )


def from_gguf(metadata: Mapping[str, Any], tensor_names: frozenset[str]) -> DecoderConfig:
    """From a GGUF file's metadata and the names of its tensors."""
    family = metadata.get("general.architecture")
    if family != "llama":
        raise EngineError(f"GGUF architecture {family!r} is not supported; supported: llama")
    if "rope_freqs.weight" in tensor_names or metadata.get("llama.rope.scaling.type", "none") != "none":
        raise EngineError("GGUF with rope scaling is not supported yet")

    def number(key: str, default: float | None = None) -> float:
        value = metadata.get(f"llama.{key}", default)
        if value is None:
            raise EngineError(f"the GGUF file lacks llama.{key}")
        return float(value)

    heads, hidden = int(number("attention.head_count")), int(number("embedding_length"))
    return DecoderConfig(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden=hidden,
        ffn=int(number("feed_forward_length")),
        num_layers=int(number("block_count")),
        num_heads=heads,
        num_kv_heads=int(number("attention.head_count_kv", heads)),
        head_dim=int(number("attention.key_length", hidden // heads)),
        max_positions=int(number("context_length")),
        norm_eps=float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),  # stored as float32: 1e-5, not 9.99...e-6
        rope_theta=number("rope.freq_base", 10_000.0),
        tied="output.weight" not in tensor_names,
    )


def tiny(vocab_size: int) -> DecoderConfig:
    """A few layers, enough to exercise every part: grouped heads, several layers, a tied head."""
    return DecoderConfig(
        vocab_size=vocab_size, hidden=64, ffn=176, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16,
        max_positions=2048,
    )  # fmt: skip
