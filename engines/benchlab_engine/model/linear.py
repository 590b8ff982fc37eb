"""A matrix that inputs are multiplied with, however it is stored.

The one idea: the decoder asks for a product and for the bytes behind it; whether the weights are floats, packed
integers or something a checkpoint brought along is the business of the object that holds them. It must not know layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

_THIN_ROWS = 16
_PACKED_FOR_ROWS = 32  # of the layouts tried for 1 to 512 rows, this one was the fastest or equal at every count

PARTS = ("packed", "scales", "high_precision")


class Linear(Protocol):
    """Called with x [rows, in_features]; gives [rows, out_features] in the dtype of x, its bias added."""

    in_features: int
    out_features: int

    def __call__(self, x: Tensor) -> Tensor: ...

    @property
    def kind(self) -> str:
        """How it is stored and multiplied, in a few words for the ledger."""
        ...

    @property
    def num_bytes(self) -> int:
        """Memory of all that is kept."""
        ...

    def parts(self) -> dict[str, int]:
        """The same bytes by kind: packed (integers for weights), scales (and zeros, indices), high_precision."""
        ...

    def to(self, device: torch.device | str) -> Linear:
        """The same matrix on another device."""
        ...


MakeLinear = Callable[[str, Tensor, Tensor | None], Linear]
"""How a joined weight [out, in] with its bias [out] becomes a Linear; the name is for messages."""


def size(*tensors: Tensor | None) -> int:
    """Bytes of the tensors that are there."""
    return sum(each.numel() * each.element_size() for each in tensors if each is not None)


def total(linears: Sequence[Linear]) -> dict[str, int]:
    """The parts of several, added."""
    found = dict.fromkeys(PARTS, 0)
    for linear in linears:
        for kind, count in linear.parts().items():
            found[kind] += count
    return found


class DenseLinear:
    """weight: [out, in] floats; bias: [out] or None.

    On a CPU with oneDNN the weights are kept in that library's own blocked layout and nowhere else: products are then
    about twice as fast as through the general matrix library, at one row and at 512. keep: the plain layout stays,
    because somebody else reads it too (a tied embedding), and no second copy is made.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, keep: bool = False) -> None:
        self.bias = bias
        self.out_features, self.in_features = weight.shape
        self._on_cpu = weight.device.type == "cpu"
        self._fast = self._on_cpu and _packable(weight.dtype)
        self._keep = keep
        self._stored = _pack(weight) if self._fast and not keep else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._fast:
            found: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._stored, self.bias, "none", [], "")
            return found
        if self._on_cpu:
            return project(x, self._stored, self.bias)
        return F.linear(x, self._stored, self.bias)

    @property
    def weight(self) -> Tensor:
        """The floats in their plain layout; a copy where they are kept otherwise."""
        return self._stored.to_dense() if self._stored.is_mkldnn else self._stored

    @property
    def kind(self) -> str:
        """Floats of one dtype."""
        return f"dense {str(self._stored.dtype).removeprefix('torch.')}"

    @property
    def num_bytes(self) -> int:
        """Memory of weight and bias."""
        if self._stored.is_mkldnn:  # the blocked layout pads
            return int(torch.ops.mkldnn._nbytes(self._stored)) + size(self.bias)
        return size(self._stored, self.bias)

    def parts(self) -> dict[str, int]:
        """All of it is high precision."""
        return {"packed": 0, "scales": 0, "high_precision": self.num_bytes}

    def to(self, device: torch.device | str) -> DenseLinear:
        """The same matrix on another device."""
        bias = None if self.bias is None else self.bias.to(device)
        return DenseLinear(self.weight.to(device), bias, keep=self._keep)


def _pack(weight: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)
    return found


@functools.cache
def _packable(dtype: torch.dtype) -> bool:
    """Whether this build and this CPU multiply blocked weights of dtype: tried once, with a small product."""
    if dtype not in {torch.float32, torch.bfloat16} or not torch._C._has_mkldnn:
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False  # it would be emulated
        with torch.inference_mode():
            weight = torch.ones(16, 16, dtype=dtype)
            packed = _pack(weight)
            found = torch.ops.mkldnn._linear_pointwise.default(weight[:1], packed, None, "none", [], "")
            return bool((found == 16).all()) and int(torch.ops.mkldnn._nbytes(packed)) > 0
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


class JoinedLinear:
    """Several Linears with one input, their outputs side by side: for parts that cannot lie in one matrix."""

    def __init__(self, linears: Sequence[Linear]) -> None:
        self.linears = tuple(linears)
        self.in_features = self.linears[0].in_features
        self.out_features = sum(linear.out_features for linear in self.linears)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([linear(x) for linear in self.linears], dim=-1)

    @property
    def kind(self) -> str:
        """Their kinds."""
        return " + ".join(sorted({linear.kind for linear in self.linears}))

    @property
    def num_bytes(self) -> int:
        """Memory of all of them."""
        return sum(linear.num_bytes for linear in self.linears)

    def parts(self) -> dict[str, int]:
        """Their parts, added."""
        return total(self.linears)

    def to(self, device: torch.device | str) -> JoinedLinear:
        """The same matrices on another device."""
        return JoinedLinear([linear.to(device) for linear in self.linears])


def dense(name: str, weight: Tensor, bias: Tensor | None) -> Linear:
    """The MakeLinear that keeps the weights as they are."""
    return DenseLinear(weight, bias)


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [rows, in] times weight [out, in], on a CPU.

    Between 2 and 16 rows, CPU matrix libraries are up to twice as fast with the weight as the left operand: they then
    stream it once instead of packing it for a product this thin.
    """
    if not 1 < len(x) <= _THIN_ROWS:
        return F.linear(x, weight, bias)
    found = torch.mm(weight, x.t()).t()
    return (found if bias is None else found + bias).contiguous()
