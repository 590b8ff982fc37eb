"""Tensors by their Hugging Face names, from whatever file holds them.

The one idea: three sources (safetensors, GGUF, a seed) give the same mapping of names to float tensors, so that the
decoder is built in one way; here is what a decoder needs of them. It must not know the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.weights_files import shape_of
from benchlab_engine.model.weights_gguf import read_gguf
from benchlab_engine.model.weights_safetensors import read_directory

__all__ = ["check", "random", "read_directory", "read_gguf", "shapes"]

# Old checkpoints keep a buffer that is computed from the config.
_UNUSED = (".rotary_emb.inv_freq",)


def random(config: DecoderConfig, seed: int) -> dict[str, Tensor]:
    """Weights of a decoder drawn by seed: small normal numbers, norms near one."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: 1.0 + 0.1 * torch.randn(shape, generator=generator)
        if name.endswith("norm.weight")
        else torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in shapes(config).items()
    }


def shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a decoder of this shape needs."""
    hidden, ffn = config.hidden, config.ffn
    q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    wanted: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for index in range(config.num_layers):
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "self_attn.q_proj.weight": (q_rows, hidden),
            "self_attn.k_proj.weight": (kv_rows, hidden),
            "self_attn.v_proj.weight": (kv_rows, hidden),
            "self_attn.o_proj.weight": (hidden, q_rows),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (ffn, hidden),
            "mlp.up_proj.weight": (ffn, hidden),
            "mlp.down_proj.weight": (hidden, ffn),
        }
        if config.qkv_bias:
            layer |= {f"self_attn.{x}_proj.bias": (q_rows if x == "q" else kv_rows,) for x in "qkv"}
        if config.qk_norm:
            layer |= {f"self_attn.{x}_norm.weight": (config.head_dim,) for x in "qk"}
        wanted |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    wanted["model.norm.weight"] = (hidden,)
    if not config.tied:
        wanted["lm_head.weight"] = (config.vocab_size, hidden)
    return wanted


def check(config: DecoderConfig, tensors: Mapping[str, Tensor]) -> None:
    """EngineError unless every needed tensor is there in its shape, and no other that a layer would have to use."""
    wanted = shapes(config)
    for name, shape in wanted.items():
        if name not in tensors:
            raise EngineError(f"the weights lack {name}")
        if shape_of(tensors, name) != shape:
            raise EngineError(f"{name} has shape {shape_of(tensors, name)}, the config asks for {shape}")
    for name in tensors:
        if name.startswith("model.layers.") and name not in wanted and not name.endswith(_UNUSED):
            raise EngineError(f"the weights hold {name}, which a decoder of this config has no place for")
