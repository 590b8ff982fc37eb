"""From options to an engine: the one place that knows both runners.

The one idea: torch is imported only when its runner is asked for, so the paced engine serves without it. It must not
know HTTP.
"""

from __future__ import annotations

import string
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchlab_engine import fetch
from benchlab_engine.core.journal import Journal
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Runner
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.errors import CANNOT_LOAD, USAGE, EngineError
from benchlab_engine.serve.journal_file import JournalFile
from benchlab_engine.serve.options import ServeOptions
from benchlab_engine.serve.tokens import ByteVocabulary, Vocabulary
from benchlab_engine.sim.costs import parse_profile
from benchlab_engine.sim.runner import PacedRunner, SleepingPace

_PACED_CONTEXT = 32_768
_PACED_BLOCKS = 8_192
_VISIBLE = tuple((string.ascii_lowercase + "     ").encode())  # what the paced runner writes


@dataclass(frozen=True, slots=True)
class Built:
    """An engine that can step, its vocabulary, its name, and where its memory went (bytes by part)."""

    engine: Engine
    vocabulary: Vocabulary
    name: str
    ledger: Mapping[str, int | str]
    journal_file: JournalFile | None = None

    def close(self) -> None:
        """Write out what is left of the journal. The engine has stopped."""
        if self.journal_file is not None:
            self.journal_file.close()


def build(options: ServeOptions) -> Built:
    """Load what the options name. EngineError says what failed."""
    kind, _, profile = options.runner.partition(":")
    if kind != "paced" and options.runner != "torch":
        raise EngineError(f"--runner {options.runner!r} is not known; use torch or paced:PROFILE", USAGE)
    file = JournalFile(Path(options.journal)) if options.journal else None
    journal = Journal(sink=file)
    try:
        built = _paced(options, profile, journal) if kind == "paced" else _torch(options, journal)
    except BaseException:
        if file is not None:
            file.discard()
        raise
    return replace(built, journal_file=file)


def _paced(options: ServeOptions, profile: str, journal: Journal) -> Built:
    try:
        costs = parse_profile(profile or "null")
    except ValueError as error:
        raise EngineError(f"--runner: {error}", USAGE) from None
    for flag, value, usual in (
        ("--quant", options.quant, "none"), ("--kv-dtype", options.kv_dtype, "auto"),
        ("--attention", options.attention, "auto"), ("--device", options.device, "auto"),
    ):  # fmt: skip
        if value != usual:
            raise EngineError(
                f"{flag} {value}: a paced runner has no tensors; a profile says what they would cost, such as "
                "--runner paced:roofline:h100:llama-3-8b,weights=int4",
                USAGE,
            )
    runner = PacedRunner(costs, _VISIBLE, SleepingPace(), options.seed)
    name = options.served_model_name or options.model or "paced"
    config = _config(options, name, options.kv_blocks or _PACED_BLOCKS, options.max_model_len or _PACED_CONTEXT)
    ledger: dict[str, int | str] = {"runner": options.runner, "weights": 0, "kv": 0}
    return Built(_engine(config, runner, journal), ByteVocabulary(), name, ledger)


def _torch(options: ServeOptions, journal: Journal) -> Built:
    if not options.model:
        raise EngineError("--model is missing; use smollm2-135m, a directory, FILE.gguf or tiny", USAGE)
    try:
        import torch  # noqa: F401
    except ImportError:
        raise EngineError(
            "the torch runner needs PyTorch: pip install 'benchlab[engine]', or use --runner paced:teaching",
            CANNOT_LOAD,
        ) from None
    from benchlab_engine.model.load import load
    from benchlab_engine.serve.tokens_model import vocabulary_of

    path, seed = _locate(options.model)
    model = load(
        path, seed, options.dtype, options.threads, ByteVocabulary.SIZE, device=options.device, quant=options.quant
    )
    draft = None
    if options.speculate.kind == "draft":
        draft_path, draft_seed = _locate(options.speculate.model, "--speculate draft")
        draft = load(draft_path, draft_seed, options.dtype, options.threads, ByteVocabulary.SIZE, device=options.device)
    most = model.max_positions if draft is None else min(model.max_positions, draft.max_positions)
    context = options.max_model_len or most
    if context > most:
        whose = options.model if most == model.max_positions else options.speculate.model
        raise EngineError(f"--max-model-len {context} is more than the {most} positions of {whose}", USAGE)
    sizes = {"max_seqs": options.max_seqs, "max_batched_tokens": options.max_batched_tokens}
    blocks = options.kv_blocks or model.auto_blocks(
        options.block_size, options.max_seqs * context, options.kv_dtype, draft=draft, **sizes
    )
    name = options.served_model_name or (options.model if path is None or not path.exists() else _short(options.model))
    config = _config(options, f"{options.model}/{options.dtype}/{options.quant}", blocks, context)
    vocabulary = ByteVocabulary() if path is None else vocabulary_of(path, model.metadata)
    runner = model.runner(
        blocks,
        options.block_size,
        kv_dtype=options.kv_dtype,
        attention=options.attention,
        graphs=options.graphs,
        draft=draft,
        **sizes,
    )
    return Built(_engine(config, runner, journal), vocabulary, name, model.ledger())


def _short(model: str) -> str:
    return model if model in fetch.SOURCES else Path(model).name.removesuffix(".gguf")


def _locate(model: str, flag: str = "--model") -> tuple[Path | None, int]:
    """Where the weights lie; None and a seed for a random tiny model."""
    seed, _, tail = model.rpartition(":")
    if tail == "tiny":
        if seed and not seed.isdecimal():
            raise EngineError(f"{flag} {model!r}: SEED:tiny needs a whole number, such as 7:tiny", USAGE)
        return None, int(seed or "0")
    if model in fetch.SOURCES:
        found = fetch.find(model)
        if found is None:
            raise EngineError(
                f"{model} is not on this machine ({fetch.shelf_path(model)}); run: benchlab engine fetch {model}"
            )
        return found, 0
    path = Path(model)
    if not path.exists():
        known = ", ".join(fetch.SOURCES)
        raise EngineError(f"{flag} {model}: no such file or directory, and no known name ({known}, tiny, SEED:tiny)")
    return path, 0


def _config(options: ServeOptions, model_id: str, blocks: int, context: int) -> SchedulerConfig:
    return SchedulerConfig(
        max_seqs=options.max_seqs,
        max_batched_tokens=options.max_batched_tokens,
        max_prefill_tokens=options.max_prefill_tokens,
        block_size=options.block_size,
        num_blocks=blocks,
        max_model_len=context,
        queue_limit=options.queue_limit,
        policy=options.policy,
        prefix_cache=options.prefix_cache,
        model_id=model_id,
        kv_format=options.kv_dtype,
        growth_reserve=options.growth_reserve,
        max_new_tokens=options.max_new_tokens,
        age_ns=options.age_ns,
        fair_share=options.fair_share,
        speculate={"draft": "runner"}.get(options.speculate.kind, options.speculate.kind),
        num_drafts=options.speculate.count,
    )


def _engine(config: SchedulerConfig, runner: Runner, journal: Journal) -> Engine:
    try:
        return Engine(Scheduler(config), runner, time.monotonic_ns, journal)
    except ValueError as error:
        raise EngineError(str(error), USAGE) from None
