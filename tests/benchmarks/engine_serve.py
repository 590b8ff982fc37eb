"""What the engine's server costs: the gap it adds to each token, and its CPU for each token written.

    python -m tests.benchmarks.engine_serve [--streams 64,500] [--tokens 100] [--runs 3] [--engine thread,process]
    python -m tests.benchmarks.engine_serve --model smollm2-135m [--threads 2] [--runs 3]

A paced engine (ttft=50ms, itl=20ms) in a process of its own serves so many streams at once; the client reads bytes and
looks at nothing. The gap is token_written less token_ready, of `/timeline`; the CPU is that of the server's process
(and of its engine's, with --engine process) over the span, divided by the tokens written. Medians over the runs, with
their range; thread and process take turns. On a busy machine the tail of the gap is the neighbours': --fifo runs server
and client under SCHED_FIFO (Linux, as root), which comes near to a machine of one's own.

With --model a real one is served: tokens a second of 8 requests one after the other, and of the same 8 at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

_HZ = 100  # of /proc/PID/stat, on every Linux in use


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", default="64,500")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--runner", default="paced:ttft=50ms,itl=20ms")
    parser.add_argument("--engine", default="thread", help="thread, process, or both with a comma")
    parser.add_argument("--fifo", action="store_true", help="under SCHED_FIFO")
    parser.add_argument("--model", default="", help="serve this one instead")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if given.model:
        return _real(given.model, given.threads, given.runs)
    if given.fifo:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    print(f"{given.runner}, {given.tokens} tokens a stream, {given.runs} runs")
    print(f"{'streams':>8} {'engine in':>10} {'gap p50 ms':>11} {'gap p99 ms':>11} {'CPU us/token':>13} {'steps/s':>8}")
    kinds = given.engine.split(",")
    for streams in map(int, given.streams.split(",")):
        rows = {kind: [] for kind in kinds}
        for _ in range(given.runs):
            for kind in kinds:
                rows[kind].append(_run(given.runner, streams, given.tokens, kind))
        for kind in kinds:
            columns = list(zip(*rows[kind], strict=True))
            middle = [statistics.median(column) for column in columns]
            spans = ", ".join(f"{min(column):.2f} to {max(column):.2f}" for column in columns)
            cells = f"{middle[0]:>11.2f} {middle[1]:>11.2f} {middle[2]:>13.1f} {middle[3]:>8.1f}"
            print(f"{streams:>8} {kind:>10} {cells}   ({spans})", flush=True)
    return 0


def _run(runner: str, streams: int, tokens: int, kind: str) -> tuple[float, float, float, float]:
    """Gap p50 and p99 in ms, CPU in us for each token, engine steps a second."""
    module = {"thread": "benchlab_engine", "process": "tests.benchmarks.engine_apart"}[kind]
    argv = [sys.executable, "-m", module, "serve", "--runner", runner, "--port", "0"]
    sizes = ["--max-seqs", str(streams), "--max-batched-tokens", "8192", "--kv-blocks", "65536"]
    with subprocess.Popen([*argv, *sizes], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[1]
            asyncio.run(_crowd(url, streams, 5))  # connections, caches and the allocator are warm then
            since = _get(url, "/timeline")["now_ns"]
            before = _cpu_seconds(server.pid)
            asyncio.run(_crowd(url, streams, tokens))
            used = _cpu_seconds(server.pid) - before
            found = [row for row in _get(url, f"/timeline?since={since}")["requests"] if row["accepted"] >= since]
        finally:
            server.terminate()
            server.wait(20)
    gaps = sorted(
        (written - ready) / 1e6
        for row in found
        for ready, written in zip(row["token_ready"], row["token_written"], strict=True)
    )
    assert len(gaps) == streams * tokens, f"{len(gaps)} tokens written of {streams * tokens}"
    span = max(row["released"] for row in found) - min(row["accepted"] for row in found)
    return gaps[len(gaps) // 2], gaps[len(gaps) * 99 // 100], used / len(gaps) * 1e6, tokens / span * 1e9


def _real(model: str, threads: int, runs: int) -> int:
    argv = [sys.executable, "-m", "benchlab_engine", "serve", "--model", model, "--threads", str(threads)]
    with subprocess.Popen([*argv, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as it:
        try:
            assert it.stdout is not None
            url = it.stdout.readline().split()[1]
            asyncio.run(_crowd(url, 8, 8))
            rates: list[tuple[float, float]] = []
            for _ in range(runs):
                start = time.monotonic()
                for _ in range(8):
                    asyncio.run(_crowd(url, 1, 64))
                middle = time.monotonic()
                asyncio.run(_crowd(url, 8, 64))
                rates.append((512 / (middle - start), 512 / (time.monotonic() - middle)))
        finally:
            it.terminate()
            it.wait(20)
    ratios = [at_once / one for one, at_once in rates]
    one, at_once = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"{model}, {threads} threads, 8 requests of 64 tokens, {runs} pairs")
    print(f"one after the other {one:.1f} tok/s, at once {at_once:.1f} tok/s")
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return 0


def _get(url: str, path: str) -> dict:
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        return json.load(answer)


def _cpu_seconds(pid: int) -> float:
    """Of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0
    for each in (pid, *children):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _HZ


async def _crowd(url: str, streams: int, tokens: int) -> None:
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(
        {"prompt": "x" * 32, "max_tokens": tokens, "stream": True, "seed": 0, "ignore_eos": True}
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode() + body)
        last = b""
        while chunk := await reader.read(1 << 16):
            last = last[-64:] + chunk
        assert b"[DONE]" in last, last
        writer.close()

    await asyncio.gather(*(one() for _ in range(streams)))


if __name__ == "__main__":
    sys.exit(main())
