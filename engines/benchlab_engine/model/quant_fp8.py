"""Eight-bit floats (e4m3): one scale for each output channel, and one for each input row.

The one idea: only hardware that multiplies such numbers itself gains from them, so on any other device they are
refused with the reason instead of imitated. It must not know layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.linear import size

_LARGEST = 448.0
_SMALLEST = 1e-30
_HOPPER = (9, 0)


def check_device(device: torch.device) -> None:
    """EngineError unless it is a CUDA device of the Hopper generation or later."""
    if device.type != "cuda":
        raise EngineError(
            f"--quant fp8 needs a CUDA device of the Hopper generation or later, and this is {device.type}: nothing "
            "here multiplies 8-bit floats; int8, int4 and w8a8 serve everywhere"
        )
    found = torch.cuda.get_device_capability(device)
    if found < _HOPPER:
        raise EngineError(
            f"--quant fp8 needs compute capability 9.0 (Hopper) or later; {torch.cuda.get_device_name(device)} has "
            f"{found[0]}.{found[1]}; int8, int4 and w8a8 serve there"
        )


def fp8_linear(weight: Tensor, bias: Tensor | None) -> Fp8Linear:
    """EngineError where the device or the sizes do not allow it."""
    check_device(weight.device)
    if weight.shape[0] % 16 or weight.shape[1] % 16:
        raise EngineError(f"--quant fp8 needs sizes that are multiples of 16, not {tuple(weight.shape)}")
    return Fp8Linear(weight, bias)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, columns] -> e4m3 values and scales [rows, 1] float32, one a row."""
    scales = x.abs().amax(dim=1, keepdim=True).float().clamp_min(_SMALLEST) / _LARGEST
    return (x / scales).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn), scales


class Fp8Linear:
    """levels: [out, in] e4m3; scales: [out, 1]. native: multiplied by the device itself; else as floats (for tests)."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.levels, self.scales = rounded(weight)
        self.bias = bias
        self._native = weight.device.type == "cuda"

    def __call__(self, x: Tensor) -> Tensor:
        rows, steps = rounded(x)
        if self._native:
            found = torch._scaled_mm(
                rows, self.levels.t(), scale_a=steps, scale_b=self.scales.t(), out_dtype=torch.bfloat16
            )
        else:
            found = F.linear(rows.float() * steps, self.levels.float() * self.scales)
        found = found.to(x.dtype)
        return found if self.bias is None else found + self.bias

    @property
    def kind(self) -> str:
        """With the way of multiplying."""
        return "fp8 e4m3, scales by channel and row"

    @property
    def num_bytes(self) -> int:
        """Memory of levels, scales and bias."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """One byte a weight, one float32 a channel."""
        return {"packed": size(self.levels), "scales": size(self.scales), "high_precision": size(self.bias)}

    def to(self, device: torch.device | str) -> Fp8Linear:
        """The same on another device."""
        self.levels, self.scales = self.levels.to(device), self.scales.to(device)
        self.bias = None if self.bias is None else self.bias.to(device)
        self._native = self.levels.device.type == "cuda"
        return self
