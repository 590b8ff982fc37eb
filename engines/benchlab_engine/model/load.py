"""From a path to a model that can run.

The one idea: the room's public door: look at what the path is, read it, and say what it weighs. It must not know the
server or the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchlab_engine.errors import USAGE, EngineError
from benchlab_engine.model import weights
from benchlab_engine.model.config import tiny
from benchlab_engine.model.decoder import Decoder
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.runner import TorchRunner

# bf16 and fp16 run on any CPU, but without the right instructions much slower than fp32: auto takes fp32.
_DTYPES = {"auto": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_AUTO_KV_BYTES = 1 << 30


class Model:
    """A loaded decoder. metadata: the GGUF file's, else None."""

    def __init__(self, decoder: Decoder, metadata: Mapping[str, Any] | None, source: str) -> None:
        self.decoder = decoder
        self.metadata = metadata
        self._source = source
        self._kv: PagedKv | None = None

    @property
    def max_positions(self) -> int:
        """Tokens of the longest sequence."""
        return self.decoder.config.max_positions

    def auto_blocks(self, block_size: int, wanted_tokens: int) -> int:
        """Blocks for wanted_tokens, at most 1 GiB of them."""
        row = self.decoder.config.kv_bytes_per_token(self.decoder.dtype.itemsize)
        return max(1, min(-(-wanted_tokens // block_size), _AUTO_KV_BYTES // (row * block_size)))

    def runner(self, num_blocks: int, block_size: int) -> TorchRunner:
        """Allocate the cache and warm up."""
        try:
            self._kv = PagedKv(self.decoder.config, num_blocks, block_size, self.decoder.dtype)
        except RuntimeError as error:
            row = self.decoder.config.kv_bytes_per_token(self.decoder.dtype.itemsize) * block_size
            raise EngineError(
                f"no memory for {num_blocks} KV blocks of {row} bytes; lower --kv-blocks ({error})"
            ) from None
        runner = TorchRunner(self.decoder, self._kv)
        runner.warm_up()
        return runner

    def ledger(self) -> dict[str, int | str]:
        """Where the memory went, bytes."""
        config, kv = self.decoder.config, self._kv
        return {
            "model": self._source,
            "dtype": str(self.decoder.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "weights": self.decoder.num_bytes,
            "kv": 0 if kv is None else kv.num_bytes,
            "kv_per_token": config.kv_bytes_per_token(self.decoder.dtype.itemsize),
        }


def load(path: Path | None, seed: int, dtype: str, threads: int, tiny_vocabulary: int) -> Model:
    """Read a directory or a GGUF file, or (path None) draw a tiny model by seed. threads 0: torch's choice."""
    if threads:
        torch.set_num_threads(threads)
    chosen = _DTYPES[dtype]
    if path is None:
        config = tiny(tiny_vocabulary)
        return Model(Decoder(config, weights.random(config, seed), chosen), None, f"{seed}:tiny")
    if path.is_dir():
        config, tensors = weights.read_directory(path)
        return Model(Decoder(config, tensors, chosen), None, str(path))
    if path.suffix != ".gguf":
        raise EngineError(f"{path} is neither a directory nor a .gguf file", USAGE)
    config, tensors, metadata = weights.read_gguf(path)
    return Model(Decoder(config, tensors, chosen), metadata, str(path))
