"""Eight-bit weights: one scale for each output channel, rounded symmetrically.

The one idea: a product with 8-bit weights is exact in 32-bit integers if the inputs are integers too. W8A8 rounds each
input row to 8 bits; the weight-only form splits a row of 16-bit integers into two 8-bit rows, which is finer than
bfloat16 next to the row's largest value, and multiplies both at once. It must not know layers.
"""

from __future__ import annotations

import functools
import sys
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.linear import DenseLinear, Linear, size

_SMALLEST = 1e-30
_CUDA_ROWS = 17  # torch._int_mm on CUDA asks for more than 16 rows


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [out, in] -> levels int8 in -127..127 and scales [out] float32; a row of zeros has scale 1."""
    floats = weight.float()
    largest = floats.abs().amax(dim=1)
    scales = torch.where(largest > _SMALLEST, largest / 127, torch.ones_like(largest))
    return (floats / scales[:, None]).round_().clamp_(-127, 127).to(torch.int8), scales


class _Stored:
    """Levels [out, in] int8, either plain or in oneDNN's layout (fast); scales [out] float32 (fast: over input_top)."""

    input_top = 1

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, fast: bool | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        levels, self.scales = rounded(weight)
        self._packed_bytes = levels.numel()
        self.fast = (weight.device.type == "cpu" and integer_products()) if fast is None else fast
        self._zeros: Tensor | None = None
        if self.fast:
            levels, self.scales = _pack(levels), self.scales / self.input_top
            self._zeros = torch.zeros(self.out_features, dtype=torch.int32)
        self.levels = levels

    @property
    def num_bytes(self) -> int:
        """Memory of levels, scales and bias."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """One byte a weight; scales (and the zeros that the product asks for); the bias."""
        return {
            "packed": self._packed_bytes,
            "scales": size(self.scales, self._zeros),
            "high_precision": size(self.bias),
        }

    def to(self, device: torch.device | str) -> Self:
        """The same on another device; EngineError where the layout is the device's own."""
        if torch.device(device).type != self.scales.device.type and self.fast:
            raise EngineError(f"these weights are laid out for {self.scales.device.type}; build them on {device}")
        self.levels, self.scales = self.levels.to(device), self.scales.to(device)
        self.bias = None if self.bias is None else self.bias.to(device)
        return self

    def _whole(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x as integers on a grid of its own for each row, moved to be positive; and each row's largest, [rows, 1]."""
        x = x.float()
        largest = x.abs().amax(dim=1, keepdim=True).clamp_min_(_SMALLEST)
        return (x * (self.input_top / largest)).add_(_middle(self.input_top)).to(torch.int32), largest

    def _exact(self, rows: Tensor) -> Tensor:
        """rows: [rows, in] uint8, 128 meaning zero. The product with the levels, summed exactly, times scales."""
        found: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            rows, 1.0, 128, self.levels, self.scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return found

    def _finish(self, found: Tensor, dtype: torch.dtype) -> Tensor:
        found = found.to(dtype)
        return found if self.bias is None else found.add_(self.bias)


class W8A8Linear(_Stored):
    """Inputs are rounded too, each row by its own largest value: the product is one of integers."""

    input_top = 127

    @property
    def kind(self) -> str:
        """With the way of multiplying."""
        return "w8a8, exact integer products" if self.fast or self.levels.is_cuda else "w8a8, integers as float32"

    def __call__(self, x: Tensor) -> Tensor:
        if self.fast:
            rows, largest = self._whole(x)
            return self._finish(self._exact(rows.to(torch.uint8)).mul_(largest), x.dtype)
        step = x.abs().amax(dim=1, keepdim=True).float().clamp_min_(_SMALLEST) / 127
        whole = (x / step).round_()
        if x.is_cuda and self.in_features % 8 == 0 and self.out_features % 8 == 0:
            padded = F.pad(whole, (0, 0, 0, max(0, _CUDA_ROWS - len(x)))).to(torch.int8)
            found = torch._int_mm(padded, self.levels.t())[: len(x)].float()
        else:
            # Sums of products of integers below 2^24 are exact in float32; above, the rounding is that of float32.
            found = F.linear(whole, self.levels.float())
        return self._finish(found.mul_(self.scales).mul_(step), x.dtype)


class Int8Linear(_Stored):
    """Only the weights are rounded. With integer products, inputs are 16-bit fixed point; else they stay floats."""

    input_top = 127 * 256

    @property
    def kind(self) -> str:
        """With the way of multiplying."""
        return "int8, inputs in 16-bit fixed point" if self.fast else "int8, unpacked for each product"

    def __call__(self, x: Tensor) -> Tensor:
        if not self.fast and x.dtype == torch.float16:  # sums of unscaled levels would leave its range
            return self._finish(F.linear(x, self.levels * self.scales[:, None].to(x.dtype)), x.dtype)
        if not self.fast:
            return self._finish(F.linear(x, self.levels.to(x.dtype)).mul_(self.scales), x.dtype)
        whole, largest = self._whole(x)
        # The two low bytes of each integer: 256 x (high - 128) + (low - 128) is what was rounded.
        rows = whole.view(torch.uint8).view(len(x), -1, 4)[:, :, :2].permute(2, 0, 1).reshape(2 * len(x), -1)
        low, high = self._exact(rows).chunk(2)
        return self._finish(low.add_(high, alpha=256).mul_(largest), x.dtype)


def int8_head(name: str, weight: Tensor, bias: Tensor | None) -> Linear:
    """A MakeLinear. The same rounded weights everywhere; kept as floats where integers would only be unpacked."""
    if weight.device.type == "cpu" and integer_products():
        return Int8Linear(weight, bias)
    levels, scales = rounded(weight)
    return DenseLinear((levels * scales[:, None]).to(weight.dtype), bias)


def _middle(input_top: int) -> float:
    """What zero becomes: 128 in each byte; a half more, so that cutting the fraction off rounds to the nearest."""
    return 128.5 if input_top < 256 else 128 * 256 + 128.5


def _pack(levels: Tensor) -> Tensor:
    found: Tensor = torch.ops.onednn.qlinear_prepack.default(levels.contiguous(), None)
    return found


@functools.cache
def integer_products() -> bool:
    """Whether this build and CPU multiply 8-bit integers exactly: tried once, with the largest sums that can come.

    CPUs without VNNI add pairs in 16 bits, where 255 x 127 x 2 does not fit.
    """
    if sys.byteorder != "little":
        return False
    try:
        with torch.inference_mode():
            levels = torch.full((32, 256), 127, dtype=torch.int8)
            levels[::2] = -127
            rows = torch.full((3, 256), 255, dtype=torch.uint8)
            rows[1] = 0
            rows[2, ::2] = 0
            found = torch.ops.onednn.qlinear_pointwise.default(
                rows, 1.0, 128, _pack(levels), torch.ones(32), torch.zeros(32, dtype=torch.int32), None, 1.0, 0,
                torch.float32, "none", [], "",
            )  # fmt: skip
            wanted = (rows.double() - 128) @ levels.double().t()
            return bool((found.double() == wanted).all())
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
