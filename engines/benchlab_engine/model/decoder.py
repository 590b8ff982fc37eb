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
from benchlab_engine.model.layers import Layer, make_layer, rotary_tables, rotate
from benchlab_engine.model.linear import DenseLinear, Linear, MakeLinear, dense, size, total
from benchlab_engine.model.weights import check


class Decoder:
    """Weights in dtype, ready to run."""

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Mapping[str, Tensor],
        dtype: torch.dtype,
        make: MakeLinear = dense,
        device: torch.device | str = "cpu",
    ) -> None:
        """make decides how the layers' products are stored; embedding, norms and head stay in dtype."""
        check(config, tensors)
        self.config = config
        self.dtype = dtype
        self.embedding = tensors["model.embed_tokens.weight"].to(device, dtype).contiguous()
        self.layers = tuple(
            make_layer(config, tensors, index, dtype, make, device) for index in range(config.num_layers)
        )
        self.norm = tensors["model.norm.weight"].to(device, dtype)
        head = self.embedding if config.tied else tensors["lm_head.weight"].to(device, dtype).contiguous()
        self.head: Linear = DenseLinear(head, keep=config.tied)
        self._cos, self._sin = (table.to(device) for table in rotary_tables(config, config.max_positions, dtype))

    def parts(self) -> dict[str, int]:
        """Bytes of the weights by kind (linear.PARTS), the tied head counted once."""
        linears = [linear for layer in self.layers for linear in layer.linears]
        found = total(linears if self.config.tied else [*linears, self.head])
        norms = [norm for layer in self.layers for norm in layer.norms]
        found["high_precision"] += size(self.embedding, self.norm, *norms)
        return found

    @property
    def num_bytes(self) -> int:
        """Memory of the weights, the tied head counted once."""
        return sum(self.parts().values())

    def forward(self, batch: Batch, kv: PagedKv) -> Tensor:
        """Compute the batch's positions into kv; logits [len(batch.last), vocab] in float32."""
        x = self.embedding[batch.tokens]
        cos, sin = self._cos[batch.positions].unsqueeze(1), self._sin[batch.positions].unsqueeze(1)
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer, self._norm(x, layer.input_norm), batch, kv, cos, sin)
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        return self.head(self._norm(x[batch.last], self.norm)).float()

    def _attention(
        self, index: int, layer: Layer, x: Tensor, batch: Batch, kv: PagedKv, cos: Tensor, sin: Tensor
    ) -> Tensor:
        config = self.config
        joined = layer.qkv(x).view(len(x), -1, config.head_dim)
        queries, keys, values = torch.split(joined, [config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = self._norm(queries, layer.q_norm), self._norm(keys, layer.k_norm)
        queries = rotate(queries, cos, sin)
        kv.write(index, batch.slots, rotate(keys, cos, sin), values)
        found = [attend(kv, index, group, queries[group.start : group.end]) for group in batch.groups]
        whole = found[0] if len(found) == 1 else torch.cat(found)
        return layer.output(whole.reshape(len(x), -1))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)
