"""The command line of `serve`, checked.

The one idea: text in, one frozen value out, and a refusal names the flag. It must not load anything.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field

from benchlab_engine.core.scheduler import POLICIES
from benchlab_engine.sim.costs import parse_duration

_MAX_DRAFTS = 64
# Beyond these nothing is served better: memory for the bare bookkeeping runs out, or torch's threads do.
_MAX_SEQS, _MAX_STEP, _MAX_BLOCK, _MAX_BLOCKS, _MAX_THREADS = 16_384, 1 << 20, 65_536, 1 << 22, 1024
_MAX_DIGITS = 20
_KEY_VARIABLE = "BENCHLAB_ENGINE_API_KEY"  # so that the key need not stand where every process list shows it


@dataclass(frozen=True, slots=True)
class Speculation:
    """kind: none, ngram or draft. model: the draft's. count: proposals of one step at most."""

    kind: str = "none"
    model: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `serve` was asked for. kv_blocks 0 and max_model_len 0: chosen from the model. Times in ns."""

    model: str
    runner: str
    dtype: str
    max_seqs: int
    max_batched_tokens: int
    max_prefill_tokens: int
    block_size: int
    kv_blocks: int
    prefix_cache: bool
    policy: str
    queue_limit: int
    max_wait_ns: int
    max_model_len: int
    threads: int
    host: str
    port: int
    served_model_name: str
    api_key: str
    allow_faults: bool
    fault: str
    drain_ns: int
    seed: int
    quant: str = "none"
    kv_dtype: str = "auto"
    device: str = "auto"
    attention: str = "auto"
    graphs: bool = True
    speculate: Speculation = field(default_factory=Speculation)
    growth_reserve: int = 0
    age_ns: int = 1_000_000_000
    fair_share: bool = False
    max_new_tokens: int = 0
    tenant_limit: int = 0
    body_limit_ns: int = 60_000_000_000
    journal: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `serve`."""
    add = parser.add_argument
    add("--model", default="", help="smollm2-135m, a Hugging Face directory, FILE.gguf, tiny or SEED:tiny")
    add(
        "--runner",
        default="torch",
        help="torch, or paced:PROFILE (teaching, null, ttft=50ms,itl=20ms, roofline:h100:llama-3-8b)",
    )
    add("--dtype", default="auto", choices=("auto", "bf16", "fp32", "fp16"))
    add("--max-seqs", type=_Whole(1, _MAX_SEQS), default=16, help="requests that run at once")
    add("--max-batched-tokens", type=_Whole(1, _MAX_STEP), default=512, help="tokens of one step")
    add("--max-prefill-tokens", type=_Whole(0), default=0, help="of those, at most so many of prompts; 0: no limit")
    add("--block-size", type=_Whole(1, _MAX_BLOCK), default=16, help="tokens of one KV block")
    add("--kv-blocks", type=_blocks, default=0, help="blocks of the KV pool, or auto")
    add("--prefix-cache", action=argparse.BooleanOptionalAction, default=True)
    add("--policy", default="continuous", choices=POLICIES)
    add("--queue-limit", type=_Whole(0), default=256, help="requests that may wait beyond those that run")
    add("--max-wait", type=_duration, default=0, help="refuse a request that has waited so long, such as 2s; 0s: never")
    add("--max-model-len", type=_Whole(0), default=0, help="tokens of prompt and output together; 0: the model's")
    add("--threads", type=_Whole(0, _MAX_THREADS), default=0, help="CPU threads of the torch runner; 0: torch's choice")
    add("--host", default="127.0.0.1")
    add("--port", type=_port, default=8000, help="0: any free one")
    add("--served-model-name", default="")
    add("--api-key", default="", help=f"asked of every request but /health and /ready; better by ${_KEY_VARIABLE}")
    add("--allow-faults", action="store_true", help="let the header x-benchlab-fault spoil answers (paced: always)")
    add("--fault", default="", help="spoil every answer, such as stall=500ms@3; paced or with --allow-faults")
    add("--drain", type=_duration, default=30_000_000_000, help="how long running answers may take after SIGTERM")
    add("--seed", type=int, default=0, help="of the paced runner's tokens")
    _add_model_arguments(parser)
    _add_queue_arguments(parser)


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--quant", default="none", help="none, int8, int4[:gN][:sym|asym], int3[:gN], w8a8 or fp8")
    add("--kv-dtype", default="auto", choices=("auto", "int8", "fp8"), help="how keys and values are stored")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--attention", default="auto", help="auto, plain or fast")
    add("--graphs", action=argparse.BooleanOptionalAction, default=True, help="CUDA graphs for decode steps")
    add("--speculate", type=_speculation, default=Speculation(), help="none, ngram:K or draft:MODEL:K")


def _add_queue_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--growth-reserve", type=_Whole(0), default=0, help="KV blocks that an admission leaves free for growth")
    add("--priority-age", type=_duration, default=1_000_000_000,
        help="so much waiting is worth one step of priority; 0s: no ageing")  # fmt: skip
    add("--fair-share", action="store_true", help="the tenant that was served the fewest tokens goes first")
    add("--tenant-limit", type=_Whole(0), default=0, help="requests under way of one tenant (x-tenant); 0: no limit")
    add("--max-new-tokens", type=_Whole(0), default=0, help="tokens of one answer at most; 0: no limit of its own")
    add("--body-limit", type=_duration, default=60_000_000_000, help="how long a request's body may take to arrive")
    add("--journal", default="", metavar="FILE", help="write every request and step to FILE, JSON lines, prompts too")


def read(given: argparse.Namespace) -> ServeOptions:
    """The parsed flags as one value."""
    values = {
        "model": given.model, "runner": given.runner, "dtype": given.dtype, "max_seqs": given.max_seqs,
        "max_batched_tokens": given.max_batched_tokens, "max_prefill_tokens": given.max_prefill_tokens,
        "block_size": given.block_size, "kv_blocks": given.kv_blocks, "prefix_cache": given.prefix_cache,
        "policy": given.policy, "queue_limit": given.queue_limit, "max_wait_ns": given.max_wait,
        "max_model_len": given.max_model_len, "threads": given.threads, "host": given.host, "port": given.port,
        "served_model_name": given.served_model_name, "api_key": given.api_key or os.environ.get(_KEY_VARIABLE, ""),
        "allow_faults": given.allow_faults, "fault": given.fault, "drain_ns": given.drain, "seed": given.seed,
        "quant": given.quant, "kv_dtype": given.kv_dtype, "device": given.device, "attention": given.attention,
        "graphs": given.graphs, "speculate": given.speculate, "growth_reserve": given.growth_reserve,
        "age_ns": given.priority_age, "fair_share": given.fair_share, "tenant_limit": given.tenant_limit,
        "max_new_tokens": given.max_new_tokens, "body_limit_ns": given.body_limit, "journal": given.journal,
    }  # fmt: skip
    return ServeOptions(**values)


class _Whole:
    """A type of a flag: a whole number from low to high."""

    def __init__(self, low: int, high: int = 2**62) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> int:
        right = text.isascii() and text.lstrip("-").isdecimal() and len(text) <= _MAX_DIGITS
        if right and not text.startswith("--") and self._low <= int(text) <= self._high:
            return int(text)
        limits = f"of at least {self._low}" if self._high == 2**62 else f"from {self._low} to {self._high}"
        raise argparse.ArgumentTypeError(f"{text[:_MAX_DIGITS]!r}: a whole number {limits} is expected")


def _blocks(text: str) -> int:
    return 0 if text == "auto" else _Whole(1, _MAX_BLOCKS)(text)


def _speculation(text: str) -> Speculation:
    if text == "none":
        return Speculation()
    kind, _, rest = text.partition(":")
    model, _, count = rest.rpartition(":")
    right = count.isascii() and count.isdecimal() and 1 <= int(count[:9]) <= _MAX_DRAFTS
    if not right or (kind, bool(model)) not in (("ngram", False), ("draft", True)):
        raise argparse.ArgumentTypeError(
            f"{text!r}: none, ngram:K or draft:MODEL:K is expected, K from 1 to {_MAX_DRAFTS}"
        )
    return Speculation(kind, model, int(count))


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: a port from 0 to 65535 is expected")
    return int(text)


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
