"""Where the memory goes and what a step must at least read: bytes, blocks, FLOP and floors, as plain arithmetic.

The one idea: everything here is a product of counts that a model's shape and a device's data sheet give; GiB is 2^30
and GB is 10^9 bytes, and neither is ever written where the other is meant. It must not know tensors, a device that is
present, or what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
MIB = 2**20

BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4, "int3": 3}
"""Bits of one stored value, before scales."""


def bits_of(number_format: str) -> int:
    """Bits of one value. ValueError names the formats."""
    try:
        return BITS[number_format]
    except KeyError:
        raise ValueError(f"{number_format!r} is no number format here; use {', '.join(BITS)}") from None


# -- weights ----------------------------------------------------------------------------------------------------------


def weights_bytes(num_parameters: int, number_format: str) -> int:
    """Bytes of the packed values alone, without scales."""
    return -(-num_parameters * bits_of(number_format) // 8)


def scales_bytes(num_parameters: int, group_size: int, bytes_per_scale: int = 2, zero_points: bool = False) -> int:
    """Bytes of one scale (and, if asymmetric, one zero point of the same size) for each group of values."""
    if group_size < 1:
        raise ValueError(f"a group of {group_size} values has no scale; give 1 or more")
    return -(-num_parameters // group_size) * bytes_per_scale * (2 if zero_points else 1)


# -- keys and values --------------------------------------------------------------------------------------------------


def kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, bytes_per_value: int = 2) -> int:
    """Bytes of keys and values of one position, all layers."""
    return 2 * num_layers * num_kv_heads * head_dim * bytes_per_value


def cached_positions(num_prompt_tokens: int, num_output_tokens: int) -> int:
    """Positions in the cache when a request ends: the last token is never fed back."""
    return max(0, num_prompt_tokens + num_output_tokens - 1)


def blocks_of(num_tokens: int, block_size: int) -> int:
    """Blocks of block_size positions that num_tokens fill, the last one perhaps in part."""
    return -(-num_tokens // block_size)


@dataclass(frozen=True, slots=True)
class Paging:
    """Live lengths laid out in blocks. num_slots - num_tokens positions stand idle."""

    num_tokens: int
    num_blocks: int
    num_slots: int

    @property
    def num_idle(self) -> int:
        """Positions that are taken and hold nothing."""
        return self.num_slots - self.num_tokens


def paging(lengths: tuple[int, ...] | list[int], block_size: int) -> Paging:
    """Blocks, slots and idle slots of live sequences of these lengths."""
    blocks = sum(blocks_of(length, block_size) for length in lengths)
    return Paging(sum(lengths), blocks, blocks * block_size)


def sequences_that_fit(budget_bytes: float, bytes_per_sequence: float) -> int:
    """Whole sequences in a KV budget; 0 where not one fits."""
    return int(budget_bytes // bytes_per_sequence) if budget_bytes > 0 else 0


# -- the ledger of a configuration ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ledger:
    """Bytes of one device, by owner. kv: the pool. workspace: the runtime's peak beside weights and pool.

    reserve: what is left alone on purpose.
    """

    weights: int
    kv: int
    workspace: int = 0
    reserve: int = 0

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return self.weights + self.kv + self.workspace + self.reserve

    def left_of(self, device_bytes: int) -> int:
        """Bytes of the device that no part claims; below zero by how much it does not fit."""
        return device_bytes - self.total


def kv_budget_bytes(
    device_bytes: float,
    usable_share: float,
    weights_bytes_in_all: float,
    num_devices: int = 1,
    workspace_bytes: float = 0,
) -> float:
    """Bytes left for keys and values on each of num_devices that share the weights evenly; below zero: no fit."""
    if not 0 < usable_share <= 1:
        raise ValueError(f"a usable share is above 0 and at most 1, not {usable_share}")
    if num_devices < 1:
        raise ValueError(f"{num_devices} devices hold nothing; give 1 or more")
    return device_bytes * usable_share - weights_bytes_in_all / num_devices - workspace_bytes


# -- roofline ---------------------------------------------------------------------------------------------------------


def matmul_flop(num_parameters: int, num_tokens: int) -> int:
    """FLOP of all matrix products with the weights: a multiplication and an addition a parameter and token."""
    return 2 * num_parameters * num_tokens


def attention_flop(num_layers: int, num_heads: int, head_dim: int, num_pairs: int) -> int:
    """FLOP of scores and weighted values; num_pairs: (query position, position it looks at) pairs in all."""
    return 4 * num_layers * num_heads * head_dim * num_pairs


def attended_pairs(start: int, num_tokens: int) -> int:
    """Pairs of num_tokens positions from `start` on, each looking at itself and all before it."""
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2


def seconds_to_compute(flop: float, flop_per_s: float) -> float:
    """Least seconds of so much arithmetic."""
    return flop / flop_per_s


def seconds_to_read(num_bytes: float, bytes_per_s: float) -> float:
    """Least seconds of so much memory traffic."""
    return num_bytes / bytes_per_s


def allreduce_seconds(num_layers: int, seconds_each: float, per_layer: int = 2) -> float:
    """Seconds of a step's all-reduces under tensor parallelism, one after the other."""
    return num_layers * per_layer * seconds_each
