"""From a path to a model that can run.

The one idea: the room's public door: look at what the path is, read it onto a device, measure what a step needs, and
say where the memory went. It must not know the server or the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchlab_engine.errors import USAGE, EngineError
from benchlab_engine.model import weights
from benchlab_engine.model.attention import choose
from benchlab_engine.model.config import DecoderConfig, tiny
from benchlab_engine.model.decoder import Decoder
from benchlab_engine.model.draft import Draft
from benchlab_engine.model.kv import PagedKv, kv_format
from benchlab_engine.model.memory import RESERVE, Peak, blocks_on_cpu, blocks_that_fit, check_room, peak, phase
from benchlab_engine.model.quant import head_maker, maker, parse
from benchlab_engine.model.runner import Forward, TorchRunner

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Model:
    """A loaded decoder. metadata: the GGUF file's, else None."""

    def __init__(self, decoder: Decoder, metadata: Mapping[str, Any] | None, source: str, quant: str = "none") -> None:
        self.decoder = decoder
        self.metadata = metadata
        self._source = source
        self._quant = quant
        self._kv: PagedKv | None = None
        self._peak: Peak | None = None
        self._draft: Model | None = None
        self._graphs = False

    @property
    def max_positions(self) -> int:
        """Tokens of the longest sequence."""
        return self.decoder.config.max_positions

    def kv_per_token(self, kv_dtype: str = "auto") -> int:
        """Bytes of one position in the cache, scales counted."""
        return kv_format(kv_dtype, self.decoder.dtype).bytes_per_token(self.decoder.config)

    def auto_blocks(
        self,
        block_size: int,
        wanted_tokens: int,
        kv_dtype: str = "auto",
        *,
        draft: Model | None = None,
        max_seqs: int = 16,
        max_batched_tokens: int = 512,
    ) -> int:
        """Blocks for wanted_tokens: on a CPU at most 1 GiB of them; on CUDA what the free memory holds beside the
        largest step, up to four times as many."""
        block_bytes = block_size * (self.kv_per_token(kv_dtype) + (draft.kv_per_token(kv_dtype) if draft else 0))
        wanted = -(-wanted_tokens // block_size)
        if self.decoder.device.type != "cuda":
            return blocks_on_cpu(block_bytes, wanted)
        try:
            self._allocate(-(-max_batched_tokens // block_size) + 1, block_size, kv_dtype, spare=0)
            most = self._measure(TorchRunner(self.decoder, self._cache), max_seqs, max_batched_tokens).num_bytes
        finally:
            self._kv = None
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self.decoder.device)
        return blocks_that_fit(free, most, block_bytes, wanted)

    def runner(
        self,
        num_blocks: int,
        block_size: int,
        *,
        kv_dtype: str = "auto",
        attention: str = "auto",
        graphs: bool = True,
        draft: Model | None = None,
        max_seqs: int = 16,
        max_batched_tokens: int = 512,
    ) -> TorchRunner:
        """Allocate the cache, run the largest steps once, and capture decode steps where the device can.

        graphs: CUDA with the fast attention path only; elsewhere it changes nothing. EngineError names the phase that
        failed: kv, prefill, graph capture.
        """
        self._allocate(
            num_blocks, block_size, kv_dtype, spare=1 if graphs and self.decoder.device.type == "cuda" else 0
        )
        self.decoder.attention = choose(attention, self.decoder.device, self._cache)
        proposer = None
        if draft is not None:
            draft._allocate(num_blocks, block_size, kv_dtype, spare=0)
            draft.decoder.attention = choose(attention, draft.decoder.device, draft._cache)
            proposer = Draft(draft.decoder, draft._cache)
        self._draft = draft
        runner = TorchRunner(self.decoder, self._cache, draft=proposer)
        self._peak = self._measure(runner, max_seqs, max_batched_tokens)
        captured = self._capture(max_seqs) if graphs else None
        self._graphs = captured is not None
        return TorchRunner(self.decoder, self._cache, graphs=captured, draft=proposer) if captured else runner

    def ledger(self) -> dict[str, int | str]:
        """Where the memory went, bytes; after runner(): with cache and workspace."""
        parts, kv, draft = self.decoder.parts(), self._kv, self._draft
        found: dict[str, int | str] = {
            "model": self._source,
            "device": _device_name(self.decoder.device),
            "dtype": str(self.decoder.dtype).removeprefix("torch."),
            "quant": self._quant,
            "products": "; ".join(sorted({each.kind for layer in self.decoder.layers for each in layer.linears})),
            "head": f"{_head_of(self.decoder)}, {self.decoder.head.kind}",
            "attention": self.decoder.attention.name,
            "graphs": "on" if self._graphs else "off",
            "threads": torch.get_num_threads(),
            "weights": sum(parts.values()),
            "weights_packed": parts["packed"],
            "weights_scales": parts["scales"],
            "weights_high_precision": parts["high_precision"],
            "kv": 0 if kv is None else kv.num_bytes,
            "kv_dtype": "auto" if kv is None else kv.format.name,
            "kv_per_token": self.kv_per_token("auto" if kv is None else kv.format.name),
            "reserve": RESERVE if self.decoder.device.type == "cuda" else 0,
            "draft_weights": 0 if draft is None else draft.decoder.num_bytes,
            "draft_kv": 0 if draft is None or draft._kv is None else draft._kv.num_bytes,
        }
        if self._peak is None:
            return found | {"workspace_peak": 0, "workspace_method": "not measured"}
        return found | {"workspace_peak": self._peak.num_bytes, "workspace_method": self._peak.method}

    @property
    def _cache(self) -> PagedKv:
        if self._kv is None:
            raise EngineError("no cache has been allocated")
        return self._kv

    def _allocate(self, num_blocks: int, block_size: int, kv_dtype: str, spare: int) -> None:
        decoder = self.decoder
        self._kv = None  # an earlier one goes first
        with phase("kv"):
            check_room(num_blocks * block_size * self.kv_per_token(kv_dtype), decoder.device)
            self._kv = PagedKv(decoder.config, num_blocks, block_size, decoder.dtype, kv_dtype, decoder.device, spare)

    def _measure(self, runner: TorchRunner, max_seqs: int, max_batched_tokens: int) -> Peak:
        """Memory that the largest steps need beside weights and cache."""
        # The positions that the steps write are the cache's, not workspace: their pages are touched beforehand.
        touched = min(max_batched_tokens + runner.kv.block_size, runner.kv.rows.shape[1])
        runner.kv.rows[:, :touched].zero_()
        with phase("prefill"):
            return peak(self.decoder.device, lambda: runner.warm_up(max_seqs, max_batched_tokens))

    def _capture(self, max_seqs: int) -> Forward | None:
        if self.decoder.device.type != "cuda" or self.decoder.attention.name != "fast":
            return None
        from benchlab_engine.model.graphs import DecodeGraphs

        kv = self._cache
        longest = min(kv.num_blocks, -(-self.max_positions // kv.block_size))
        return DecodeGraphs(self.decoder, kv, max_seqs, longest)


def load(
    path: Path | None,
    seed: int,
    dtype: str,
    threads: int,
    tiny_vocabulary: int,
    *,
    device: str = "auto",
    quant: str = "none",
) -> Model:
    """Read a directory or a GGUF file, or (path None) draw a tiny model by seed. threads 0: torch's choice.

    device: auto is CUDA where torch sees a device, else the CPU. dtype: auto is fp32 on a CPU (half precision is slow
    there without instructions of its own), on CUDA bf16, or fp16 where the device has no bf16.
    """
    if threads:
        torch.set_num_threads(threads)
    place = device_of(device)
    chosen, asked = dtype_of(dtype, place), parse(quant)
    make, head = maker(asked, place), head_maker(asked)
    config: DecoderConfig
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any] | None = None
    with phase("load"):
        if path is None:
            config = tiny(tiny_vocabulary)
            tensors = weights.random(config, seed)
        elif path.is_dir():
            config, tensors = weights.read_directory(path)
        elif path.suffix == ".gguf":
            config, tensors, metadata = weights.read_gguf(path)
        else:
            raise EngineError(
                f"{path} is neither a directory nor a .gguf file; "
                "give a fetched name, a Hugging Face directory or a GGUF file",
                USAGE,
            )
        decoder = Decoder(config, tensors, chosen, make, place, head)
    return Model(decoder, metadata, f"{seed}:tiny" if path is None else str(path), quant)


def device_of(name: str) -> torch.device:
    """EngineError for a device that is not known or not there."""
    if name == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    kind, _, index = name.partition(":")
    if kind not in {"cpu", "cuda"} or (index and not (kind == "cuda" and index.isdecimal())):
        raise EngineError(f"--device {name!r} is not known; use auto, cpu, cuda or cuda:N", USAGE)
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        build = "this build of torch is for CPUs only" if torch.version.cuda is None else "no driver or no device"
        raise EngineError(f"--device {name}: torch sees no CUDA device ({build}); use --device cpu")
    if int(index or 0) >= count:
        raise EngineError(f"--device {name}: torch sees {count} CUDA devices, numbered from 0")
    return torch.device("cuda", int(index) if index else torch.cuda.current_device())


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """auto by the device; EngineError for a name that is not known."""
    if name == "auto":
        if device.type == "cpu":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if name not in _DTYPES:
        raise EngineError(f"--dtype {name!r} is not known; use auto, {', '.join(_DTYPES)}", USAGE)
    return _DTYPES[name]


def _head_of(decoder: Decoder) -> str:
    if decoder.head_is_embedding:
        return "the embedding"
    return "a copy of the embedding" if decoder.config.tied else "its own matrix"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
