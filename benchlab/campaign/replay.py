"""A stored run's requests and their due instants, to be sent again as an open loop.

The one idea: a request of a run is named by its stage and sequence number, and its item by where that stage stood in
the workload; with both known, the same items (and with a cold cache the same rounds) come at the same instants. What a
session never came to is not sent; what it did send is sent when it was due then, whatever the server does now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from benchlab.campaign.spec import Load, ReplayStage
from benchlab.errors import NotComparableError, UsageError
from benchlab.loadgen.arrivals import Arrival
from benchlab.records.store import Run
from benchlab.workload.item import WorkloadItem

_NEVER_DUE = ("session", "cut")


@dataclass(frozen=True, slots=True)
class Replay:
    """What a stored run says about its load. data: its workload's file, None where its prompts were made."""

    loads: tuple[Load, ...]
    data: Path | None
    recipe: str | None
    isl: int | None
    osl: int | None
    seed: int
    arrival_seed: int
    cache: str
    tokenizer: str | None


def read_replay(path: Path, *, data: Path | None = None) -> Replay:
    """Read it. data: where the workload's file is now. Raises UsageError where the run holds nothing to send again."""
    run = Run(path)
    manifest = run.manifest
    workload = manifest.get("workload") or {}
    if manifest.get("simulated"):
        raise UsageError("is a simulation", where=f"--replay {path}", hint="simulate it again with the same seeds")
    table = run.requests().select(["stage", "request_id", "item_id", "intended_ns", "error_kind"])
    loads = []
    for entry in manifest.get("stages") or []:
        mine = table.filter(pc.equal(table.column("stage"), int(entry["stage"])))
        start = entry.get("start_ns")
        if start is not None and (found := _stage(mine.to_pylist(), entry, int(start))) is not None:
            loads.append(Load("open", arrival=Arrival("replay"), replay=found))
    if not loads:
        raise UsageError("holds no request that was due", where=f"--replay {path}", hint="give another run")
    name = str(workload.get("path") or "")
    kind, _, rest = name.partition(":") if workload.get("format") == "made" else ("", "", "")
    made = kind in ("fixed", "recipe")
    lengths = rest.split(":") if kind == "fixed" else []
    if (data is None and not made and not Path(name).is_file()) or (kind == "fixed" and len(lengths) != 2):
        raise UsageError(
            f"its workload '{name[:200]}' is not there", where=f"--replay {path}", hint="say where with -d"
        )
    seeds = manifest.get("seeds") or {}
    return Replay(
        loads=tuple(loads),
        data=None if made else data or Path(name),
        recipe=rest if kind == "recipe" else None,
        isl=int(lengths[0]) if lengths else None,
        osl=int(lengths[1]) if lengths else None,
        seed=int(seeds.get("content") or 0),
        arrival_seed=int(seeds.get("arrival") or 0),
        cache=str(workload.get("cache") or "warm"),
        tokenizer=workload.get("tokenizer"),
    )


def _stage(rows: list[dict[str, Any]], entry: dict[str, Any], start: int) -> ReplayStage | None:
    due = []
    for row in rows:
        number = str(row["request_id"]).rpartition("-")[2]
        if row["error_kind"] not in _NEVER_DUE and number.isdecimal():
            due.append((max(0, int(row["intended_ns"]) - start), int(number), str(row["item_id"])))
    if not due:
        return None
    due.sort()
    last = due[-1][0] + 1
    w0, w1 = entry.get("w0_ns"), entry.get("w1_ns")
    begin = 0 if w0 is None else int(w0) - start
    end = last if w1 is None else int(w1) - start
    return ReplayStage(
        name=str(entry.get("name") or entry["stage"]),
        at_ns=tuple(at for at, _, _ in due),
        sequences=tuple(number for _, number, _ in due),
        item_ids=tuple(item for _, _, item in due),
        w0_ns=begin,
        w1_ns=max(end, begin + 1),
    )


def place_of(stage: ReplayStage, items: Sequence[WorkloadItem]) -> int:
    """Where in the workload the stage stood: the place of its sequence number 0. Raises NotComparableError where the
    workload is another now."""
    places = {item.id: place for place, item in enumerate(items)}
    first = places.get(stage.item_ids[0])
    place = None if first is None else (first - stage.sequences[0]) % len(items)
    same = place is not None and all(
        items[(place + number) % len(items)].id == item
        for number, item in zip(stage.sequences, stage.item_ids, strict=True)
    )
    if place is None or not same:
        raise NotComparableError(
            f"the workload does not hold the requests of stage '{stage.name}' in their order",
            where="--replay",
            hint="give the file that the run was made with (-d)",
        )
    return place
