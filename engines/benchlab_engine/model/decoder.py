"""The forward pass of a Llama-family decoder.

The one idea: tokens of all requests go through each layer as one matrix; only attention looks at who is who. It must
not know sampling or scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.model.attention import attend
from benchlab_engine.model.batch import Batch
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.layers import Layer, make_layer, project, rotary_tables, rotate
from benchlab_engine.model.weights import check


class Decoder:
    """Weights in dtype, ready to run."""

    def __init__(self, config: DecoderConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        check(config, tensors)
        self.config = config
        self.dtype = dtype
        self.embedding = tensors["model.embed_tokens.weight"].to(dtype).contiguous()
        self.layers = tuple(make_layer(config, tensors, index, dtype) for index in range(config.num_layers))
        self.norm = tensors["model.norm.weight"].to(dtype)
        self.head = self.embedding if config.tied else tensors["lm_head.weight"].to(dtype).contiguous()
        self._cos, self._sin = rotary_tables(config, config.max_positions, dtype)

    @property
    def num_bytes(self) -> int:
        """Memory of the weights, the tied head counted once."""
        parts = [self.embedding, self.norm, *([] if self.config.tied else [self.head])]
        for layer in self.layers:
            parts += [layer.input_norm, layer.qkv, layer.output, layer.post_norm, layer.gate_up, layer.down]
            parts += [part for part in (layer.qkv_bias, layer.q_norm, layer.k_norm) if part is not None]
        return sum(part.numel() * part.element_size() for part in parts)

    def forward(self, batch: Batch, kv: PagedKv) -> Tensor:
        """Compute the batch's positions into kv; logits [len(batch.last), vocab] in float32."""
        x = self.embedding[batch.tokens]
        cos, sin = self._cos[batch.positions].unsqueeze(1), self._sin[batch.positions].unsqueeze(1)
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer, self._norm(x, layer.input_norm), batch, kv, cos, sin)
            gate, up = project(self._norm(x, layer.post_norm), layer.gate_up).chunk(2, dim=-1)
            x = x + project(F.silu(gate) * up, layer.down)
        return project(self._norm(x[batch.last], self.norm), self.head).float()

    def _attention(
        self, index: int, layer: Layer, x: Tensor, batch: Batch, kv: PagedKv, cos: Tensor, sin: Tensor
    ) -> Tensor:
        config = self.config
        joined = project(x, layer.qkv, layer.qkv_bias).view(len(x), -1, config.head_dim)
        queries, keys, values = torch.split(joined, [config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = self._norm(queries, layer.q_norm), self._norm(keys, layer.k_norm)
        queries = rotate(queries, cos, sin)
        kv.write(index, batch.slots, rotate(keys, cos, sin), values)
        found = [attend(kv, index, group, queries[group.start : group.end]) for group in batch.groups]
        whole = found[0] if len(found) == 1 else torch.cat(found)
        return project(whole.reshape(len(x), -1), layer.output)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)
