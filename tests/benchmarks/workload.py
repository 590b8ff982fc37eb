"""What reading a workload costs: a million Mooncake-like rows read, checked and summarised, beside plain readings.

    python -m tests.benchmarks.workload [--rows 1000000] [--text-mb 500] [--pairs 3]

Each reading runs in a process of its own, in turn: ours; `json.loads` of each line with the same sums of lengths and
the span, without checks; and pandas' `read_json(lines=True)` with the same. CPU seconds and peak memory of each
process (interpreter and imports included), medians. The last line is a file of texts, read and summarised by ours:
its text stays in the file.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_BLOCK = 512


def write_trace(path: Path, rows: int) -> int:
    """Chains of blocks that grow from conversation to conversation, ids in order of their first use; returns ids."""
    draw, fresh, total = random.Random(1), 0, 0
    chains: list[list[int]] = []
    with path.open("w") as file:
        for row in range(rows):
            tokens = max(1, int(draw.lognormvariate(9, 0.9)))
            blocks = -(-tokens // _BLOCK)
            chain = chains[draw.randrange(len(chains))] if chains and draw.random() < 0.45 else []
            kept = chain[: min(draw.randrange(len(chain) + 1), blocks - 1)] if chain else []
            ids = [*kept, *range(fresh, fresh + blocks - len(kept))]
            fresh, total = fresh + blocks - len(kept), total + blocks
            chains.append(ids[:-1])
            if len(chains) > 5000:
                chains.pop(0)
            item = {
                "timestamp": 300 * row,
                "input_length": tokens,
                "output_length": draw.randrange(1, 900),
                "hash_ids": ids,
            }
            file.write(json.dumps(item) + "\n")
    return total


def write_texts(path: Path, size: int) -> None:
    """Prompts of 2,000 characters."""
    with path.open("w") as file:
        for row in range(size // 2060):
            file.write(json.dumps({"id": f"i{row}", "prompt": f"{row} " + "word " * 400, "output_tokens": 5}) + "\n")


def ours(path: str) -> None:
    from benchlab.workload.inspect import as_text, inspect
    from benchlab.workload.read import read_items

    print(as_text(inspect(read_items(path))), file=sys.stderr)


def loads(path: str) -> None:
    total = out = last = 0
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            total, out, last = total + row["input_length"], out + row["output_length"], row["timestamp"]
    print(total, out, last, file=sys.stderr)


def by_pandas(path: str) -> None:
    import pandas as pd

    frame = pd.read_json(path, lines=True, convert_dates=False)
    print(frame[["input_length", "output_length"]].describe(), frame["timestamp"].max(), file=sys.stderr)


READINGS = {"ours": ours, "json.loads": loads, "pandas": by_pandas}


def measured(name: str, path: Path) -> tuple[float, float, float]:
    """CPU s, wall s and peak MiB of one reading in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.workload", "--one", name, "--file", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cpu, wall, peak = json.loads(done.stdout)
    return cpu, wall, peak


def row(title: str, found: list[tuple[float, float, float]]) -> None:
    cpu, wall, peak = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"{title:<44} {cpu:>7.2f} s CPU {wall:>7.2f} s wall {peak:>7.0f} MiB   ({len(found)} runs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--text-mb", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--one", choices=READINGS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.one:
        start = time.perf_counter()
        READINGS[flags.one](flags.file)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([time.process_time(), time.perf_counter() - start, peak]))
        return
    with tempfile.TemporaryDirectory() as folder:
        trace, texts = Path(folder, "trace.jsonl"), Path(folder, "texts.jsonl")
        ids = write_trace(trace, flags.rows)
        print(f"{flags.rows:,} rows, {ids:,} block ids, {trace.stat().st_size / 1e6:,.0f} MB")
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in READINGS}
        for _ in range(flags.pairs):
            for name in READINGS:
                found[name].append(measured(name, trace))
        row("ours: read, checked, hits and percentiles", found["ours"])
        row("json.loads a line: sums and span alone", found["json.loads"])
        row("pandas.read_json: describe alone", found["pandas"])
        if flags.text_mb:
            write_texts(texts, flags.text_mb * 10**6)
            row(f"ours: {flags.text_mb:,} MB of texts", [measured("ours", texts)])


if __name__ == "__main__":
    main()
