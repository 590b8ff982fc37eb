"""Small simulations for tests: stages by hand, and everything that came of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchlab.loadgen.job import StageJob
from benchlab.loadgen.worker import make_plan
from benchlab.records.record import Record
from benchlab.simulate.drive import Simulation, StageEnd
from benchlab.simulate.settings import EngineSettings
from benchlab.workload.item import WorkloadItem

MS = 1_000_000
S = 1_000_000_000


@dataclass
class Simulated:
    """Records by request id, journal entries, and how the stage ended."""

    records: dict[str, Record] = field(default_factory=dict)
    journal: list[dict[str, Any]] = field(default_factory=list)
    ends: list[StageEnd] = field(default_factory=list)
    simulation: Simulation | None = None

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [entry for entry in self.journal if entry["kind"] == "step"]


def settings(profile="teaching", max_wait_ns=0, **core) -> EngineSettings:
    return EngineSettings(profile, {"num_blocks": 4096, **core}, max_wait_ns=max_wait_ns)


def items(*lengths: tuple[int, int], **more) -> list[WorkloadItem]:
    return [
        WorkloadItem(id=f"i{n}", input_tokens=prompt, output_tokens=output, **more)
        for n, (prompt, output) in enumerate(lengths)
    ]


def open_stage(at_ms, *, until_ms, stage=0, start_ns=0, drain_ms=60_000, **more) -> StageJob:
    at_ns = [round(at * MS) for at in at_ms]
    return StageJob(
        stage=stage, kind="open", start_ns=start_ns, until_ns=round(until_ms * MS), drain_ns=drain_ms * MS, offset=0,
        at_ns=at_ns, sequences=list(range(len(at_ns))), **more,
    )  # fmt: skip


def closed_stage(users, *, until_ms=None, count=None, drain_ms=60_000, **more) -> StageJob:
    until = None if until_ms is None else round(until_ms * MS)
    return StageJob(
        stage=0, kind="closed", start_ns=0, until_ns=until, drain_ns=drain_ms * MS, offset=0,
        users=list(range(users)), count=count, **more,
    )  # fmt: skip


def simulated(settings, items, *jobs, journal=True, **more) -> Simulated:
    """The stages one after the other; each request's record came once and holds together."""
    found = Simulated()

    def sink(record):
        assert record.request_id not in found.records, record
        assert record.audit() == [], record
        found.records[record.request_id] = record

    simulation = found.simulation = Simulation(
        settings, items, sink, journal=found.journal.append if journal else None, **more
    )
    for job in jobs:
        before = len(found.records)
        end = simulation.run(job, make_plan(job))
        assert end.requests == len(found.records) - before
        found.ends.append(end)
    scheduler = simulation.engine.scheduler
    assert not scheduler.requests
    scheduler.audit()
    return found
