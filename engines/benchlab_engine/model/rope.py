"""Rotary positions: the tables of cosines and sines, and the turn itself.

The one idea: every way of stretching a context is a change of the frequencies, and perhaps one factor, made once when
the model is built; the forward pass only looks rows up. It must not know layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchlab_engine.errors import EngineError
from benchlab_engine.model.config import DecoderConfig, RopeScaling


def rotary_tables(config: DecoderConfig, num_positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of every position: [positions, head_dim / 2]. Computed in float32, then rounded to dtype."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    factor = 1.0
    if config.rope is not None:
        frequencies = scaled(frequencies, config.rope, config.rope_theta)
        factor = config.rope.attention_factor
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
    return (angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype)


def scaled(frequencies: Tensor, rope: RopeScaling, theta: float) -> Tensor:
    """frequencies: [head_dim / 2] radians a position, fastest first. Returns them changed as rope says."""
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "factors":
        if len(rope.factors) != len(frequencies):
            raise EngineError(f"{len(rope.factors)} rope factors for {len(frequencies)} frequencies")
        return frequencies / torch.tensor(rope.factors, dtype=torch.float32)
    if rope.kind == "llama3":
        return _llama3(frequencies, rope)
    return _yarn(frequencies, rope, theta)


def _llama3(frequencies: Tensor, rope: RopeScaling) -> Tensor:
    """Llama 3.1: a wave that turns often within the trained length stays, a slow one is divided, between them a mix."""
    turns = rope.original_positions * frequencies / (2 * math.pi)
    share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    share = share.clamp(0, 1)
    return frequencies * share + frequencies / rope.factor * (1 - share)


def _yarn(frequencies: Tensor, rope: RopeScaling, theta: float) -> Tensor:
    """YaRN (arXiv 2309.00071, section 3.2): a linear ramp over the dimensions between two numbers of turns."""
    dim = 2 * len(frequencies)

    def dimension(turns: float) -> float:
        return dim * math.log(rope.original_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001
    ramp = ((torch.arange(len(frequencies), dtype=torch.float32) - low) / width).clamp(0, 1)
    return frequencies / rope.factor * ramp + frequencies * (1 - ramp)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Turn each head's halves against each other, in place. x: [rows, heads, dim]; cos, sin: [rows, 1, dim]."""
    turned = torch.roll(x, x.shape[-1] // 2, dims=-1)
    x.mul_(cos).addcmul_(turned, sin)


def full_tables(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """[positions, dim / 2] as [positions, 1, dim], so that a rotation is x cos + (x with its halves exchanged) sin."""
    return torch.cat((cos, cos), dim=-1).unsqueeze(1), torch.cat((-sin, sin), dim=-1).unsqueeze(1)
