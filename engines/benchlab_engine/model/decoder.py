"""The forward pass of a Llama-family decoder.

The one idea: tokens of all requests go through each layer as one matrix; only attention looks at who is who. It must
not know sampling or scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.model.attention import Attend, Attention, PlainAttention
from benchlab_engine.model.batch import Batch
from benchlab_engine.model.config import DecoderConfig
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.layers import Layer, make_layer
from benchlab_engine.model.linear import DenseLinear, Linear, MakeLinear, dense, size, total
from benchlab_engine.model.rope import full_tables, rotary_tables, rotate
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
        make_head: MakeLinear | None = None,
    ) -> None:
        """make decides how the layers' products are stored, make_head the head's; embedding and norms stay in dtype.

        Without make_head the head stays in dtype too, and a tied one is the embedding itself.
        """
        check(config, tensors)
        self.config = config
        self.device = torch.device(device)
        self.dtype = dtype
        self.embedding = tensors["model.embed_tokens.weight"].to(device, dtype).contiguous()
        self.layers = tuple(
            make_layer(config, tensors, index, dtype, make, device) for index in range(config.num_layers)
        )
        self.norm = tensors["model.norm.weight"].to(device, dtype)
        head = self.embedding if config.tied else tensors["lm_head.weight"].to(device, dtype).contiguous()
        self.head: Linear = DenseLinear(head, keep=config.tied) if make_head is None else make_head("head", head, None)
        self.head_is_embedding = config.tied and make_head is None
        cos, sin = rotary_tables(config, config.max_positions, dtype)
        self._cos, self._sin = (table.to(device) for table in full_tables(cos, sin))
        self.attention: Attention = PlainAttention()

    def parts(self) -> dict[str, int]:
        """Bytes of the weights by kind (linear.PARTS); a head that is the embedding is counted once."""
        linears = [linear for layer in self.layers for linear in layer.linears]
        found = total(linears if self.head_is_embedding else [*linears, self.head])
        norms = [norm for layer in self.layers for norm in layer.norms]
        found["high_precision"] += size(self.embedding, self.norm, *norms)
        return found

    @property
    def num_bytes(self) -> int:
        """Memory of the weights, the tied head counted once."""
        return sum(self.parts().values())

    def forward(self, batch: Batch, kv: PagedKv) -> Tensor:
        """Compute the batch's positions into kv; logits [len(batch.last), vocab] in float32."""
        device = kv.device
        last = None if len(batch.last) == len(batch.tokens) else batch.last.to(device)
        attend = self.attention.prepare(batch, self.config, kv)
        return self.run(batch.tokens.to(device), batch.positions.to(device), batch.slots.to(device), last, kv, attend)

    def run(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, last: Tensor | None, kv: PagedKv, attend: Attend
    ) -> Tensor:
        """The same with tensors on the device: tokens, positions, slots [rows]; last: the wanted rows, None: all."""
        x = F.embedding(tokens, self.embedding)
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        for index, layer in enumerate(self.layers):
            joined = self._joined(layer, self._norm(x, layer.input_norm), cos, sin)
            kv.write(index, slots, joined[:, self.config.num_heads :])
            if index == len(self.layers) - 1 and last is not None and len(last) == 0:
                break  # nothing is wanted but the cache
            found = attend(index, joined)
            if index == len(self.layers) - 1 and last is not None:
                x, found = x.index_select(0, last), found.index_select(0, last)
            x.add_(layer.output(found))
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x.add_(layer.down(F.silu(gate).mul_(up)))
        if last is not None and len(last) == 0:
            return x.new_empty((0, self.config.vocab_size), dtype=torch.float32)
        return self.head(self._norm(x, self.norm)).float()

    def _joined(self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries, keys and values of the rows: [rows, heads + 2 kv_heads, head_dim], the first two rotated."""
        heads, shared, dim = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        joined = layer.qkv(x).view(len(x), heads + 2 * shared, dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            joined[:, :heads] = self._norm(joined[:, :heads], layer.q_norm)
            joined[:, heads : heads + shared] = self._norm(joined[:, heads : heads + shared], layer.k_norm)
        rotate(joined[:, : heads + shared], cos, sin)
        return joined

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)
