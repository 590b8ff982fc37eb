"""The parts of a decoder: rotary tables, one layer's weights, norm.

The one idea: weights that are multiplied with the same input lie in one matrix, so that a layer is four products. It
must not know the cache or plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.model.config import DecoderConfig

_THIN_ROWS = 16


@dataclass(frozen=True, slots=True)
class Layer:
    """qkv: [(heads + 2 kv_heads) x head_dim, hidden]; gate_up: [2 ffn, hidden]; q_norm, k_norm: [head_dim] or None."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


def make_layer(config: DecoderConfig, tensors: Mapping[str, Tensor], index: int, dtype: torch.dtype) -> Layer:
    """One layer out of named tensors."""

    def get(name: str) -> Tensor:
        return tensors[f"model.layers.{index}.{name}"].to(dtype)

    def join(kind: str, names: tuple[str, ...]) -> Tensor:
        return torch.cat([get(f"{name}.{kind}") for name in names]).contiguous()

    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return Layer(
        input_norm=get("input_layernorm.weight"),
        qkv=join("weight", qkv),
        qkv_bias=join("bias", qkv) if config.qkv_bias else None,
        q_norm=get("self_attn.q_norm.weight") if config.qk_norm else None,
        k_norm=get("self_attn.k_norm.weight") if config.qk_norm else None,
        output=get("self_attn.o_proj.weight").contiguous(),
        post_norm=get("post_attention_layernorm.weight"),
        gate_up=join("weight", ("mlp.gate_proj", "mlp.up_proj")),
        down=get("mlp.down_proj.weight").contiguous(),
    )


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [rows, in] times weight [out, in].

    Between 2 and 16 rows, CPU matrix libraries are up to twice as fast with the weight as the left operand: they then
    stream it once instead of packing it for a product this thin.
    """
    if not 1 < len(x) <= _THIN_ROWS:
        return F.linear(x, weight, bias)
    found = torch.mm(weight, x.t()).t()
    return (found if bias is None else found + bias).contiguous()


def rotary_tables(config: DecoderConfig, num_positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of every position: [positions, head_dim / 2]."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), config.rope_theta**-exponents)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each head's halves against each other. x: [tokens, heads, dim]; cos, sin: [tokens, 1, dim / 2]."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
