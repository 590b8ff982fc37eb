"""Weights in fewer bits: what was asked for, and one matrix made accordingly.

The one idea: the decoder is built matrix by matrix, and each goes through here once: noise if wanted, then the storage
that the text names; the head comes only where `head_maker` says so, embedding and norms never. It must not know layers
or files.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from benchlab_engine.errors import USAGE, EngineError
from benchlab_engine.model.linear import DenseLinear, Linear, MakeLinear, dense
from benchlab_engine.model.quant_fp8 import check_device, fp8_linear
from benchlab_engine.model.quant_groups import group_linear
from benchlab_engine.model.quant_int8 import Int8Linear, W8A8Linear, int8_head

GROUPS = (32, 64, 128)
GRAMMAR = (
    "none, int8, int4[:gN][:sym|asym], int3[:gN], w8a8 or fp8, each with +noise:SHARE if wanted; N is 32, 64 or 128"
)
_TEXT = re.compile(
    r"(?P<kind>none|int8|int4|int3|w8a8|fp8)(?::g(?P<group>\d{1,6}))?(?::(?P<form>sym|asym))?(?:\+noise:(?P<noise>[^+:]+))?"
)


@dataclass(frozen=True, slots=True)
class Quant:
    """kind: none, int8, int4, int3, w8a8, fp8. group 0: the largest that fits. noise: standard deviation / rms."""

    kind: str = "none"
    group: int = 0
    symmetric: bool = False
    noise: float = 0.0

    @property
    def changes(self) -> bool:
        """Whether anything is done to the weights."""
        return self.kind != "none" or self.noise > 0


def parse(text: str) -> Quant:
    """The value of --quant. EngineError (usage) says what the grammar is."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise EngineError(f"--quant {text!r} is not understood; {GRAMMAR}", USAGE)
    kind, group, form = match["kind"], int(match["group"] or 0), match["form"]
    if match["group"] is not None and (kind not in ("int4", "int3") or group not in GROUPS):
        raise EngineError(f"--quant {text!r}: groups are for int4 and int3, of {GROUPS} weights; {GRAMMAR}", USAGE)
    if form is not None and kind != "int4":
        raise EngineError(f"--quant {text!r}: sym and asym are for int4; {GRAMMAR}", USAGE)
    try:
        noise = float(match["noise"] or 0)
    except ValueError:
        noise = -1.0
    if not 0 <= noise <= 10:
        raise EngineError(f"--quant {text!r}: the noise share is a number from 0 to 10, as in int8+noise:0.05", USAGE)
    return Quant(kind, group, form == "sym", noise)


def maker(quant: Quant, device: torch.device | str = "cpu") -> MakeLinear:
    """What the decoder is built with on device. Weights that stay as they are have `dense` itself."""
    if quant.kind == "fp8":
        check_device(torch.device(device))
    return functools.partial(apply, quant) if quant.changes else dense


def head_maker(quant: Quant) -> MakeLinear | None:
    """What the head is made with; None: it stays as it is.

    With int8 it is rounded like the layers: of a small model at one row it is a quarter of the time. The coarser forms
    leave it alone, since every error there lands in the logits unsoftened.
    """
    return int8_head if quant.kind == "int8" else None


def apply(quant: Quant, name: str, weight: Tensor, bias: Tensor | None) -> Linear:
    """weight: [out, in] floats on the device where it will be used. The name seeds the noise and stands in messages."""
    if quant.noise:
        weight = noisy(weight, quant.noise, name)
    if quant.kind == "none":
        return DenseLinear(weight, bias)
    if quant.kind == "int8":
        return Int8Linear(weight, bias)
    if quant.kind == "w8a8":
        return W8A8Linear(weight, bias)
    if quant.kind == "fp8":
        return fp8_linear(weight, bias)
    bits = {"int4": 4, "int3": 3}[quant.kind]
    return group_linear(weight, bias, bits, _group(quant, name, weight.shape[1]), quant.symmetric)


def noisy(weight: Tensor, share: float, name: str) -> Tensor:
    """weight plus normal noise of share x its root mean square, the same for the same name on every device."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)).to(weight.device)
    scale = share * weight.float().square().mean().sqrt()
    return (weight.float() + scale * noise).to(weight.dtype)


def _group(quant: Quant, name: str, in_features: int) -> int:
    fitting = [group for group in GROUPS if in_features % group == 0]
    if quant.group:
        if quant.group not in fitting:
            raise EngineError(
                f"{name} has {in_features} inputs, which groups of {quant.group} do not divide; groups that fit: "
                f"{', '.join(map(str, fitting)) or 'none of 32, 64, 128 (leave :gN away)'}",
                USAGE,
            )
        return quant.group
    if fitting:
        return fitting[-1]
    small = [group for group in (16, 8) if in_features % group == 0]
    if not small:
        raise EngineError(f"{name} has {in_features} inputs, which is no multiple of 8: {quant.kind} cannot pack them")
    return small[0]
