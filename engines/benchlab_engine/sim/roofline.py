"""The least time a step can take on a device: arithmetic against memory traffic, whichever is longer.

The one idea: a step reads all weights once and each request's keys and values once, and multiplies each of its tokens
with all weights; its floor is the longer of the two, and a delivered share (`eff`) scales both. It must not know what
a real engine achieved: this is a bound, and a simulation on it is one of a perfect engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchlab_engine.core import ledger
from benchlab_engine.core.plan import StepPlan
from benchlab_engine.sim.devices import DEVICES, MODELS, Device, ModelShape

_GROUP = 128
"""Values that share a scale in int4 and int3 weights."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """weights, kv: number formats as they are stored. compute: the format whose peak counts.

    eff: delivered share of both peaks, above 0 to 1. overhead_ns: of each step. num_devices: tensor parallel, each
    reading its share; reduce_ns: one of the two all-reduces a layer. accept: see PacedRunner.
    """

    device: Device
    model: ModelShape
    weights: str = "bf16"
    kv: str = "bf16"
    compute: str = "bf16"
    eff: float = 1.0
    overhead_ns: float = 0
    num_devices: int = 1
    reduce_ns: float = 0
    accept: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.eff <= 1:
            raise ValueError(f"eff={self.eff:g} is no share; give more than 0 and at most 1")
        if self.num_devices < 1:
            raise ValueError(f"gpus={self.num_devices} compute nothing; give 1 or more")
        for name in (self.weights, self.kv):
            ledger.bits_of(name)
        if self.compute not in self.device.flop_per_s:
            known = ", ".join(self.device.flop_per_s)
            raise ValueError(f"{self.device.name} has no peak for compute={self.compute}; use {known}")

    @property
    def weights_bytes(self) -> int:
        """All weights as stored, with the scales of grouped formats."""
        packed = ledger.weights_bytes(self.model.num_parameters, self.weights)
        grouped = self.weights in ("int4", "int3")
        return packed + (ledger.scales_bytes(self.model.num_parameters, _GROUP) if grouped else 0)

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one position, all devices together."""
        model = self.model
        values = ledger.kv_bytes_per_token(model.num_layers, model.num_kv_heads, model.head_dim, 1)
        return values * ledger.bits_of(self.kv) // 8

    def num_kv_blocks(self, block_size: int, usable_share: float = 0.9) -> int:
        """Blocks that fit beside the weights; 0 where the weights alone do not fit."""
        device_bytes = self.device.memory_gib * ledger.GIB
        left = ledger.kv_budget_bytes(device_bytes, usable_share, self.weights_bytes, self.num_devices)
        return ledger.sequences_that_fit(left * self.num_devices, self.kv_bytes_per_token * block_size)

    def seconds(self, num_tokens: int, num_pairs: int, num_cached: int) -> float:
        """A step of so many tokens, attended pairs, and positions whose keys and values are read."""
        model, device, share = self.model, self.device, self.eff * self.num_devices
        flop = ledger.matmul_flop(model.num_parameters, num_tokens)
        flop += ledger.attention_flop(model.num_layers, model.num_heads, model.head_dim, num_pairs)
        compute = ledger.seconds_to_compute(flop, device.flop_per_s[self.compute] * share)
        traffic = self.weights_bytes + num_cached * self.kv_bytes_per_token
        memory = ledger.seconds_to_read(traffic, device.bytes_per_s * share)
        reduce = ledger.allreduce_seconds(model.num_layers, self.reduce_ns / 1e9) if self.num_devices > 1 else 0.0
        return max(compute, memory) + reduce

    def of(self, plan: StepPlan) -> int:
        """Cost of the plan, ns. Proposals, the runner's own too, are positions like any other."""
        tokens = pairs = cached = 0
        for work in plan.works:
            count = len(work.token_ids) + work.num_to_draft
            tokens += count
            pairs += ledger.attended_pairs(work.start, count)
            cached += work.start + count
        return round(self.seconds(tokens, pairs, cached) * 1e9 + self.overhead_ns) if tokens else 0


def named(device: str, model: str) -> tuple[Device, ModelShape]:
    """Device and model by name. ValueError lists what there is."""
    if device not in DEVICES:
        raise ValueError(f"no device {device!r}; use {', '.join(DEVICES)}")
    if model not in MODELS:
        raise ValueError(f"no model shape {model!r}; use {', '.join(MODELS)}")
    return DEVICES[device], MODELS[model]
