"""A node under load as the parent keeps it: what is here of it, what the manifest says of it, what it was given.

The one idea: plain state, and the small rules that turn one host's view into the run's. It must not call anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from benchlab.errors import BenchlabError, Exit, StorageError, TargetError, UsageError
from benchlab.loadgen.cluster import Member
from benchlab.loadgen.cluster_clock import Offset
from benchlab.loadgen.counters import Counts
from benchlab.loadgen.job import Failed, StageJob, StageReport


@dataclass(slots=True)
class Host:
    """A member under load.

    entry: its part of the manifest, kept up to date in place. have: bytes of each file that are here. busy: the stage
    is not over there yet. gone: why it is lost, "" while it is not.
    """

    member: Member
    workers: list[int]
    entry: dict[str, Any]
    offset_ns: int = 0
    have: dict[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    jobs: list[StageJob] = field(default_factory=list)
    reports: list[StageReport] = field(default_factory=list)
    busy: bool = False
    asked: Any = None
    heard_s: float = 0.0
    next_s: float = 0.0
    gone: str = ""

    @classmethod
    def of(cls, member: Member, workers: Sequence[int]) -> Host:
        """A node at the beginning, with the manifest's entry of it."""
        node = member.node
        known = {key: value for key, value in member.facts.items() if key != "name"}
        entry = {
            "name": member.name,
            "node": node.key[:12],
            "address": node.address,
            "workers": list(workers),
            "python": node.python,
            "benchlab": node.benchlab,
            **known,
            "t0": None,
            "clock": [],
            "lost": None,
        }
        return cls(member, list(workers), entry)

    def note_clock(self, found: Offset, t0_ns: int) -> None:
        """Keep a measurement; the first is what this node's times are counted from. t0_ns: the parent's."""
        if not self.entry["clock"]:
            self.offset_ns = found.offset_ns
            own_ns = t0_ns + found.offset_ns
            self.entry["t0"] = {"monotonic_ns": own_ns, "wall_ns": own_ns + found.wall_ns}
        reading = asdict(found) | {"at_ns": found.at_ns - t0_ns}
        del reading["wall_ns"]
        self.entry["clock"].append(reading)


def alone(job: StageJob, index: int, jobs: Sequence[StageJob]) -> StageJob:
    """A slice whose cap is its worker's own: there is no memory that several hosts share."""
    if job.max_inflight is None or job.permits is None:
        return job
    busy = [place for place, other in enumerate(jobs) if other.at_ns or other.users]
    place = busy.index(index) if index in busy else 0
    share = job.max_inflight // max(1, len(busy)) + (place < job.max_inflight % max(1, len(busy)))
    return msgspec.structs.replace(job, permits=None, workers=1, max_inflight=share)


def stand_in(job: StageJob, worker: int, requests: int) -> StageReport:
    """In place of a lost worker's report: it holds nothing but how many requests were counted for it."""
    begun = len(job.at_ns) if job.kind == "open" else job.count or 0
    return StageReport(
        stage=job.stage,
        worker=worker,
        cpu_s=0.0,
        wall_s=0.0,
        loop_lag_ms={},
        events=0,
        merged_chunks=0,
        connections=0,
        retries=0,
        peak_inflight=0,
        held=0,
        requests=requests,
        max_inflight=job.max_inflight,
        clock_steps_ns=[],
        offset_error_ns=0,
        sessions=begun if job.sessions else None,
    )


def as_error(failed: Failed, name: str) -> BenchlabError:
    """What a node could not do, as the error that it would be here, the node named."""
    kinds: dict[int, type[BenchlabError]] = {
        int(Exit.USAGE): UsageError,
        int(Exit.UNREACHABLE): TargetError,
        int(Exit.INTERNAL): StorageError,
    }
    words = f"on node {name}: {failed.what}"
    return kinds.get(failed.exit_code, BenchlabError)(words, where=failed.where, hint=failed.hint)
