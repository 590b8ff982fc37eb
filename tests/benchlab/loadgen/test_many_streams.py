"""Ten thousand streams at once, one token a second each, held for a minute on two cores: nothing is lost.

The server's own log is the witness: which requests it had whole, and when it wrote each of their tokens.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchlab.campaign.execute import execute
from benchlab.campaign.progress import Progress
from benchlab.campaign.spec import Load, RunSpec
from benchlab.clients.base import Timeouts
from benchlab.doctor.exactness import error_of, pair
from benchlab.doctor.rig import TruthProcess
from benchlab.loadgen.arrivals import Arrival
from benchlab.loadgen.counters import Counts
from benchlab.records.schema import records_from
from benchlab.records.store import Run
from benchlab.units import NS_PER_S

RATE = 500
"""New streams a second, so that no more of them knock at once than the server's line holds."""
LIMITS = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and raises the descriptor limit")


class Watching(Progress):
    """Notes the most streams in flight and the most memory of each load generator process, bytes."""

    def __init__(self) -> None:
        super().__init__("none")
        self.inflight = 0
        self.memory: dict[int, int] = {}

    def tick(self, name: str, elapsed_s: float, total_s: float | None, counts: Counts) -> None:
        self.inflight = max(self.inflight, counts.inflight)
        for children in Path("/proc/self/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for word in children.read_text().split():
                    if b"benchlab.loadgen.worker" in Path(f"/proc/{word}/cmdline").read_bytes():
                        self.memory[int(word)] = _peak_bytes(Path(f"/proc/{word}/status").read_text())


def _peak_bytes(status: str) -> int:
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """The soft limit of this process, and of those that it starts, as high as it may be."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@LIMITS
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("streams", "gap_s", "held_s"),
    [pytest.param(300, 0.2, 1, id="few"), pytest.param(10_000, 1, 60, id="ten thousand", marks=pytest.mark.slow)],
)
def test_streams_are_held_and_nothing_is_lost(
    tmp_path: Path, many_descriptors: int, streams: int, gap_s: float, held_s: int
) -> None:
    if many_descriptors < streams + 1000:
        pytest.skip(f"the hard limit of open files is {many_descriptors}: `ulimit -Hn {streams + 1000}`")
    begin_s = streams / RATE
    tokens = round((begin_s + held_s) / gap_s) + 2
    gap_ns = round(gap_s * NS_PER_S)
    watching = Watching()
    spec = RunSpec(
        (Load("open", rate=float(RATE), arrival=Arrival("constant")),),
        data=None,
        isl=8,
        osl=tokens,
        requests=streams,
        drain_ns=tokens * gap_ns + 30 * NS_PER_S,
        timeouts=Timeouts(total_ns=None),
        workers=2,
        out=tmp_path / "run",
        gpu="off",
        scrape="off",
        report=False,
    )
    with TruthProcess(tmp_path) as server:
        server.order(f"paced {gap_ns} {gap_ns}")
        outcome = execute(replace(spec, url=server.url), watching)
        truth = server.truth()

    run = Run(outcome.path)
    records = list(records_from(run.requests()))
    assert len(records) == streams == len({record.request_id for record in records})
    assert {record.outcome.value for record in records} == {"ok"}
    assert {record.request_id for record in records} <= set(truth)
    t0_ns = run.manifest["t0"]["monotonic_ns"]
    pairs = pair(records, truth, t0_ns)
    assert pairs.unmatched == 0 and len(pairs.stamp) == streams * tokens

    first = np.array([record.visible_ns()[0] for record in records])
    last = np.array([record.visible_ns()[-1] for record in records])
    assert (last.min() - first.max()) / NS_PER_S >= held_s, "all of them at once, for so long"
    assert watching.inflight == streams

    workers = run.manifest["stages"][0]["workers"]
    clock_error_ns = max(worker["offset_error_ns"] for worker in workers)
    error = error_of(pairs, stamps="kernel", clock_error_ns=clock_error_ns, cpu_share=0.0)
    assert error.early == 0 and error.covered_share in (None, 1.0)
    client = outcome.summary["stages"][0]["client"]
    for name, value in (
        ("verdict", outcome.summary["verdict"]["state"]),
        ("condition", outcome.summary["stages"][0]["condition"]),
        ("failing", [rule for rule in outcome.summary["verdict"]["rules"] if rule["state"] == "fail"]),
        ("peak memory of each worker, MB", [round(many / 1e6) for many in watching.memory.values()]),
        ("error of first chunks, ms", error.first),
        ("error of gaps, ms", error.gap),
        ("merged share", error.merged_share),
        ("client", client),
    ):
        print(f"{name}: {value}")  # shown by -s or -rP: figures of this machine, judged by none
