"""One layer's weights.

The one idea: weights that are multiplied with the same input lie in one matrix, so that a layer is four products. It
must not know the cache or plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchlab_engine.errors import USAGE, EngineError
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.linear import JoinedLinear, Linear, MakeLinear, dense
from benchlab_engine.model.quant_groups import joined, stored
from benchlab_engine.model.weights_files import packed_of


@dataclass(frozen=True, slots=True)
class Layer:
    """qkv: [(heads + 2 kv_heads) x head_dim, hidden]; gate_up: [2 ffn, hidden]; q_norm, k_norm: [head_dim] or None."""

    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its four products."""
        return (self.qkv, self.output, self.gate_up, self.down)

    @property
    def norms(self) -> tuple[Tensor, ...]:
        """What is not a product."""
        return tuple(each for each in (self.input_norm, self.post_norm, self.q_norm, self.k_norm) if each is not None)


def make_layer(
    config: DecoderConfig,
    tensors: Mapping[str, Tensor],
    index: int,
    dtype: torch.dtype,
    make: MakeLinear = dense,
    device: torch.device | str = "cpu",
) -> Layer:
    """One layer out of named tensors; make decides how its products are stored."""
    prefix = f"model.layers.{index}."

    def get(name: str) -> Tensor:
        return tensors[prefix + name].to(device, dtype)

    def linear(*names: str, bias: bool = False) -> Linear:
        found = [packed_of(tensors, f"{prefix}{name}.weight") for name in names]
        packed = [each for each in found if each is not None]
        if packed and make is not dense:
            raise EngineError(f"{prefix}{names[0]} comes quantised in the checkpoint; --quant none is for such", USAGE)
        whole = joined(packed) if len(packed) == len(names) else None
        if packed and whole is None:
            return JoinedLinear([linear(name, bias=bias) for name in names])
        biases = torch.cat([get(f"{name}.bias") for name in names]) if bias else None
        if whole is not None:
            return stored(whole, biases, dtype, device)
        weight = torch.cat([get(f"{name}.weight") for name in names])
        return make(prefix + "+".join((names[0], *(name.split(".")[-1] for name in names[1:]))), weight, biases)

    return Layer(
        input_norm=get("input_layernorm.weight"),
        qkv=linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", bias=config.qkv_bias),
        q_norm=get("self_attn.q_norm.weight") if config.qk_norm else None,
        k_norm=get("self_attn.k_norm.weight") if config.qk_norm else None,
        output=linear("self_attn.o_proj"),
        post_norm=get("post_attention_layernorm.weight"),
        gate_up=linear("mlp.gate_proj", "mlp.up_proj"),
        down=linear("mlp.down_proj"),
    )
