"""The items of a run: a file as it lies, a recipe's, or prompts of one length made from the seed."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from benchlab.campaign.spec import RunSpec
from benchlab.errors import UsageError
from benchlab.loadgen.abandon import check_tags
from benchlab.loadgen.session_graph import in_sessions
from benchlab.units import NS_PER_S, format_duration
from benchlab.workload.item import WorkloadItem
from benchlab.workload.lock import check_lock
from benchlab.workload.make import make, to_bytes
from benchlab.workload.read import Workload, read_items
from benchlab.workload.recipes import fixed

_MADE_ITEMS = 1000
"""Different prompts of one length; a longer run goes round (and a cold cache salts each round)."""
_MADE_TOKENS = 10_000_000
"""Long prompts are fewer, so that their texts stay small beside the run; never fewer than a hundred."""


def load_workload(spec: RunSpec) -> Workload:
    """Read or make the workload. Raises UsageError for a file that holds nothing to send."""
    if spec.data is None:
        return _made(spec)
    workload = read_items(
        spec.data,
        lenient=spec.lenient,
        allow_unknown=spec.allow_unknown,
        time_unit=spec.time_unit,
        block_tokens=spec.block_tokens,
        form=spec.data_format,
    )
    if spec.lock is not None:
        check_lock(
            spec.lock,
            workload,
            seeds={"content": spec.seed, "arrival": spec.arrival_seed},
            sampling=spec.extra if spec.extra else None,
        )
    if not workload.items:
        raise UsageError("the workload holds no request", where=str(spec.data))
    workload = _clipped(workload, spec)
    check_tags(workload.items)
    return replace(workload, items=in_sessions(workload.items))


def _made(spec: RunSpec) -> Workload:
    """Items that lie in no file: the seed makes them."""
    if spec.recipe is None:
        most = min(_MADE_ITEMS, max(100, _MADE_TOKENS // (spec.isl or 1)))
        items = make(fixed(spec.isl or 1, spec.osl or 1), spec.seed, most)
        name = f"fixed:{spec.isl}:{spec.osl}"
    else:
        recipe, _, count = spec.recipe.partition(":")
        items = make(recipe, spec.seed, int(count) if count else None)
        name = f"recipe:{spec.recipe}"
    digest = hashlib.sha256(to_bytes(items)).hexdigest()
    workload = _clipped(Workload(items, name, digest, len(items), len(items), format="made"), spec)
    return replace(workload, items=in_sessions(workload.items))


def _clipped(workload: Workload, spec: RunSpec) -> Workload:
    """Without what arrives outside --trace-clip. Raises UsageError where nothing is left."""
    span = spec.trace.clip_ns
    if span is None:
        return workload
    first = min((item.arrival_s for item in workload.items if item.arrival_s is not None), default=None)
    if first is None:
        raise UsageError("the workload has no arrival times", where="--trace-clip", hint="leave it out")
    kept: list[WorkloadItem] = []
    held: set[str] = set()
    for item in workload.items:
        waits = [name in held for name in item.depends_on or ()]
        inside = all(waits) if item.arrival_s is None else span[0] <= (item.arrival_s - first) * NS_PER_S < span[1]
        if inside and all(waits):
            kept.append(item)
            held.add(item.id)
    if not kept:
        raise UsageError(
            "nothing arrives in that span",
            where="--trace-clip",
            hint=f"the trace lasts {format_duration((workload.span_s or 0) * NS_PER_S)}",
        )
    note = f"{len(workload.items) - len(kept):,} items left out by --trace-clip"
    return replace(workload, items=kept, notes=(*workload.notes, note))
