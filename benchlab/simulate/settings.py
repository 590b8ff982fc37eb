"""The simulated engine as it is asked for: a cost model by name, and settings of the engine's own core.

The one idea: what the bundled engine would refuse is refused here in the same words, before anything runs. It must not
know loads or records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benchlab.errors import UsageError
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.sim.costs import CostModel, StepCosts, parse_profile
from benchlab_engine.sim.roofline import Roofline

_DEFAULT_BLOCKS = 8_192


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """profile: a cost model, as `--runner paced:PROFILE` takes it. core: fields of the core's SchedulerConfig by name.

    num_blocks 0 or missing: what a roofline's device holds beside the weights, else 8,192. max_wait_ns: 0 is no limit.
    """

    profile: str
    core: dict[str, Any] = field(default_factory=dict)
    max_wait_ns: int = 0
    seed: int = 0

    def build(self) -> tuple[SchedulerConfig, CostModel]:
        """The core's configuration and the cost model. Raises UsageError for what they refuse."""
        try:
            costs = parse_profile(self.profile)
        except ValueError as error:
            raise UsageError(str(error), where="--profile") from error
        core = dict(self.core)
        if not core.get("num_blocks"):
            core["num_blocks"] = _blocks(costs, int(core.get("block_size", SchedulerConfig().block_size)))
        try:
            config = SchedulerConfig(**core)
            Scheduler(config)
        except ValueError as error:
            raise UsageError(str(error), where="engine settings") from error
        return config, costs

    def facts(self) -> dict[str, Any]:
        """The settings as the manifest holds them, defaults filled in and the cost model in numbers."""
        config, costs = self.build()
        told = {"profile": self.profile, "max_wait_ns": self.max_wait_ns, "seed": self.seed}
        return told | asdict(config) | {"costs": asdict(costs) if isinstance(costs, StepCosts | Roofline) else None}


def parse_speculate(text: str) -> dict[str, Any]:
    """'none', 'ngram:4' or 'runner:4' as the core's settings; 'runner' proposes as a draft model would.

    Raises UsageError.
    """
    kind, _, count = text.partition(":")
    if text == "none":
        return {}
    if kind not in ("ngram", "runner") or not (count.isascii() and count.isdecimal()) or not 1 <= int(count[:9]) <= 64:
        raise UsageError(
            f"'{text}' is no way to speculate", where="--speculate", hint="none, ngram:4 or runner:4 (1 to 64)"
        )
    return {"speculate": kind, "num_drafts": int(count)}


def _blocks(costs: CostModel, block_size: int) -> int:
    if not isinstance(costs, Roofline):
        return _DEFAULT_BLOCKS
    blocks = costs.num_kv_blocks(block_size)
    if not blocks:
        raise UsageError(
            f"{costs.model.name} as {costs.weights} does not fit {costs.num_devices} x {costs.device.name} "
            f"({costs.device.memory_gib} GiB, 90% used)",
            where="--profile",
            hint="more devices (gpus=4), smaller weights (weights=int4), or --kv-blocks by hand",
        )
    return blocks
