"""The bundled engine over HTTP beside other servers of the same model: output tokens a second at 1, 4 and 8 users.

    python -m tests.benchmarks.engine_served [--threads 2] [--runs 3] [--against NAME=URL ...] [--write FILE]

The measurement is benchlab's own (`benchlab run`, closed loop, 64 output tokens, about 56 in, prompts that share
nothing); servers take turns, medians over the runs. Each other server is started by whoever runs this, with the same
number of threads. Without one, ours is measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.engine_speed_table import insert, lacks
from tests.running import CLI, environment

START, END = "<!-- engine_served: start -->", "<!-- engine_served: end -->"
USERS = (1, 4, 8)


def main() -> int:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--against", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if wrong := lacks(given.write, START, END):
        parser.error(wrong)
    load = os.getloadavg()[0]
    with _ours(given.model, given.dtype, given.threads) as url:
        servers = {"benchlab_engine": url, **dict(each.split("=", 1) for each in given.against)}
        found: dict[str, dict[int, list[float]]] = {name: {users: [] for users in USERS} for name in servers}
        for number in range(given.runs):
            for users in USERS:
                for name, at in servers.items():
                    found[name][users].append(_run(at, users, seed=number))
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, {given.threads} threads, "
        f"{given.dtype}, load {load:.1f} at the start, {given.runs} runs in turn (median, lowest to highest).",
        "",
        "| server | 1 user, tok/s | 4 users | 8 users | 8 against 1 |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, rows in found.items():
        cells = [f"{statistics.median(r):.1f} ({min(r):.1f} to {max(r):.1f})" for r in rows.values()]
        gain = statistics.median(b / a for a, b in zip(rows[1], rows[8], strict=True))
        lines.append(f"| {name} | {' | '.join(cells)} | {gain:.2f} x |")
    table = "\n".join(lines)
    print(table)
    if given.write:
        given.write.write_text(insert(given.write.read_text("utf-8"), table, START, END), "utf-8")
    return 0


@contextlib.contextmanager
def _ours(model: str, dtype: str, threads: int) -> Iterator[str]:
    """The URL of the bundled engine in a process of its own, its prefix cache off."""
    argv = [sys.executable, "-m", "benchlab_engine", "serve", "--model", model, "--dtype", dtype, "--port", "0"]
    argv += ["--threads", str(threads), "--no-prefix-cache"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready "), line
            yield line.split()[1]
        finally:
            process.terminate()
            process.wait(30)


def _run(url: str, users: int, seed: int) -> float:
    """Output tokens a second of one closed loop."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [
            *CLI, "run", "-u", url, "--api", "completions", "-c", str(users), "-n", str(max(4, 2 * users)), "--warmup",
            "none", "--isl", "56", "--osl", "64", "--seed", str(seed), "--body", '{"ignore_eos": true}', "--progress",
            "none", "-o", f"{folder}/run",
        ]  # fmt: skip
        done = subprocess.run(argv, capture_output=True, text=True, env=environment(), check=False, timeout=600)
        summary = json.loads(Path(folder, "run", "summary.json").read_text("utf-8"))
        (stage,) = summary["stages"]
        assert stage["outcomes"]["ok"] == max(4, 2 * users), (stage["outcomes"], done.stderr[-500:])
        return float(stage["output_tps"])


if __name__ == "__main__":
    sys.exit(main())
