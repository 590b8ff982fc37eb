"""Weights of few bits in groups along the input, each with its own scale and offset.

The one idea: a weight is level x scale + minimum (or (level - zero) x scale, as checkpoints store it), levels packed;
a product unpacks a slice of rows at a time. Where torch has a kernel that reads 4-bit groups, that one multiplies. It
must not know layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchlab_engine.model.linear import Linear, size
from benchlab_engine.model.quant_bits import pack, unpack
from benchlab_engine.model.quant_int4 import Int4Linear, serves

_SLICE = 1 << 20  # weights unpacked at a time: what they become stays in the cache
_SMALLEST_HALF = 2.0**-14


@dataclass(frozen=True, slots=True)
class Groups:
    """levels: [out, in] uint8 below 2^bits. scales: [out, groups]. A weight is level x scale + minimum.

    The minimum: minimums [out, groups] floats, or -zeros x scale with zeros [out, groups] uint8, or, without both,
    -2^(bits-1) x scale.
    """

    levels: Tensor
    bits: int
    scales: Tensor
    minimums: Tensor | None = None
    zeros: Tensor | None = None

    @property
    def size(self) -> int:
        """Weights in a group."""
        return self.levels.shape[1] // self.scales.shape[1]

    def minimum(self) -> Tensor:
        """[out, groups] float32."""
        if self.minimums is not None:
            return self.minimums.float()
        zeros = float(1 << (self.bits - 1)) if self.zeros is None else self.zeros.float()
        return -(zeros * self.scales.float())

    def floats(self) -> Tensor:
        """[out, in] float32."""
        return _floats(self.levels, self.scales, self.minimum())

    def to(self, device: torch.device | str) -> Groups:
        """The same on another device."""
        return replace(
            self,
            levels=self.levels.to(device),
            scales=self.scales.to(device),
            minimums=_moved(self.minimums, device),
            zeros=_moved(self.zeros, device),
        )


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight that came quantised. order: [in], the input column that each column of groups stands for, or None."""

    groups: Groups
    order: Tensor | None = None

    def floats(self) -> Tensor:
        """[out, in] float32, columns in the model's order."""
        found = self.groups.floats()
        return found if self.order is None else found[:, self.order.argsort()]


def _moved(tensor: Tensor | None, device: torch.device | str) -> Tensor | None:
    return None if tensor is None else tensor.to(device)


def _floats(levels: Tensor, scales: Tensor, minimum: Tensor) -> Tensor:
    rows, groups = scales.shape
    grouped = levels.view(rows, groups, -1).float()
    return grouped.mul_(scales.float()[:, :, None]).add_(minimum[:, :, None]).view(rows, -1)


def rounded(weight: Tensor, bits: int, group: int, symmetric: bool, dtype: torch.dtype | None = None) -> Groups:
    """Nearest levels on a grid from each group's least to its greatest weight (symmetric: around zero).

    dtype: of scales and minimums; None takes float16 where that keeps their precision, else float32. Levels are chosen
    on the grid as stored, so that rounding the scales costs almost nothing.
    """
    rows = len(weight)
    grouped = weight.float().view(rows, -1, group)
    top = (1 << bits) - 1
    low, high = grouped.amin(dim=2), grouped.amax(dim=2)
    if symmetric:
        # 2^(bits-1) levels below zero, one less above; the sign of the scale puts the larger side where it is needed.
        scales = torch.where(high > -low, -high, -low) / (1 << (bits - 1))
        minimums = None
    else:
        scales, minimums = (high - low) / top, low
    wanted = dtype or _scale_dtype(scales, minimums)
    # A group of equal weights has scale 0: level 0 and its minimum say it all (symmetric: it is all zeros).
    scales = scales.to(wanted)
    minimums = None if minimums is None else minimums.to(wanted)
    found = Groups(torch.empty(0, dtype=torch.uint8), bits, scales, minimums)
    step = torch.where(scales == 0, torch.ones_like(scales), scales).float()[:, :, None]
    levels = ((grouped - found.minimum()[:, :, None]) / step).round_().clamp_(0, top).to(torch.uint8)
    return replace(found, levels=levels.view(rows, -1))


def _scale_dtype(scales: Tensor, minimums: Tensor | None) -> torch.dtype:
    used = scales[scales != 0].abs()
    largest = max([float(each.abs().amax()) for each in (scales, minimums) if each is not None and each.numel()] or [0])
    if largest < torch.finfo(torch.float16).max and (not used.numel() or float(used.amin()) >= _SMALLEST_HALF):
        return torch.float16
    return torch.float32


def group_linear(weight: Tensor, bias: Tensor | None, bits: int, group: int, symmetric: bool) -> Linear:
    """The best storage for a float weight [out, in] on its device."""
    if bits == 4 and serves(weight.device, weight.dtype, tuple(weight.shape), group):
        return Int4Linear(rounded(weight, bits, group, symmetric, torch.bfloat16), bias)
    return GroupLinear(rounded(weight, bits, group, symmetric), bias)


def joined(parts: Sequence[Packed]) -> Packed | None:
    """Weights with one input, one above the other; None where their bits, groups or orders differ."""
    first = parts[0]
    for each in parts[1:]:
        same_order = (
            torch.equal(each.order, first.order)
            if each.order is not None and first.order is not None
            else each.order is first.order
        )
        if not same_order or (each.groups.bits, each.groups.size) != (first.groups.bits, first.groups.size):
            return None
    groups = [each.groups for each in parts]
    zeros: Tensor | None = None
    if any(each.zeros is not None for each in groups):
        middle = 1 << (first.groups.bits - 1)
        zeros = torch.cat(
            [torch.full(each.scales.shape, middle, dtype=torch.uint8) if each.zeros is None else each.zeros
             for each in groups]
        )  # fmt: skip
    levels, scales = torch.cat([each.levels for each in groups]), torch.cat([each.scales for each in groups])
    return Packed(Groups(levels, first.groups.bits, scales, zeros=zeros), first.order)


def stored(packed: Packed, bias: Tensor | None, dtype: torch.dtype, device: torch.device | str) -> Linear:
    """The best storage on device for weights that a checkpoint brought."""
    groups, order = packed.groups.to(device), _moved(packed.order, device)
    fits = groups.bits == 4 and serves(groups.levels.device, dtype, tuple(groups.levels.shape), groups.size)
    return Int4Linear(groups, bias, order) if fits else GroupLinear(groups, bias, order)


class GroupLinear:
    """Right everywhere: unpacks some rows, multiplies, forgets them. order: [in] columns of x, None: as they are."""

    def __init__(self, groups: Groups, bias: Tensor | None = None, order: Tensor | None = None) -> None:
        self.out_features, self.in_features = groups.levels.shape
        self.bits = groups.bits
        self.group = groups.size
        self.packed = pack(groups.levels, groups.bits)
        self._groups = replace(groups, levels=groups.levels[:0])
        self.bias = bias
        self.order = order

    def __call__(self, x: Tensor) -> Tensor:
        if self.order is not None:
            x = x.index_select(1, self.order)
        step = max(1, _SLICE // self.in_features)
        parts = [
            F.linear(x, self._rows(start, start + step).to(x.dtype)) for start in range(0, self.out_features, step)
        ]
        found = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return found if self.bias is None else found + self.bias

    def _rows(self, start: int, end: int) -> Tensor:
        groups = self._groups
        picked = replace(
            groups,
            scales=groups.scales[start:end],
            minimums=None if groups.minimums is None else groups.minimums[start:end],
            zeros=None if groups.zeros is None else groups.zeros[start:end],
        )
        return _floats(unpack(self.packed[start:end], self.bits), picked.scales, picked.minimum())

    @property
    def weight(self) -> Tensor:
        """[out, in] float32, columns in the order of the groups."""
        return self._rows(0, self.out_features)

    @property
    def kind(self) -> str:
        """With the way of multiplying."""
        return f"int{self.bits} in groups of {self.group}, unpacked for each product"

    @property
    def num_bytes(self) -> int:
        """Memory of all that is kept."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """Packed levels; scales with minimums, zeros and the order; the bias."""
        groups = self._groups
        return {
            "packed": size(self.packed),
            "scales": size(groups.scales, groups.minimums, groups.zeros, self.order),
            "high_precision": size(self.bias),
        }

    def to(self, device: torch.device | str) -> GroupLinear:
        """The same on another device."""
        self.packed, self._groups = self.packed.to(device), self._groups.to(device)
        self.bias, self.order = _moved(self.bias, device), _moved(self.order, device)
        return self
