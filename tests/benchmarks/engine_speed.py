"""`python -m tests.benchmarks.engine_speed`: the reference engine's speed against transformers on the same torch.

    --quick          fewer pairs and steps
    --threads N      of both (default 2)
    --cpu-clock      CPU time of this process instead of wall time: for a machine that is shared, with --threads 1
    --write FILE     put the table between FILE's two markers
    --rehearse       run the part for a GPU with a toy model on whatever device there is; its figures mean nothing

Every figure is a median of pairs: ours and theirs in turn, in one process, on the same weights, so that what else the
machine does touches both. Ratios above 1 are in our favour.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.engine_speed_table import Row, insert, lacks, table

PROMPT, CONTEXT_BLOCK = 32, 16
_CPU_CLOCK = "--cpu-clock" in sys.argv


def clock() -> float:
    """Seconds."""
    return time.process_time() if _CPU_CLOCK else time.perf_counter()


def measure_pairs(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> tuple[float, float, float]:
    """Medians of both, seconds, and of the pairs' ratios theirs / ours; one unmeasured pair comes first."""
    ours(), theirs()
    found = [(ours(), theirs()) for _ in range(pairs)]
    mine, others = zip(*found, strict=True)
    return statistics.median(mine), statistics.median(others), statistics.median(b / a for a, b in found)


class Ours:
    """A model behind the whole engine: scheduler, decoder, sampler."""

    def __init__(self, model, num_blocks: int, max_seqs: int, longest: int) -> None:
        self.model = model
        self.num_blocks, self.max_seqs, self.longest = num_blocks, max_seqs, longest
        self.runner = model.runner(num_blocks, CONTEXT_BLOCK, max_seqs=max_seqs, max_batched_tokens=longest)
        self._made = 0

    def engine(self, batch: int, prompt: int, new: int):
        from benchlab_engine.core.loop import Engine
        from benchlab_engine.core.request import RequestSpec
        from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig

        config = SchedulerConfig(
            num_blocks=self.num_blocks, block_size=CONTEXT_BLOCK, max_seqs=self.max_seqs, prefix_cache=False,
            max_batched_tokens=max(self.longest, batch * prompt), max_model_len=prompt + new + 1,
        )  # fmt: skip
        engine = Engine(Scheduler(config), self.runner, time.monotonic_ns)
        for index in range(batch):
            self._made += 1
            spec = RequestSpec(str(self._made), ids(prompt, index), new)
            if engine.submit(spec, 0) is not None:
                raise RuntimeError("the benchmark's own requests are refused")
        return engine

    def decode(self, batch: int, steps: int) -> float:
        """Seconds a step, after the prompts' own."""
        engine = self.engine(batch, PROMPT, steps + 1)
        step(engine)
        start = clock()
        count = 0
        while engine.scheduler.requests:
            step(engine)
            count += 1
        synchronise()
        assert count == steps, (count, steps)
        return (clock() - start) / steps

    def prefill(self, tokens: int) -> float:
        """Seconds from a prompt to its first token."""
        engine = self.engine(1, tokens, 1)
        start = clock()
        while engine.scheduler.requests:
            step(engine)
        synchronise()
        return clock() - start


class Theirs:
    """transformers' generate, its cache and all."""

    def __init__(self, model) -> None:
        self.model = model

    def _generate(self, batch: int, prompt: int, new: int) -> float:
        import torch

        tokens = torch.tensor([ids(prompt, index) for index in range(batch)], device=self.model.device)
        start = clock()
        with torch.inference_mode():
            self.model.generate(
                tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, min_new_tokens=new,
                do_sample=False, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        synchronise()
        return clock() - start

    def decode(self, batch: int, steps: int) -> float:
        """Seconds a step: many tokens less one token."""
        return (self._generate(batch, PROMPT, steps + 1) - self._generate(batch, PROMPT, 1)) / steps

    def prefill(self, tokens: int) -> float:
        """Seconds of the forward pass alone, logits of the last position only."""
        import torch

        prompt = torch.tensor([ids(tokens, 0)], device=self.model.device)
        start = clock()
        with torch.inference_mode():
            self.model(prompt, use_cache=True, logits_to_keep=1).logits[0, -1].argmax().item()
        return clock() - start


def ids(count: int, seed: int) -> tuple[int, ...]:
    """A prompt without a common beginning with others'."""
    return tuple(5 + (seed * 7919 + place * 31) % 200 for place in range(count))


def step(engine) -> None:
    outcome = engine.step()
    if outcome.error:
        raise RuntimeError(outcome.error)


def synchronise() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def cpu(threads: int, quick: bool) -> Iterator[Row]:
    """SmolLM2-135M in fp32."""
    import torch

    from benchlab_engine import fetch
    from benchlab_engine.model.load import load

    path = fetch.find("smollm2-135m")
    if path is None:
        yield Row("SmolLM2-135M on a CPU", note="not measured: python -m benchlab_engine fetch smollm2-135m")
        return
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    pairs, steps = (3, 8) if quick else (9, 24)
    model = load(path, 0, "fp32", threads, 258, device="cpu")
    ours = Ours(model, 32 * 8 + 40, 32, 512)
    theirs = Theirs(AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval())
    bandwidth = read_bandwidth("cpu")
    yield Row("memory read, this machine", f"{bandwidth / 1e9:.1f} GB/s")
    for batch, target in ((1, 1.3), (8, 1.1), (32, 1.1)):
        each = steps if batch < 32 else max(6, steps // 2)
        a, b, ratio = measure_pairs(lambda: ours.decode(batch, each), lambda: theirs.decode(batch, each), pairs)  # noqa: B023
        share = f"{model.decoder.num_bytes / bandwidth / a:.0%} of the floor" if batch == 1 else ""
        yield Row(f"decode, batch {batch}", f"{batch / a:.1f} tok/s", f"{batch / b:.1f} tok/s", ratio, target, share)
    a, b, ratio = measure_pairs(lambda: ours.prefill(512), lambda: theirs.prefill(512), max(3, pairs // 2))
    yield Row("prefill of 512", f"{512 / a:.0f} tok/s", f"{512 / b:.0f} tok/s", ratio, 1.0)
    try:
        small = Ours(load(path, 0, "fp32", threads, 258, device="cpu", quant="int8"), 16, 1, 64)
    except Exception as error:
        yield Row("int8 weights, batch 1", note=f"not measured: {error}")
        return
    a, b, ratio = measure_pairs(lambda: small.decode(1, steps), lambda: ours.decode(1, steps), pairs)
    share = f"{small.model.decoder.num_bytes / bandwidth / a:.0%} of its own floor"
    yield Row("int8 weights, batch 1, against our fp32", f"{1 / a:.1f} tok/s", f"{1 / b:.1f} tok/s", ratio, 1.3, share)


def gpu(quick: bool, rehearse: bool) -> Iterator[Row]:
    """A random Llama of 8B parameters (a toy one in a rehearsal) in bf16 and int4."""
    import torch

    if not (torch.cuda.is_available() or rehearse):
        yield Row("Llama 8B shape on a GPU, bf16 and int4", note="not measured: no CUDA device")
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    from benchlab_engine.model.load import Model
    from tests.benchmarks.engine_speed_models import decoder_of, shape, transformers_of

    config = shape(toy=rehearse)
    pairs, steps, prompt = (3, 16, 512) if quick or rehearse else (7, 64, 2048)
    prompt = 64 if rehearse else prompt
    bandwidth, flops = read_bandwidth(device.type), matrix_rate(device)
    yield Row("memory read, this device", f"{bandwidth / 1e9:,.0f} GB/s")
    yield Row("matrix products, this device", f"{flops / 1e12:,.1f} TFLOP/s", note="bf16, 8192 a side")
    for quant in ("none", "int4"):
        name = "bf16" if quant == "none" else quant
        try:
            model = Model(decoder_of(config, quant, device), None, name, quant)
            ours = Ours(
                model, 32 * (-(-(PROMPT + steps) // CONTEXT_BLOCK) + 1) + prompt // CONTEXT_BLOCK + 2, 32, prompt
            )
        except Exception as error:
            yield Row(f"{name} decode", note=f"not measured: {type(error).__name__}: {error}")
            continue
        theirs = Theirs(transformers_of(config, device)) if quant == "none" else None
        read = model.decoder.num_bytes - (0 if config.tied else model.decoder.embedding.nbytes)
        for batch in (1, 32):
            kv = batch * (PROMPT + steps // 2) * model.kv_per_token()
            floor = (read + kv) / bandwidth
            yield compared(
                f"{name} decode, batch {batch}",
                ours,
                theirs,
                pairs,
                batch,
                floor,
                lambda side: side.decode(batch, steps),  # noqa: B023
            )
        floor = 2 * (read / model.decoder.dtype.itemsize if quant == "none" else parameters(config)) * prompt / flops
        yield compared(
            f"{name} prefill of {prompt}", ours, theirs, pairs, prompt, floor, lambda side: side.prefill(prompt)
        )
        del model, ours, theirs
        if device.type == "cuda":
            torch.cuda.empty_cache()


def compared(title: str, ours, theirs, pairs: int, units: int, floor: float, run: Callable[..., float]) -> Row:
    """A row with the share of the floor (seconds) that was reached: 70% is aimed at for decode steps."""
    if theirs is None:
        run(ours)
        a = statistics.median(run(ours) for _ in range(pairs))
        return Row(title, f"{units / a:,.1f} tok/s", note=f"{floor / a:.0%} of the floor")
    a, b, ratio = measure_pairs(lambda: run(ours), lambda: run(theirs), pairs)
    return Row(title, f"{units / a:,.1f} tok/s", f"{units / b:,.1f} tok/s", ratio, note=f"{floor / a:.0%} of the floor")


def parameters(config) -> float:
    """Of the products that every token goes through."""
    from benchlab_engine.model.weights import shapes

    sizes = {name: shape[0] * shape[-1] for name, shape in shapes(config).items() if len(shape) > 1}
    return sum(sizes.values()) - (0 if config.tied else sizes["model.embed_tokens.weight"])


def read_bandwidth(kind: str) -> float:
    """Bytes a second, the best of some sums over an array that no cache holds."""
    import torch

    size = 256 << 20 if kind == "cpu" else 2 << 30
    x = torch.ones(size // 4, device=kind)
    best = 0.0
    for _ in range(12):
        start = clock()
        x.sum().item()
        best = max(best, size / (clock() - start))
    return best


def matrix_rate(device) -> float:
    """Multiply-adds x 2 a second of a large product in bf16."""
    import torch

    side = 8192 if device.type == "cuda" else 512
    x = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    best = 0.0
    for _ in range(10):
        synchronise()
        start = clock()
        x @ x
        synchronise()
        best = max(best, 2 * side**3 / (clock() - start))
    return best


def machine(threads: int) -> str:
    """What the figures were measured on."""
    import torch
    import transformers

    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {name}, {os.cpu_count()} cores, {threads} threads, {device}, "
        f"load {os.getloadavg()[0]:.1f} at the start, {'CPU' if _CPU_CLOCK else 'wall'} time; "
        f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.engine_speed")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-clock", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    if wrong := lacks(given.write):
        parser.error(wrong)
    where = machine(given.threads)
    parts = [gpu(True, True)] if given.rehearse else [cpu(given.threads, given.quick), gpu(given.quick, False)]
    rows: list[Row] = []
    for part in parts:
        for row in part:
            rows.append(row)
            print(row.line(), flush=True)
    if given.write is not None and not given.rehearse:
        given.write.write_text(insert(given.write.read_text("utf-8"), table(where, rows)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
