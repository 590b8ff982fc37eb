"""What a simulation costs: 10,000 requests of 100 output tokens, from the plan to the judged run directory.

    python -m tests.benchmarks.sim

CPU time of this process (wall times on shared machines are noise).
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from pathlib import Path

_REQUESTS, _TOKENS = 10_000, 100


def drive() -> None:
    """The virtual-time driver alone: 64 sequences at once, half of what an H100 could do at most."""
    from benchlab.loadgen.job import StageJob
    from benchlab.loadgen.worker import make_plan
    from benchlab.records.record import Record
    from benchlab.simulate.drive import Simulation
    from benchlab.simulate.settings import EngineSettings
    from benchlab.workload.item import WorkloadItem

    items = [WorkloadItem(id=f"i{n}", input_tokens=200, output_tokens=_TOKENS) for n in range(_REQUESTS)]
    settings = EngineSettings("roofline:h100:llama-3-8b", {"max_seqs": 64, "max_batched_tokens": 2048})
    records: list[Record] = []
    simulation = Simulation(settings, items, records.append)
    at_ns = [n * 20_000_000 for n in range(_REQUESTS)]  # 50 /s
    sequences = list(range(_REQUESTS))
    job = StageJob(0, "open", 0, at_ns[-1] + 1, 60 * 10**9, 0, at_ns, sequences)
    start = time.process_time()
    simulation.run(job, make_plan(job))
    seconds = time.process_time() - start
    assert len(records) == _REQUESTS
    steps, virtual = simulation.engine.journal.rows[-1].number, simulation.clock.now_ns / 1e9
    _show("simulate: driver and core", seconds, f"{steps:,} steps, {virtual:,.0f} s of virtual time")


def whole() -> None:
    """The command: two stages, records, judgement and report."""
    from benchlab.cli.app import main

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        words = ["simulate", "--isl", "200", "--osl", str(_TOKENS), "-r", "20,50", "-n", str(_REQUESTS // 2)]
        words += ["--profile", "roofline:h100:llama-3-8b", "--max-seqs", "64", "--max-batched-tokens", "2048"]
        words += ["--warmup", "none", "-q", "-o", str(Path(folder) / "run")]
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            code = main(words)
        seconds = time.process_time() - start
        assert code == 0, code
    _show("simulate: the command, report included", seconds, "two stages")


def _show(title: str, seconds: float, more: str) -> None:
    rate, each = _REQUESTS / seconds, seconds / (_REQUESTS * _TOKENS) * 1e6
    print(f"{title:<42} {rate:>8,.0f} requests/s of CPU   {each:5.2f} us a token   {seconds:5.1f} s   ({more})")


if __name__ == "__main__":
    drive()
    whole()
