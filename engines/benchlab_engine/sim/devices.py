"""A few devices and a few models as their makers publish them: the tables behind `roofline:GPU:MODEL`.

The one idea: rows of numbers with their source, so that a floor can be checked by hand. It must not know what anything
achieved. Peaks are dense (data sheets often print the double, "with sparsity"); memory is the label's number read as
GiB, of which a device may report less, with ECC on for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """bytes_per_s: of its memory. flop_per_s: dense tensor peak by compute format; one it lacks has no entry."""

    name: str
    memory_gib: int
    bytes_per_s: float
    flop_per_s: Mapping[str, float]
    source: str


def _device(name: str, gib: int, tb_per_s: float, source: str, **tflops: float) -> Device:
    return Device(name, gib, tb_per_s * 1e12, {key: value * 1e12 for key, value in tflops.items()}, source)


_ROWS = (
    _device("h100", 80, 3.35, "NVIDIA H100 data sheet, SXM5", bf16=989.4, fp8=1978.9, int8=1978.9),
    _device("h200", 141, 4.8, "NVIDIA H200 data sheet, SXM", bf16=989.4, fp8=1978.9, int8=1978.9),
    _device("a100", 80, 2.039, "NVIDIA A100 data sheet, 80GB SXM", bf16=312.0, int8=624.0),
    _device("l40s", 48, 0.864, "NVIDIA L40S data sheet", bf16=362.05, fp8=733.0, int8=733.0),
    _device("l4", 24, 0.300, "NVIDIA L4 data sheet (half of those with sparsity)", bf16=121.0, fp8=242.5, int8=242.5),
    _device("a10", 24, 0.600, "NVIDIA A10 data sheet", bf16=125.0, int8=250.0),
    _device("mi300x", 192, 5.3, "AMD Instinct MI300X data sheet", bf16=1307.4, fp8=2614.9, int8=2614.9),
)  # fmt: skip
DEVICES: dict[str, Device] = {row.name: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """num_parameters: all of them, each tied matrix once. From the model's config.json and its published weights."""

    name: str
    num_parameters: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


MODELS: dict[str, ModelShape] = {
    row.name: row
    for row in (
        ModelShape("llama-3-8b", 8_030_261_248, 32, 32, 8, 128),
        ModelShape("llama-3-70b", 70_553_706_496, 80, 64, 8, 128),
        ModelShape("qwen2.5-7b", 7_615_616_512, 28, 28, 4, 128),
        ModelShape("smollm2-135m", 134_515_008, 30, 9, 3, 64),
    )
}
