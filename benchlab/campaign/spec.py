"""What is to be run, resolved: every choice made and checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchlab.clients.base import Timeouts
from benchlab.errors import UsageError
from benchlab.loadgen.abandon import Abandon
from benchlab.loadgen.arrivals import Arrival
from benchlab.loadgen.rate_curve import Ramp
from benchlab.loadgen.think import ThinkTime
from benchlab.loadgen.trace_times import TraceShape
from benchlab.units import NS_PER_S, parse_duration_ns

POISSON, AT_ONCE, AS_IT_IS = Arrival("poisson"), ThinkTime(), TraceShape()


@dataclass(frozen=True, slots=True)
class ReplayStage:
    """When the requests of a stored stage were due, their sequence numbers and items, and its window; ns from the
    stage's start."""

    name: str
    at_ns: tuple[int, ...]
    sequences: tuple[int, ...]
    item_ids: tuple[str, ...]
    w0_ns: int
    w1_ns: int


@dataclass(frozen=True, slots=True)
class Load:
    """One stage of load: open with a rate (requests per second) or closed with so many users.

    ramp: the rate changes in the stage; `rate` is its mean then. replay: due instants (ns from the stage's start) and
    the measured window of a stored stage, instead of an arrival process.
    """

    kind: str
    rate: float | None = None
    concurrency: int | None = None
    arrival: Arrival = POISSON
    ramp: Ramp | None = None
    replay: ReplayStage | None = None

    @property
    def name(self) -> str:
        if self.kind == "closed":
            return f"c{self.concurrency}"
        if self.replay is not None:
            return f"replay {self.replay.name}"
        if self.ramp is not None:
            return str(self.ramp)
        return "trace" if self.rate is None else f"{self.rate:g}/s"


@dataclass(frozen=True, slots=True)
class Warmup:
    """What is cut from the front of a stage: a time in ns, or a number of requests; both 0 for nothing."""

    ns: int = 0
    requests: int = 0

    def __str__(self) -> str:
        return f"{self.requests}req" if self.requests else f"{self.ns / NS_PER_S:g}s" if self.ns else "none"


def parse_warmup(text: str, *, duration_ns: int | None, requests: int | None) -> Warmup:
    """'10s', '20req', 'none' or 'auto': a tenth of the stage, at least 2 s or 1 request. Raises UsageError."""
    if text == "none":
        return Warmup()
    if text == "auto":
        if duration_ns is not None:
            return Warmup(ns=max(2 * NS_PER_S, duration_ns // 10))
        return Warmup(requests=max(1, (requests or 0) // 10))
    if text.endswith("req"):
        number = text.removesuffix("req")
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"'{text}' is no warm-up", where="--warmup", hint="write 10s, 20req, auto or none")
        return Warmup(requests=int(number))
    return Warmup(ns=parse_duration_ns(text, flag="--warmup"))


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine that is started for the run. port: None chooses a free one."""

    launch: str
    model: str
    threads: int | None = None
    port: int | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run. Exactly one of `url` and `engine`; `duration_ns` or `requests` is a stage's measured length.

    data: a workload file, or None for items of a recipe ("NAME" or "NAME:ITEMS") drawn by the content seed, or for
    made prompts of `isl` input and `osl` output tokens. stage_limit_ns: longest
    sending phase of a stage. abort_ns: a stage in which every request failed for so long ends the run. replay: a run
    directory whose items and due instants are used.
    """

    loads: tuple[Load, ...]
    data: Path | None
    url: str | None = None
    engine: EngineSpec | None = None
    model: str | None = None
    api: str = "chat"
    duration_ns: int | None = None
    requests: int | None = None
    warmup: Warmup = Warmup()
    drain_ns: int = 30 * NS_PER_S
    think: ThinkTime = AT_ONCE
    trace: TraceShape = AS_IT_IS
    abandon: tuple[Abandon, ...] = ()
    pacing: str = "normal"
    stage_limit_ns: int | None = None
    abort_ns: int | None = None
    source_addresses: tuple[str, ...] = ()
    replay: Path | None = None
    max_inflight: int | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    isl: int | None = None
    osl: int | None = None
    seed: int = 0
    arrival_seed: int = 0
    cache: str = "warm"
    tokenizer: str | None = None
    """What makes prompts exact to the token: a file, `endpoint`, or an estimate."""
    slo: tuple[str, ...] = ()
    slo_target: float | None = None
    objectives: tuple[str, ...] = ()
    select: str = "point"
    percentiles: tuple[float, ...] = (50, 90, 95, 99)
    preset: str = "ci"
    price_per_hour: float | None = None
    workers: int = 1
    cluster: str | None = None
    keep_text: bool = False
    kernel_stamps: bool = True
    transport: str = "auto"
    lenient: bool = False
    allow_unknown: bool = False
    block_tokens: int | None = None
    time_unit: str | None = None
    data_format: str | None = None
    lock: Path | None = None
    out: Path | None = None
    labels: dict[str, str] = field(default_factory=dict)
    gpu: str = "auto"
    scrape: str = "auto"
    command: tuple[str, ...] = ()
    report: bool = True
