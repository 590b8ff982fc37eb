"""What making a workload costs: text by estimate and to the token, items of recipes, and schedules of arrivals.

    python -m tests.benchmarks.workload_make [TOKENIZER]

CPU time of this process (wall times on shared machines are noise), the median of five runs. TOKENIZER is a
tokenizer.json, its folder, or a GGUF file; without one a byte-level vocabulary of 2,000 entries is trained on our own
words. Its own speed is that of one count of the same texts; exact text cannot be made faster than that.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import make, to_bytes
from benchlab.workload.recipes import fixed
from benchlab.workload.text import make_texts
from benchlab.workload.tokens import Counter, counter_named, from_callable
from benchlab.workload.words import BODY, LEAD

_RUNS = 5
_ARRIVALS = 10_000_000


def _seconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_RUNS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


def _row(title: str, figure: float, unit: str, target: str = "") -> None:
    print(f"{title:<62}{figure:>10.2f} {unit:<6}{target}")


def _counter() -> Counter:
    if len(sys.argv) > 1:
        return counter_named(sys.argv[1])
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([" ".join([*BODY, *LEAD])] * 3, trainer)
    return from_callable(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), "trained here")


def _count_all(counter: Counter, prompts: list[str]) -> int:
    return sum(map(counter, prompts))


def texts() -> None:
    """MB/s of text of three shapes, by estimate, to the token, and of the tokenizer alone."""
    counter = _counter()
    print(f"tokenizer: {counter.source}")
    shapes: dict[str, list[WorkloadItem]] = {
        "2,000 tokens each, nothing shared": make(fixed(2000, 8), 0, 200),
        "2,000 tokens, 1,200 shared (support-assistant)": make("support-assistant", 0, 200),
        "12,000 tokens in chains of blocks (mooncake-conv)": make("mooncake-conv", 0, 60),
    }
    for name, items in shapes.items():
        exact = make_texts(items, key="k", count=counter)
        prompts = [item.prompt or "" for item in exact.items]
        size = sum(map(len, prompts)) / 1e6
        _row(f"{name}: by estimate", size / _seconds(partial(make_texts, items, key="k")), "MB/s", "  (at least 20)")
        own = size / _seconds(partial(_count_all, counter, prompts))
        made = size / _seconds(partial(make_texts, items, key="k", count=counter))
        _row("  to the token", made, "MB/s", f"  (at least 1; the tokenizer alone {own:.2f})")
        print(f"  {exact.note()}")


def recipes() -> None:
    """Items a second of the fitted recipes, 100,000 at a time, with the bytes of their lines."""
    for name in ("azure-code", "mooncake-conv", "servegen-reasoning", "agent-platform"):
        took = _seconds(partial(make, name, 0, 100_000))
        size = len(to_bytes(make(name, 0, 10_000))) / 10_000
        _row(f"{name}: 100,000 items of {size:,.0f} bytes", took, "s")


def schedules() -> None:
    """Seconds for ten million arrivals of each kind, as the plan of a load makes them."""
    from benchlab.loadgen.arrivals import arrival_times, parse_arrival

    for word in ("constant", "poisson", "gamma:2", "weibull:2", "mmpp"):
        arrival = parse_arrival(word)
        took = _seconds(partial(arrival_times, arrival, rate=1e4, until_ns=None, count=_ARRIVALS, seed=0))
        _row(f"schedule of 10,000,000 arrivals, {word}", took, "s", "  (under 3)")


if __name__ == "__main__":
    texts()
    recipes()
    schedules()
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
