"""The shape of a decoder, from a Hugging Face config.json, or a refusal that names what is not supported.

The one idea: one frozen value that the rest of the room reads; everything a checkpoint can ask for that would change
the arithmetic is either in it or refused by name. It must not know tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchlab_engine.errors import EngineError

_LARGEST = 1e300
_MOST, _MOST_LAYERS, _MOST_POSITIONS = 2**31, 10_000, 2**24


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How the rotary frequencies are changed so that longer contexts can be read.

    kind linear: all divided by factor. llama3: the slow ones divided by factor, between the two wavelengths
    original_positions / low_freq_factor and / high_freq_factor a mix. yarn: the slow ones divided by factor, the ramp
    between beta_fast and beta_slow turns in original_positions; truncate rounds its ends to whole dimensions. factors:
    each frequency divided by its own number (GGUF's rope_freqs.weight). attention_factor multiplies cos and sin.
    """

    kind: str
    factor: float = 1.0
    original_positions: int = 0
    attention_factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Numbers that no wave can have are refused here, whatever the source."""
        if not 0 < self.factor < math.inf or not 0 <= self.original_positions <= _MOST_POSITIONS:
            raise EngineError(
                f"rope scaling {self.kind} with factor {self.factor} over {self.original_positions} positions makes "
                "no sense"
            )
        if self.kind == "yarn" and (self.original_positions < 1 or not 0 < self.beta_slow < self.beta_fast < math.inf):
            raise EngineError(
                f"rope scaling yarn over {self.original_positions} positions needs 0 < beta_slow < beta_fast, not "
                f"{self.beta_slow} and {self.beta_fast}"
            )
        if not 0 < self.attention_factor < math.inf:
            raise EngineError(f"rope scaling {self.kind} with attention_factor {self.attention_factor} makes no sense")


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes in elements. qkv_bias: Qwen2's. qk_norm: Qwen3's. tied: the head is the embedding.

    window: how many positions a query sees, its own included; 0: all before it. Layers below first_window_layer see
    all in any case.
    """

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
    window: int = 0
    first_window_layer: int = 0
    rope: RopeScaling | None = None

    def __post_init__(self) -> None:
        """Sizes that no decoder can have are refused here, whatever the source."""
        for name in ("vocab_size", "hidden", "ffn", "num_layers", "num_heads", "num_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise EngineError(f"the model's {name} is {getattr(self, name)}; it must be at least 1")
            if getattr(self, name) > _MOST:
                raise EngineError(f"the model's {name} is {getattr(self, name)}; no tensor is that large")
        if self.num_layers > _MOST_LAYERS:
            raise EngineError(f"the model has {self.num_layers} layers; at most {_MOST_LAYERS} make sense")
        if not 1 <= self.max_positions <= _MOST_POSITIONS:
            raise EngineError(f"the model has {self.max_positions} positions; 1 to {_MOST_POSITIONS} are possible")
        if not 1 < self.rope_theta < math.inf:
            raise EngineError(f"rope_theta {self.rope_theta} makes no frequencies; it must be above 1")
        if not 0 <= self.norm_eps < math.inf or self.window < 0:
            raise EngineError(f"norm_eps {self.norm_eps} and a window of {self.window} must not be below zero")
        if self.num_heads % self.num_kv_heads:
            raise EngineError(f"{self.num_heads} query heads cannot share {self.num_kv_heads} key heads evenly")
        if self.head_dim % 2:
            raise EngineError(f"head size {self.head_dim} is odd; rotary positions need an even one")


_FAMILIES = {"llama": (False, False), "mistral": (False, False), "qwen2": (True, False), "qwen3": (False, True)}


def from_hugging_face(config: Mapping[str, Any]) -> DecoderConfig:
    """From a config.json. EngineError names the field that this engine cannot honour."""
    family = config.get("model_type")
    if not isinstance(family, str) or family not in _FAMILIES:
        raise EngineError(f"model_type {family!r} is not supported; supported: {', '.join(_FAMILIES)}")
    qkv_bias, qk_norm = _FAMILIES[family]
    for field in ("attention_bias", "mlp_bias"):
        if config.get(field) and not (family == "qwen2" and field == "attention_bias"):
            raise EngineError(f"{family} with {field}=true is not supported; only models without")
    if config.get("hidden_act", "silu") != "silu":
        raise EngineError(f"hidden_act {config['hidden_act']!r} is not supported; only silu")
    heads, hidden = _whole(config, "num_attention_heads"), _whole(config, "hidden_size")
    layers, positions = _whole(config, "num_hidden_layers"), _whole(config, "max_position_embeddings")
    theta, rope = _rope(config, positions)
    if rope is not None and rope.kind == "yarn":
        positions = max(positions, int(rope.original_positions * rope.factor))
    window, first = _window(family, config, layers)
    return DecoderConfig(
        vocab_size=_whole(config, "vocab_size"),
        hidden=hidden,
        ffn=_whole(config, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_whole(config, "num_key_value_heads", heads),
        head_dim=_whole(config, "head_dim", 128 if family == "qwen3" else hidden // max(1, heads)),
        max_positions=positions,
        norm_eps=_number(config, "rms_norm_eps", 1e-6),
        rope_theta=theta,
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
        window=0 if window >= positions else window,
        first_window_layer=0 if window >= positions else first,
        rope=rope,
    )


def _number(config: Mapping[str, Any], field: str, default: float | None = None) -> float:
    value = config.get(field)
    if value is None:
        value = default
    if value is None:
        raise EngineError(f"the model's config lacks {field}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EngineError(f"the model's config has {field} = {value!r}; a number is expected")
    if not abs(value) <= _LARGEST:
        raise EngineError(
            f"the model's config has {field} = {str(value)[:20]}; a number that a float can be is expected"
        )
    return float(value)


def _whole(config: Mapping[str, Any], field: str, default: int | None = None) -> int:
    value = _number(config, field, default)
    if value != int(value):
        raise EngineError(f"the model's config has {field} = {value}; a whole number is expected")
    return int(value)


def _window(family: str, config: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """(window, first layer that has it); (0, 0) without."""
    if family == "llama" or config.get("sliding_window") is None:
        return 0, 0
    kinds = config.get("layer_types")
    if kinds is not None and not (isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)):
        raise EngineError(f"layer_types {str(kinds)[:80]} are not a list of names")
    if family == "mistral":
        if kinds and set(kinds) != {"sliding_attention"}:
            raise EngineError(f"mistral with layer_types {sorted(set(kinds))} is not supported; only sliding_attention")
        return _whole(config, "sliding_window"), 0
    if not config.get("use_sliding_window", False):
        return 0, 0
    first = min(layers, _whole(config, "max_window_layers", 28))
    if kinds:
        first = kinds.index("sliding_attention") if "sliding_attention" in kinds else layers
        wanted = ["full_attention"] * first + ["sliding_attention"] * (layers - first)
        if list(kinds) != wanted:
            raise EngineError(
                "layer_types must be full_attention for the first layers and sliding_attention for the rest; "
                f"other orders are not supported, here {list(kinds)}"
            )
    return (_whole(config, "sliding_window"), first) if first < layers else (0, 0)


def _rope(config: Mapping[str, Any], positions: int) -> tuple[float, RopeScaling | None]:
    """Theta and scaling, from the old spelling (rope_theta, rope_scaling) or the new one (rope_parameters)."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise EngineError(f"rope parameters {rope!r} are not a table of names and values")
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise EngineError("rope_parameters by layer type are not supported; only one set for all layers")
    kind = str(rope.get("rope_type", rope.get("type", "default")))
    theta = _number(rope, "rope_theta", _number(config, "rope_theta", 10_000.0))
    if rope.get("partial_rotary_factor", config.get("partial_rotary_factor") or 1.0) != 1.0:
        raise EngineError("partial_rotary_factor other than 1 is not supported")
    if kind == "default":
        return theta, None
    if kind not in ("linear", "llama3", "yarn"):
        raise EngineError(f"rope scaling {kind!r} is not supported; supported: default, linear, llama3, yarn")
    # A top-level value, where there is one, is the trained length (Phi's way); else the rope table's own.
    original = _whole(
        config, "original_max_position_embeddings", _whole(rope, "original_max_position_embeddings", positions)
    )
    # YaRN without a factor: what it takes to reach the config's positions.
    factor = _number(rope, "factor", positions / max(1, original) if kind == "yarn" else None)
    if factor <= 0 or original < 1:
        raise EngineError(f"rope scaling {kind} with factor {factor} over {original} positions makes no sense")
    if kind == "linear":
        return theta, RopeScaling("linear", factor)
    if kind == "llama3":
        low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
        if not 0 < low < high:
            raise EngineError(f"rope scaling llama3 needs 0 < low_freq_factor < high_freq_factor, not {low} and {high}")
        return theta, RopeScaling("llama3", factor, original, low_freq_factor=low, high_freq_factor=high)
    return theta, RopeScaling(
        "yarn",
        factor,
        original,
        attention_factor=_attention_factor(rope, factor),
        beta_fast=_number(rope, "beta_fast", 0) or 32.0,
        beta_slow=_number(rope, "beta_slow", 0) or 1.0,
        truncate=bool(rope.get("truncate", True)),
    )


def _attention_factor(rope: Mapping[str, Any], factor: float) -> float:
    """YaRN's temperature on the logits, as a factor of cos and sin (arXiv 2309.00071, section 3.4)."""
    if rope.get("attention_factor") is not None:
        return _number(rope, "attention_factor")
    over, under = _number(rope, "mscale", 0), _number(rope, "mscale_all_dim", 0)
    if over and under:
        return yarn_mscale(factor, over) / yarn_mscale(factor, under)
    return yarn_mscale(factor)


def yarn_mscale(factor: float, weight: float = 1.0) -> float:
    """0.1 weight ln(factor) + 1; 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def tiny(vocab_size: int) -> DecoderConfig:
    """A few layers, enough to exercise every part: grouped heads, several layers, a tied head."""
    return DecoderConfig(
        vocab_size=vocab_size, hidden=64, ffn=176, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16,
        max_positions=2048,
    )  # fmt: skip
