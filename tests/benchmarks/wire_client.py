"""What the wire client costs: parsing alone, and a closed loop against a paced server, beside a hand-made client.

    python -m tests.benchmarks.wire_client                                  parsing alone
    python -m tests.benchmarks.wire_client --server PATH|FILE.c             and the closed loop (C source: built by gcc)
    ... --floor 'PYTHON FILE.py'                                            and the hand-made client beside it, in turn

The server streams as many tokens as it is asked for, as fast as it can; it takes `--port`, `--ttft-ms 0` and
`--itl-ms 0`. The hand-made client takes `--url --mode closed --concurrency --requests --max-tokens --prompt-words` and
prints a JSON line with `chunk_s` and `cpu_s_per_1k`. Server on core 0, client on core 1 where there are two. Ours
runs as a worker does: driver, records, spool, counters, the loop's own lag. Costs are CPU seconds per 1,000 content
events; medians of the pairs. Events that are joined on the way cost less: compare within a run only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_RUNS = 5


def parsing() -> None:
    """Bytes to records without sockets: one event a read, many a read."""
    from benchlab.clients.openai import OpenAI
    from benchlab.clients.sse import SseParser
    from benchlab.records.record import Identity
    from benchlab.records.recorder import Recorder
    from benchlab.workload.item import WorkloadItem

    head = b'{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1780000000,"model":"paced",'
    event = b'data: %s"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n' % head
    dialect, item = OpenAI("chat", "m"), WorkloadItem(prompt="x")

    def run(per_read: int) -> Callable[[], None]:
        reads = [event * per_read] * (200 // per_read)

        def go() -> None:
            for _ in range(100):
                parser, recorder = SseParser(), Recorder(Identity("r", 0, "i", 0))
                conversation = dialect.conversation(recorder, item)
                for n, read in enumerate(reads):
                    for name, data in parser.feed(read):
                        conversation.event(name, data, n, 0)
                conversation.ended(1000)
                recorder.record(0)

        return go

    for per_read in (1, 20):
        costs: list[float] = []
        for _ in range(_RUNS):
            start = time.process_time()
            run(per_read)()
            costs.append((time.process_time() - start) / 20_000 * 1e6)
        print(f"parsing, {per_read:>2} events a read: {statistics.median(costs):6.2f} us CPU an event")


@contextlib.contextmanager
def served(server: str) -> Iterator[int]:
    """The paced server, built first where its C source is given; gives its port."""
    with tempfile.TemporaryDirectory() as folder:
        if server.endswith(".c"):
            binary = str(Path(folder) / "server")
            subprocess.run(["gcc", "-O2", "-o", binary, server], check=True)
        else:
            binary = server
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        argv = [*pinned(0), binary, "--port", str(port), "--ttft-ms", "0", "--itl-ms", "0"]
        process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.02)
            yield port
        finally:
            process.terminate()
            process.wait()


def pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core)] if len(os.sched_getaffinity(0)) > 1 else []


async def closed_loop(
    port: int, users: int, requests: int, tokens: int, words: int, transport: str, profile: bool
) -> dict[str, float]:
    """One stage as a worker process runs it, in this process. Returns its figures."""
    from benchlab.clients.apis import make_dialect
    from benchlab.clients.endpoint import parse_endpoint
    from benchlab.clients.stamps import Stamps
    from benchlab.clients.transports import make_client
    from benchlab.clock import SystemClock
    from benchlab.loadgen.closed_loop import ClosedLoop
    from benchlab.loadgen.counters import CounterPage
    from benchlab.loadgen.driver import Driver
    from benchlab.loadgen.job import StageJob
    from benchlab.records.spool import Spool
    from benchlab.workload.item import WorkloadItem

    clock = SystemClock()
    item = WorkloadItem(
        id="i", messages=[{"role": "user", "content": " ".join(["hello"] * words)}], output_tokens=tokens
    )
    stamps = Stamps(clock, kernel=transport == "native")
    endpoint, dialect = parse_endpoint(f"127.0.0.1:{port}"), make_dialect("chat", "paced")
    client = make_client(transport, endpoint, dialect, clock=clock, stamps=stamps)
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder), 0)
        t0 = clock.monotonic_ns()
        driver = Driver(
            client,
            item_at=lambda _: item,
            spool=spool,
            counters=CounterPage(Path(folder) / "counters", create=True),
            clock=clock,
            t0_ns=t0,
            worker=0,
            host="",
            keep_text=False,
        )
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        plan = ClosedLoop(list(range(users)), lambda sequence: sequence, until_ns=None, count=requests, first=0, step=1)
        job = StageJob(0, "closed", clock.monotonic_ns(), None, 10**10, 0, users=list(range(users)), count=requests)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, cpu = time.monotonic(), time.process_time()
        if profile:
            import cProfile

            with cProfile.Profile() as profiler:
                report = await driver.run(job, plan)
            import pstats

            pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
        else:
            report = await driver.run(job, plan)
        wall, cpu = time.monotonic() - start, time.process_time() - cpu
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        spool.close()
        await client.close()
    events = report.requests * tokens
    return {
        "chunk_s": events / wall,
        "cpu_s_per_1k": cpu / events * 1000,
        "merged": report.merged_chunks / max(report.events, 1),
        "grown_kb_a_request": grown / report.requests,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def ours(arguments: argparse.Namespace) -> None:
    """In a process of its own: one closed loop, one JSON line."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(
            closed_loop(
                arguments.port,
                arguments.users,
                arguments.requests,
                arguments.tokens,
                arguments.prompt_words,
                arguments.transport,
                profile=arguments.profile,
            )
        )
    print(json.dumps(found))


def pairs(arguments: argparse.Namespace) -> None:
    """Ours and the hand-made client in turn against one server."""
    with served(arguments.server) as port:
        size = ["--requests", str(arguments.requests)]
        ours_too, theirs_too = ["--tokens", str(arguments.tokens)], ["--max-tokens", str(arguments.tokens)]
        size += ["--prompt-words", str(arguments.prompt_words)]
        commands = {
            f"benchlab {name}": [
                sys.executable, "-m", "tests.benchmarks.wire_client", "--port", str(port), "--transport", name,
                "--users", str(arguments.users), *size, *ours_too,
            ]
            for name in arguments.transport.split(",")
        }  # fmt: skip
        if arguments.floor:
            target = ["--url", f"http://127.0.0.1:{port}", "--mode", "closed", "--concurrency", str(arguments.users)]
            commands["hand-made"] = [*shlex.split(arguments.floor), *target, *size, *theirs_too]
        found: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        for _ in range(arguments.pairs):
            for name, command in commands.items():
                out = subprocess.run([*pinned(1), *command], capture_output=True, text=True, check=False)
                if out.returncode:
                    sys.exit(f"{name} failed:\n{out.stderr}")
                found[name].append(json.loads(out.stdout.splitlines()[-1]))
    for name, rows in found.items():
        rate = statistics.median(row["chunk_s"] for row in rows)
        costs = [row["cpu_s_per_1k"] for row in rows]
        cost = statistics.median(costs)
        print(f"{name:<18} {rate:>9,.0f} events/s   {cost:.4f} s CPU per 1,000 ({min(costs):.4f} to {max(costs):.4f})")
    if arguments.floor:
        for name in list(found)[:-1]:
            ratios = [
                a["cpu_s_per_1k"] / b["cpu_s_per_1k"] for a, b in zip(found[name], found["hand-made"], strict=True)
            ]
            print(f"{name} / hand-made: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", help="a paced server: a program, or its C source")
    parser.add_argument("--floor", help="command of a hand-made client")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--prompt-words", type=int, default=32)
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--transport", default="native", help="native, aiohttp, or both with a comma")
    parser.add_argument("--port", type=int, help="one closed loop against a server that is there already")
    parser.add_argument("--profile", action="store_true", help="with --port: where the time goes")
    arguments = parser.parse_args()
    if arguments.port:
        ours(arguments)
        return
    parsing()
    if arguments.server:
        pairs(arguments)


if __name__ == "__main__":
    main()
