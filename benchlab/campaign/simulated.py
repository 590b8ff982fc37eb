"""A simulated run, from its specification to a judged run directory: the same files as a measured one, and marked.

The one idea: workload, stages, records, judging and report are those of a measured run; only what happens between is
counted instead of awaited. What a simulation cannot know (the client's own health, telemetry, wall times) is left out,
so that judging says "not known" of it. Whatever ends it early leaves nothing: the same seeds make it again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchlab.campaign.describe import item_row, workload_entry
from benchlab.campaign.execute import Outcome
from benchlab.campaign.finish import judge_and_report, stage_times, store_records, write_items
from benchlab.campaign.load_workload import load_workload
from benchlab.campaign.progress import Progress
from benchlab.campaign.spec import RunSpec
from benchlab.campaign.stages import (
    Stage,
    find_window,
    first_item,
    manifest_entry,
    num_used,
    offered_rps,
    plan_stages,
    slices,
)
from benchlab.clock import Clock, SystemClock
from benchlab.loadgen.abandon import check_tags
from benchlab.records.manifest import Manifest, redact_argv
from benchlab.records.record import Record
from benchlab.records.spool import Spool
from benchlab.records.store import drop_spool, new_run_directory, slug, write_manifest
from benchlab.simulate.drive import DEFAULT_OUTPUT_TOKENS, Simulation
from benchlab.simulate.settings import EngineSettings
from benchlab.units import NS_PER_S
from benchlab.workload.ids import RULE
from benchlab.workload.read import Workload

_BETWEEN_NS = NS_PER_S
"""From the end of a stage to the next one's beginning."""
_FLUSH_EVERY = 2_000


def simulate(
    spec: RunSpec,
    settings: EngineSettings,
    progress: Progress,
    judging: dict[str, Any] | None = None,
    journal: Callable[[dict[str, Any]], None] | None = None,
    clock: Clock | None = None,
) -> Outcome:
    """Simulate it. `judging`: options of `judge` beside those of the spec. `clock`: only dates the run.

    journal: given each entry of the engine's journal.

    Raises BenchlabError for what is wrong with the specification, before a directory is made.
    """
    settings.build()
    workload = load_workload(spec)
    stages = plan_stages(spec, workload.items)
    name = f"sim-{slug(settings.profile, 24)}-{slug(spec.data.stem if spec.data else spec.recipe or 'fixed', 20)}"
    path, run_id = new_run_directory(spec.out, name=name, wall_ns=(clock or SystemClock()).wall_ns())
    try:
        manifest = _manifest(spec, settings, run_id, workload, stages, clock or SystemClock())
        _run_stages(spec, settings, path, workload, stages, manifest, progress, journal)
        progress.say("storing and judging")
        _store(path, stages, manifest)
        summary = judge_and_report(path, report=spec.report, **{"mode": spec.select, **(judging or {})})
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    drop_spool(path)
    return Outcome(path, summary)


def _run_stages(
    spec: RunSpec,
    settings: EngineSettings,
    path: Path,
    workload: Workload,
    stages: list[Stage],
    manifest: Manifest,
    progress: Progress,
    journal: Callable[[dict[str, Any]], None] | None,
) -> None:
    from benchlab.loadgen.worker import make_plan

    spool = Spool(path / "spool", 0)
    num_added = 0

    def sink(record: Record) -> None:
        nonlocal num_added
        spool.add(record)
        num_added += 1
        if num_added % _FLUSH_EVERY == 0:
            spool.flush()

    limits = spec.timeouts
    simulation = Simulation(
        settings,
        workload.items,
        sink,
        timeouts_ns={"first_content": limits.first_content_ns, "gap": limits.gap_ns, "total": limits.total_ns},
        salt=str(spec.seed) if spec.cache == "cold" else None,
        journal=journal,
    )
    write_items(path, [item_row(item) for item in workload.items])
    offset = 0
    try:
        for stage, entry in zip(stages, manifest["stages"], strict=True):
            progress.stage(stage.index, len(stages), stage.load.name, stage.planned, None)
            start_ns = simulation.clock.now_ns + (_BETWEEN_NS if stage.index else 0)
            offset = first_item(stage, offset, len(workload.items))
            (job,) = slices(stage, spec, start_ns=start_ns, offset=offset)
            plan = make_plan(job, workload.items)
            end = simulation.run(job, plan)
            sessions = plan.facts().sessions
            used = num_used([job], [end.requests if sessions is None else sessions], stage.graph)
            repeated = 0 if spec.cache == "cold" else min(max(offset + used - len(workload.items), 0), used)
            entry |= {"start_ns": start_ns, "drain_end_ns": end.end_ns, "complete": True, "why": None}
            entry |= {"peak_inflight": end.peak_inflight, "held": end.held, "repeated": repeated}
            if entry["planned"] is None:
                entry["planned"] = end.requests
            offset += used
    finally:
        spool.close()


def _store(path: Path, stages: list[Stage], manifest: Manifest) -> None:
    """Records to Parquet, and each stage's window, as for a measured run."""
    requests = store_records(path, keep_text=False, why_unfinished="the simulation ended while it was under way")
    for stage, entry in zip(stages, manifest["stages"], strict=True):
        intended, ends = stage_times(requests, stage.index, entry["start_ns"])
        w0, w1 = find_window(stage, intended, ends)
        entry |= {"w0_ns": entry["start_ns"] + w0, "w1_ns": entry["start_ns"] + w1}
        entry["offered_rps"] = offered_rps(stage, w0, w1)
    manifest["state"] = "complete"
    write_manifest(path, manifest)


def _manifest(
    spec: RunSpec, settings: EngineSettings, run_id: str, workload: Workload, stages: list[Stage], clock: Clock
) -> Manifest:
    """As records/manifest.py has it, with `simulated` and without what nobody measured."""
    import datetime

    import msgspec

    import benchlab
    from benchlab.campaign.facts import git_facts

    facts = settings.facts()
    unsaid = sum(item.output_tokens is None for item in workload.items)
    notes = [f"token ids by rule: {RULE}"]
    if unsaid:
        notes.append(f"{unsaid} items do not say how much to generate: {DEFAULT_OUTPUT_TOKENS} tokens each")
    if asking := check_tags(workload.items):
        notes.append(f"{asking} items ask to be given up before their end: a simulation lets them end")
    created = datetime.datetime.fromtimestamp(clock.wall_ns() / 1e9, tz=datetime.UTC).isoformat(timespec="seconds")
    return {
        "schema": 1,
        "run_id": run_id,
        "created": created,
        "benchlab": benchlab.__version__,
        "command": redact_argv(list(spec.command)),
        "labels": spec.labels,
        "simulated": facts,
        "t0": {"monotonic_ns": 0, "wall_ns": None},
        "state": "running",
        "reason": None,
        "endpoint": {"url": None, "api": spec.api, "model": f"simulated {settings.profile}"},
        "engine": {"name": "simulated", "facts": facts},
        "workload": workload_entry(spec, workload, notes),
        "seeds": {"arrival": spec.arrival_seed, "content": spec.seed},
        "sampling": {},
        "timeouts": msgspec.to_builtins(spec.timeouts),
        "client": {"transport": "simulated", "stamp_source": "simulated", "max_inflight": spec.max_inflight},
        "stages": [manifest_entry(stage, spec) for stage in stages],
        "slo": {"clauses": list(spec.slo), "target": spec.slo_target},
        "objectives": list(spec.objectives),
        "select": spec.select,
        "percentiles": list(spec.percentiles),
        "telemetry": {"sources": [], "notes": ["simulated: no telemetry"], "gaps": []},
        "host": None,
        "git": git_facts(Path(benchlab.__file__).parent),
    }
