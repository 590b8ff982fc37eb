"""Tensors by their Hugging Face names, from whatever file holds them.

The one idea: three sources (safetensors, GGUF, a seed) give the same mapping of names to float tensors, so that the
decoder is built in one way. It must not know the decoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.config import DecoderConfig, from_gguf, from_hugging_face

_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def read_directory(path: Path) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """A Hugging Face directory: config.json and one or more safetensors files."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config_file = path / "config.json"
    if not config_file.is_file():
        raise EngineError(f"{path} has no config.json; a Hugging Face model directory is expected")
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise EngineError(f"{path} has no .safetensors file")
    try:
        config = from_hugging_face(json.loads(config_file.read_text("utf-8")))
        tensors: dict[str, Tensor] = {}
        for file in files:
            tensors.update(load_file(file))
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        raise EngineError(f"{path} cannot be read as a model: {type(error).__name__}: {error}") from error
    return config, tensors


def read_gguf(path: Path) -> tuple[DecoderConfig, dict[str, Tensor], dict[str, Any]]:
    """A GGUF file, dequantised to float32, and its metadata."""
    import numpy as np
    from gguf import GGUFReader
    from gguf.quants import dequantize

    try:
        reader = _plain_reader(GGUFReader)(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        config = from_gguf(metadata, frozenset(tensor.name for tensor in reader.tensors))
        tensors: dict[str, Tensor] = {}
        for tensor in reader.tensors:
            name = _gguf_name(tensor.name)
            array = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}.get(tensor.name.split(".")[-2])
            tensors[name] = _unpermute(torch.from_numpy(array), heads) if heads else torch.from_numpy(array)
    except (ValueError, KeyError, IndexError, OSError, NotImplementedError, TypeError) as error:
        raise EngineError(
            f"{path} cannot be read as GGUF ({type(error).__name__}: {error}); is the file whole? fetch it again"
        ) from error
    return config, tensors, metadata


def _plain_reader(reader: Any) -> Any:
    """The reader over a plain array: it slices its file a million times, and slicing a memmap object is slow."""
    import numpy as np

    def get(self: Any) -> Any:
        return self.__dict__["data"]

    def put(self: Any, value: Any) -> None:
        self.__dict__["data"] = value.view(np.ndarray)

    return type("PlainReader", (reader,), {"data": property(get, put)})


def _gguf_name(name: str) -> str:
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in _GGUF_TOP:
        return f"{_GGUF_TOP[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _GGUF_LAYER:
        return f"model.layers.{parts[1]}.{_GGUF_LAYER[parts[2]]}.{parts[3]}"
    raise EngineError(f"the GGUF file has a tensor that a Llama decoder does not: {name}")


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    """llama-architecture GGUFs keep the rows of q and k as rotated pairs; ours rotates halves.

    Rows of one head, file order: 0, n/2, 1, n/2+1, ...   ours: 0, 1, ..., n/2, n/2+1, ...
    """
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


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
    """EngineError unless every needed tensor is there in its shape."""
    for name, shape in shapes(config).items():
        if name not in tensors:
            raise EngineError(f"the weights lack {name}")
        if tuple(tensors[name].shape) != shape:
            raise EngineError(f"{name} has shape {tuple(tensors[name].shape)}, the config asks for {shape}")
