"""Four-bit groups in the layout that torch's own kernels read, on a CPU and on CUDA.

The one idea: the kernel takes bfloat16 and gives bfloat16, and keeps scales as bfloat16; that is far finer than four
bits, so it serves models in float32 as well. Whether it works here is tried once, not assumed. It must not know layers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.linear import size

if TYPE_CHECKING:
    from benchlab_engine.model.quant_groups import Groups

_DTYPES = (torch.bfloat16, torch.float32)
_TILES = 8  # CUDA: inner k tiles, 16 columns each


def serves(device: torch.device, dtype: torch.dtype, shape: tuple[int, ...], group: int) -> bool:
    """Whether the kernel takes a matrix of shape (out, in) on this device."""
    out_features, in_features = shape
    if group not in (32, 64, 128, 256) or dtype not in _DTYPES:
        return False
    if device.type == "cpu":
        return out_features % 16 == 0 and in_features % 2 == 0 and _works("cpu")
    if device.type == "cuda":
        fits = out_features % 8 == 0 and in_features % (_TILES * 16) == 0
        return fits and _works("cuda")
    return False


class Int4Linear:
    """A weight is (level - 8) x scale + middle, as the kernel wants it; scales and middles: [groups, out, 2]."""

    def __init__(self, groups: Groups, bias: Tensor | None = None, order: Tensor | None = None) -> None:
        self.out_features, self.in_features = groups.levels.shape
        self.group = groups.size
        middle = groups.minimum() + 8 * groups.scales.float()
        both = torch.stack((groups.scales.float().t(), middle.t()), dim=-1)
        self.scales = both.to(torch.bfloat16).contiguous()
        self.packed = _pack(groups.levels)
        self.bias = bias
        self.order = order

    def __call__(self, x: Tensor) -> Tensor:
        if self.order is not None:
            x = x.index_select(1, self.order)
        found = _multiply(x.to(torch.bfloat16), self.packed, self.group, self.scales).to(x.dtype)
        return found if self.bias is None else found + self.bias

    @property
    def kind(self) -> str:
        """With the way of multiplying."""
        return f"int4 in groups of {self.group}, torch's kernel in bfloat16"

    @property
    def num_bytes(self) -> int:
        """Memory of all that is kept."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """Packed levels; scales with middles and the order; the bias."""
        return {
            "packed": size(self.packed),
            "scales": size(self.scales, self.order),
            "high_precision": size(self.bias),
        }

    def to(self, device: torch.device | str) -> Int4Linear:
        """The layout is the device's own: EngineError for another kind."""
        if torch.device(device).type != self.packed.device.type:
            raise EngineError(f"these weights are laid out for {self.packed.device.type}; build them on {device}")
        return self


def _pack(levels: Tensor) -> Tensor:
    found: Tensor
    if levels.is_cuda:
        pairs = (levels[:, ::2] << 4) | levels[:, 1::2]
        found = torch.ops.aten._convert_weight_to_int4pack(pairs.contiguous(), _TILES)
    else:
        found = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.to(torch.int32), 1)
    return found


def _multiply(x: Tensor, packed: Tensor, group: int, scales: Tensor) -> Tensor:
    found: Tensor
    if x.is_cuda:
        found = torch.ops.aten._weight_int4pack_mm(x.contiguous(), packed, group, scales)
    else:
        found = torch.ops.aten._weight_int4pack_mm_for_cpu(x.contiguous(), packed, group, scales)
    return found


@functools.cache
def _works(device: str) -> bool:
    """A small product, compared with plain arithmetic."""
    from benchlab_engine.model.quant_groups import rounded

    try:
        with torch.inference_mode():
            generator = torch.Generator().manual_seed(0)
            weight = torch.randn(64, 256, generator=generator).to(device)
            x = torch.randn(3, 256, generator=generator).to(device, torch.bfloat16)
            groups = rounded(weight, 4, 32, False, torch.bfloat16)
            wanted = x.float() @ groups.floats().t()
            return bool((Int4Linear(groups)(x).float() - wanted).abs().max() < 0.02 * wanted.abs().max())
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
