"""A tiny model behind a whole engine, with or without something that proposes; its exact law, and a test of that."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch

from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Work
from benchlab_engine.core.request import RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.model import weights
from benchlab_engine.model.batch import make_batch
from benchlab_engine.model.config import tiny
from benchlab_engine.model.decoder import Decoder
from benchlab_engine.model.draft import Draft
from benchlab_engine.model.kv import PagedKv
from benchlab_engine.model.logits import Row, chances
from benchlab_engine.model.runner import TorchRunner
from benchlab_engine.model.sampler import choose

SIZE = 4


def decoder(vocab, seed=0, noise=0.0, layers=2, scale=1.0):
    """Random weights; noise: how far from those of the seed. scale: of the embedding, so of the logits."""
    config = replace(tiny(vocab), num_layers=layers)
    tensors = dict(weights.random(config, seed))
    generator = torch.Generator().manual_seed(99)
    if noise:
        for name, tensor in tensors.items():
            tensors[name] = tensor + noise * tensor.std() * torch.randn(tensor.shape, generator=generator)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * scale
    return Decoder(config, tensors, torch.float32)


def runner_of(target, draft=None, blocks=256):
    """A runner over a target, with a draft model where one is given."""
    made = None
    if draft is not None:
        made = Draft(draft, PagedKv(draft.config, blocks, SIZE, torch.float32))
    return TorchRunner(target, PagedKv(target.config, blocks, SIZE, torch.float32), draft=made)


def serve(target, specs, draft=None, blocks=256, audit=True, **changes):
    """Token lists of the specs, in their order, and the scheduler; audit: the pool, after every step."""
    config = SchedulerConfig(block_size=SIZE, num_blocks=blocks, max_model_len=256, **changes)
    scheduler = Scheduler(config)
    engine = Engine(scheduler, runner_of(target, draft, blocks), lambda: 0)
    out = {spec.request_id: [] for spec in specs}
    for spec in specs:
        assert engine.submit(spec, 0) is None
    while scheduler.requests:
        outcome = engine.step()
        assert outcome.error is None, outcome.error
        if audit:
            scheduler.audit()
        for emission in outcome.emissions:
            out[emission.request_id].append(emission.token)
    return list(out.values()), scheduler


def spec(name, prompt, count, sampling, **more):
    """A request of `count` tokens."""
    return RequestSpec(str(name), tuple(prompt), count, sampling, **more)


def logits_after(target, prefixes):
    """The model's logits after each prefix, every one computed whole and alone in its blocks."""
    width = -(-max(len(prefix) for prefix in prefixes) // SIZE)
    kv = PagedKv(target.config, width * len(prefixes), SIZE, torch.float32)
    works = [
        Work(str(place), tuple(prefix), 0, tuple(range(place * width, (place + 1) * width)), True, False)
        for place, prefix in enumerate(prefixes)
    ]
    with torch.inference_mode():
        batch = make_batch(works, SIZE)
        found = target.forward(batch, kv)
    by_name = {work.request_id: row for work, row in zip(batch.sampling, found, strict=True)}
    return torch.stack([by_name[work.request_id] for work in works])


def law(target, prompt, sampling, length):
    """The exact chance of every answer of that length by plain sampling."""
    found = {(): 1.0}
    for index in range(length):
        prefixes = list(found)
        logits = logits_after(target, [(*prompt, *prefix) for prefix in prefixes])
        rows = [Row(sampling, index, prompt=tuple(prompt), output=prefix) for prefix in prefixes]
        share = chances(logits, rows)
        found = {
            (*prefix, token): found[prefix] * float(share[place, token])
            for place, prefix in enumerate(prefixes)
            for token in range(target.config.vocab_size)
        }
    return found


def deviation(answers, chances: Mapping[tuple[int, ...], float]):
    """Chi-square of the answers against their exact chances, in standard deviations above its mean.

    Cells of under five expected are joined; an answer that has no chance makes it infinite.
    """
    runs = len(answers)
    expected, seen = {key: chance * runs for key, chance in chances.items()}, Counter(map(tuple, answers))
    if any(expected[key] == 0 for key in seen):
        return math.inf
    cells = [(seen[key], value) for key, value in expected.items() if value >= 5]
    rest = (runs - sum(hit for hit, _ in cells), runs - sum(value for _, value in cells))
    cells += [rest] if rest[1] >= 5 else []
    freedom = len(cells) - 1
    return (sum((hit - value) ** 2 / value for hit, value in cells) - freedom) / math.sqrt(2 * freedom)


def sample(logits, samplings, indices):
    """Tokens of rows [rows, vocab] that know no bans and no history."""
    return choose(logits, [Row(sampling, index) for sampling, index in zip(samplings, indices, strict=True)])
