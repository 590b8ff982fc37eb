"""Small integers packed into bytes.

The one idea: columns that share a byte lie far apart, so that unpacking is a shift and a mask of the whole matrix and
no shuffling. It must not know what the integers mean.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _plane(values: Tensor, bits: int) -> Tensor:
    """values: [rows, columns] uint8 below 2^bits -> [rows, columns x bits / 8]: byte j holds columns j, j + w, ..."""
    count = 8 // bits
    packed = torch.zeros_like(values[:, : values.shape[1] // count])
    for index, part in enumerate(values.chunk(count, dim=1)):
        packed |= part << (index * bits)
    return packed


def _flat(packed: Tensor, bits: int) -> Tensor:
    mask = (1 << bits) - 1
    return torch.cat([(packed >> shift) & mask for shift in range(0, 8, bits)], dim=1)


def pack(levels: Tensor, bits: int) -> Tensor:
    """levels: [rows, columns] uint8, columns a multiple of 8. Three bits: planes of two and of one, 3 bytes for 8."""
    if bits == 8:
        return levels.contiguous()
    if bits == 3:
        return torch.cat((_plane(levels & 3, 2), _plane(levels >> 2, 1)), dim=1)
    return _plane(levels, bits)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """The levels again, uint8."""
    if bits == 8:
        return packed
    if bits == 3:
        width = packed.shape[1] // 3 * 2
        low, high = packed[:, :width], packed[:, width:]
        return _flat(low, 2) | (_flat(high, 1) << 2)
    return _flat(packed, bits)
