"""`make bench`: what benchlab itself costs on this host. Prints a table; nothing here is a test.

    python -m tests.benchmarks [judge] [wire] [load]

Rates are per second of CPU of this process (wall times on shared machines are noise): medians, with their range.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_RUNS = 5


def _measure(title: str, unit: str, work: float, run: Callable[[], object]) -> None:
    """`work` units per run of `run`; prints units per second."""
    rates: list[float] = []
    for _ in range(_RUNS):
        start = time.process_time()
        run()
        rates.append(work / (time.process_time() - start))
    low, middle, high = min(rates), statistics.median(rates), max(rates)
    print(f"{title:<52} {middle:>12,.0f} {unit}   ({low:,.0f} to {high:,.0f} over {_RUNS} runs)")


def wire() -> None:
    """Parsing alone: bytes of a stream to a record, no sockets."""
    from benchlab.clients.openai import OpenAIConversation
    from benchlab.clients.sse import SseParser
    from benchlab.records.record import Identity
    from benchlab.records.recorder import Recorder

    event = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'

    def run() -> None:
        for _ in range(100):
            parser, recorder = SseParser(), Recorder(Identity("r", 0, "i", 0))
            conversation = OpenAIConversation(recorder)
            for n in range(200):
                for name, data in parser.feed(event):
                    conversation.event(name, data, n, 0)
            recorder.record(0)

    _measure("wire: SSE and JSON to records, one event a read", "events/s", 20_000, run)


def judge() -> None:
    """Summarising stored records: 50,000 requests of 200 events, metrics and intervals."""
    from array import array

    import pyarrow as pa

    from benchlab.metrics.summary import summarise_tables
    from benchlab.records.event import Kind, Outcome
    from benchlab.records.record import Record
    from benchlab.records.schema import REQUESTS, SAMPLES, requests_batch

    requests, chunks, second = 50_000, 200, 1_000_000_000
    kinds = [Kind.CONTENT] * chunks
    slack, tokens = array("q", [0]) * chunks, [1] * chunks
    records: list[Record] = []
    for n in range(requests):
        due = n * 2_000_000
        stamps = array(
            "q", (due + 100_000_000 + k * 20_000_000 + (n * 7919 + k * 104729) % 3_000_000 for k in range(chunks))
        )
        records.append(
            Record(
                f"r{n}", 0, f"i{n}", Outcome.OK, due, due, 0, None, None, due, due, stamps, slack, tokens, kinds,
                stamps[-1] + 1000, "kernel", 200, finish_reason="stop", output_tokens=chunks, prompt_tokens=50,
                tokens_source="usage",
            )
        )  # fmt: skip
    table = pa.Table.from_batches(
        [requests_batch(records[k : k + 5000]) for k in range(0, requests, 5000)], schema=REQUESTS
    )
    del records
    manifest = {
        "run_id": "bench",
        "stages": [
            {
                "stage": 0,
                "kind": "open",
                "w0_ns": 0,
                "w1_ns": 100 * second,
                "start_ns": 0,
                "planned": requests,
                "complete": True,
            }
        ],
    }
    _measure(
        "judge: 10,000,000 token events to a summary",
        "events/s",
        requests * chunks,
        lambda: summarise_tables(manifest, table, SAMPLES.empty_table(), run_id="bench"),
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{'  peak memory of this process, its records included':<52} {peak / 1024:>12,.0f} MiB")
    _measure("  pandas: the percentiles of four latencies alone", "events/s", requests * chunks, lambda: _pandas(table))


def _pandas(table: Any) -> None:
    """What a script of a few lines would do with the same file: percentiles of TTFT, gaps, TPOT and E2E, no more."""
    import pandas as pd

    shares = [0.5, 0.9, 0.95, 0.99]
    frame = pd.DataFrame({name: table.column(name).to_numpy() for name in ("sent_ns", "output_tokens")})
    lists = table.column("chunk_ns").combine_chunks()
    events = pd.DataFrame({"request": lists.value_parent_indices().to_numpy(), "ns": lists.flatten().to_numpy()})
    by_request = events.groupby("request")["ns"]
    first, last = by_request.first(), by_request.last()
    by_request.diff().dropna().quantile(shares)
    (first - frame["sent_ns"]).quantile(shares)
    ((last - first) / (frame["output_tokens"] - 1)).quantile(shares)
    (last - frame["sent_ns"]).quantile(shares)


def load() -> None:
    """The whole load generator against the bundled engine's null runner; both share this host's cores."""
    argv = [
        sys.executable,
        "-m",
        "benchlab_engine",
        "serve",
        "--model",
        "tiny",
        "--runner",
        "paced:null",
        "--port",
        "0",
    ]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        rows: list[tuple[float, float]] = []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "run"
                subprocess.run(
                    [sys.executable, "-m", "benchlab.cli.app", "run", "-u", url, "--isl", "16", "--osl", "64",
                     "-c", "32", "--duration", "5s", "--warmup", "1s", "-q", "--format", "json", "-o", str(out)],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                )  # fmt: skip
                manifest = json.loads((out / "manifest.json").read_text())
            worker = manifest["stages"][0]["workers"][0]
            rows.append((worker["events"] / worker["wall_s"], worker["cpu_s"] / worker["events"] * 1000))
        rates, costs = zip(*rows, strict=True)
        print(
            f"{'load: closed loop of 32, bundled engine, null runner':<52} {statistics.median(rates):>12,.0f} events/s"
        )
        print(f"{'load: CPU of the worker':<52} {statistics.median(costs):>12.4f} s per 1,000 events")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    known = {"wire": wire, "judge": judge, "load": load}
    for name in sys.argv[1:] or known:
        known[name]()
