"""How published quantisers lay small integers into 32-bit words.

The one idea: three layouts, each undone into the same thing: levels by output row, scales and zeros by group, and the
order of the input columns where a quantiser sorted them. Facts of AutoAWQ's gemm form, of GPTQ's v1 and v2 forms and of
compressed-tensors' pack-quantized. It must not know modules or files.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from benchlab_engine.model.quant_groups import Groups

_AWQ_PLACES = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each nibble of a word holds, lowest nibble first
Unpacked = tuple[Groups, Tensor | None]


def _fields(words: Tensor, bits: int) -> Tensor:
    """int32 words [...] -> uint8 [..., 32 / bits], lowest bits first."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    return ((words.to(torch.int32).unsqueeze(-1) >> shifts) & ((1 << bits) - 1)).to(torch.uint8)


def _columns(words: Tensor, bits: int) -> Tensor:
    """[rows, words] -> [rows, fields]: neighbours in a row share a word."""
    return _fields(words, bits).flatten(1)


def _rows(words: Tensor, bits: int) -> Tensor:
    """[words, columns] -> [fields, columns]: neighbours in a column share a word."""
    return _fields(words, bits).transpose(1, 2).flatten(0, 1)


def unpack_awq(parts: Mapping[str, Tensor], bits: int, offset: int) -> Unpacked:
    """qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]; a weight is (level - zero) x scale."""
    places = torch.tensor(_AWQ_PLACES).argsort()

    def undo(words: Tensor) -> Tensor:
        return _fields(words, bits)[:, :, places].flatten(1)

    zeros = undo(parts["qzeros"]).t().contiguous() if "qzeros" in parts else None
    levels, scales = undo(parts["qweight"]).t().contiguous(), parts["scales"].t().contiguous()
    return Groups(levels, bits, scales, zeros=_unless_middle(zeros, bits)), None


def unpack_gptq(parts: Mapping[str, Tensor], bits: int, offset: int) -> Unpacked:
    """qweight [in x bits / 32, out], qzeros [groups, out x bits / 32], scales [groups, out], g_idx [in].

    offset 1: zeros are stored less one, modulo 2^bits. g_idx: the group of each input column, in any order.
    """
    levels, scales = _rows(parts["qweight"], bits).t(), parts["scales"].t().contiguous()
    zeros = (_columns(parts["qzeros"], bits) + offset) & ((1 << bits) - 1)
    order = _order(parts.get("g_idx"), scales.shape[1], levels.shape[1])
    levels = (levels if order is None else levels[:, order]).contiguous()
    return Groups(levels, bits, scales, zeros=_unless_middle(zeros.t().contiguous(), bits)), order


def unpack_compressed(parts: Mapping[str, Tensor], bits: int, offset: int) -> Unpacked:
    """weight_packed [out, in x bits / 32], weight_scale [out, groups], weight_zero_point [out x bits / 32, groups].

    Signed numbers are stored with 2^(bits-1) added. Rows and columns may be padded to whole words.
    """
    scales = parts["weight_scale"]
    scales = (scales[:, None] if scales.dim() == 1 else scales).contiguous()
    rows, columns = (int(size) for size in parts["weight_shape"])
    levels = _columns(parts["weight_packed"], bits)[:, :columns]
    zeros = parts.get("weight_zero_point")
    if zeros is not None:
        zeros = _rows(zeros, bits)[:rows] if zeros.dtype == torch.int32 else (zeros + (1 << (bits - 1))).to(torch.uint8)
    order = _order(parts.get("weight_g_idx"), scales.shape[1], columns)
    levels = (levels if order is None else levels[:, order]).contiguous()
    return Groups(levels, bits, scales, zeros=_unless_middle(zeros, bits)), order


def _unless_middle(zeros: Tensor | None, bits: int) -> Tensor | None:
    """Zeros that all lie in the middle are those of a symmetric grid, and need no memory."""
    return None if zeros is None or bool((zeros == 1 << (bits - 1)).all()) else zeros.contiguous()


def _order(groups: Tensor | None, count: int, columns: int) -> Tensor | None:
    """Columns sorted by their group; None where they lie so already. ValueError for groups of unequal sizes."""
    if groups is None or bool((groups < 0).all()):
        return None
    wanted = torch.arange(columns) // (columns // count)
    ordered, order = groups.to(torch.int64).sort(stable=True)
    if not torch.equal(ordered, wanted):
        raise ValueError(f"the group index does not put {columns} columns into {count} groups of one size")
    return None if torch.equal(order, torch.arange(columns)) else order
