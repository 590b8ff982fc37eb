"""A GGUF file as tensors by their Hugging Face names.

The one idea: tensors are renamed, dequantised to float32 and, where the file keeps rotated pairs, put into our order,
each when it is asked for. It must not know the decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.config_gguf import from_gguf
from benchlab_engine.model.weights_files import LazyTensors, Reader

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_ROPE = "rope_freqs.weight"


def read_gguf(path: Path) -> tuple[DecoderConfig, LazyTensors, dict[str, Any]]:
    """Config, tensors and metadata. EngineError names the tensor or key that cannot be honoured."""
    from gguf import GGUFReader

    try:
        reader = _plain_reader(GGUFReader)(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        named = {str(tensor.name): tensor for tensor in reader.tensors}
        for tensor in named.values():
            _check_type(path, tensor)
        factors = named.pop(_ROPE, None)
        config = from_gguf(
            metadata, frozenset(named), () if factors is None else _dequantised(path, factors).flatten().tolist()
        )
        shapes: dict[str, tuple[int, ...]] = {}
        readers: dict[str, Reader] = {}
        permuted = metadata["general.architecture"] == "llama"
        for tensor in named.values():
            name = _hugging_face_name(str(tensor.name))
            kind = str(tensor.name).split(".")[-2]
            heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}.get(kind, 0) if permuted else 0
            shapes[name] = tuple(int(size) for size in reversed(tensor.shape.tolist()))
            readers[name] = _reader(path, tensor, heads)
    except (ValueError, KeyError, IndexError, OSError, NotImplementedError, TypeError, OverflowError) as error:
        raise EngineError(
            f"{path} cannot be read as GGUF ({type(error).__name__}: {error}); is the file whole? fetch it again"
        ) from error
    return config, LazyTensors(shapes, readers), metadata


def _check_type(path: Path, tensor: Any) -> None:
    kind = tensor.tensor_type.name
    if kind not in TYPES:
        raise EngineError(f"{path}: {tensor.name} has GGUF type {kind}; supported: {', '.join(TYPES)}")


def _dequantised(path: Path, tensor: Any) -> Tensor:
    import numpy as np
    from gguf.quants import dequantize

    try:
        return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
    except (ValueError, IndexError, NotImplementedError, TypeError) as error:
        raise EngineError(f"{path}: {tensor.name} cannot be read: {type(error).__name__}: {error}") from error


def _reader(path: Path, tensor: Any, heads: int) -> Callable[[], Tensor]:
    def read() -> Tensor:
        found = _dequantised(path, tensor)
        return _unpermuted(found, heads) if heads else found

    return read


def _unpermuted(weight: Tensor, heads: int) -> Tensor:
    """llama-architecture GGUFs keep the rows of q and k as rotated pairs; ours rotates halves. Also for a bias.

    Rows of one head, file order: 0, n/2, 1, n/2+1, ...   ours: 0, 1, ..., n/2, n/2+1, ...
    """
    half = weight.shape[0] // heads // 2
    return weight.view(heads, half, 2, -1).transpose(1, 2).reshape(weight.shape)


def _hugging_face_name(name: str) -> str:
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in _TOP:
        return f"{_TOP[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER:
        return f"model.layers.{parts[1]}.{_LAYER[parts[2]]}.{parts[3]}"
    raise EngineError(f"the GGUF file has a tensor that a Llama decoder does not: {name}")


def _plain_reader(reader: Any) -> Any:
    """The reader over a plain array: it slices its file a million times, and slicing a memmap object is slow."""
    import numpy as np

    def get(self: Any) -> Any:
        return self.__dict__["data"]

    def put(self: Any, value: Any) -> None:
        self.__dict__["data"] = value.view(np.ndarray)

    return type("PlainReader", (reader,), {"data": property(get, put)})
