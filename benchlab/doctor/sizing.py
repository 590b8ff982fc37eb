"""How many workers a load needs: the ceiling of this host, kept from run to run, against the events that are due.

The one idea: half of a worker's ceiling is what it should carry, since a stamp is sharp only while reads are not
merged and a send is on time only while the loop is free. The figure is measured once a boot and version (about two
seconds) and kept under the user's cache folder; `benchlab doctor` renews it. It must not know how load is sent.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchlab import __version__
from benchlab.campaign.spec import Load, RunSpec
from benchlab.workload.item import WorkloadItem

TARGET_SHARE = 0.5
"""Of a worker's ceiling."""
CLOSED_EVENTS_PER_USER = 100.0
"""Token events a second of one stream, where nothing is known of the server: a fast one."""
MAX_WORKERS = 64
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Kept:
    """What one worker carries on a core to itself: token events a second (one a read) and requests a second."""

    events_per_s: float
    requests_per_s: float


@dataclass(frozen=True, slots=True)
class Need:
    """The busiest stage of a run: requests and token events a second; `assumed` says what was not known."""

    requests_per_s: float
    events_per_s: float
    assumed: str = ""


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_file() -> Path:
    """Where the figure is kept (XDG_CACHE_HOME, else ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "benchlab" / "ceiling.json"


def _key() -> dict[str, str | int]:
    """What the figure holds for: this boot, this version, these cores."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = _BOOT_ID.read_text().strip()
    return {"boot_id": boot, "version": __version__, "cores": usable_cores()}


def recall(path: Path | None = None) -> Kept | None:
    """The figure of this boot, version and set of cores; None where there is none, or the file is not ours."""
    key = _key()
    try:
        found = json.loads((path or cache_file()).read_text(encoding="utf-8"))
        if not isinstance(found, dict) or any(found.get(name) != value for name, value in key.items()):
            return None
        kept = Kept(float(found["events_per_s"]), float(found["requests_per_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    good = all(math.isfinite(value) and value > 0 for value in (kept.events_per_s, kept.requests_per_s))
    return kept if good and key["boot_id"] else None


def keep(figure: Kept, path: Path | None = None) -> None:
    """Keep the figure; a cache that cannot be written is no fault."""
    file = path or cache_file()
    document = _key() | {
        "events_per_s": figure.events_per_s,
        "requests_per_s": figure.requests_per_s,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(document), encoding="utf-8")
        partial.replace(file)


def measured() -> Kept:
    """The figure from a short measurement now (about two seconds), kept for the next run."""
    from benchlab.doctor import ceiling
    from benchlab.doctor.rig import Rig

    with Rig(workers=1, tokens=ceiling.TOKENS) as rig:
        ceiling.warm_up(rig)
        sharp = ceiling.measure_sharp(rig, 0.6, workers=[0])
        requests = ceiling.measure_requests(rig, 0.4)
    figure = Kept(sharp.per_cpu_s or 1.0, requests.per_cpu_s or 1.0)
    keep(figure)
    return figure


def size(spec: RunSpec, say: Callable[[str], None]) -> RunSpec:
    """The run with as many workers as its busiest stage needs; says how many and why. Raises UsageError for a
    workload that cannot be read."""
    from benchlab.campaign.load_workload import load_workload

    items = load_workload(spec).items
    lengths = [item.output_tokens for item in items if item.output_tokens]
    mean = sum(lengths) / len(lengths) if lengths else None
    loads = [
        ("open", _rate(load, items, spec.trace.scale)) if load.kind == "open" else ("closed", load.concurrency or 1)
        for load in spec.loads
    ]
    figure = recall()
    if figure is None:
        say("measuring what one worker carries on this host (2 s, once a boot)")
        figure = measured()
    number, why = workers_for(need_of(loads, mean), figure, usable_cores())
    say(f"workers: {number} ({why})")
    return replace(spec, workers=number)


def _rate(load: Load, items: Sequence[WorkloadItem], scale: float) -> float:
    """Requests a second of an open loop; the mean rate of the workload's own times where none is given.

    scale: what those times are multiplied by (--trace-scale).
    """
    if load.ramp is not None:
        return load.ramp.peak * _requests_a_session(items)
    if load.replay is not None:
        return len(load.replay.at_ns) / max((load.replay.at_ns[-1] - load.replay.at_ns[0]) / 1e9, 1.0)
    if load.rate is not None:
        return load.rate * _requests_a_session(items)
    times = [item.arrival_s for item in items if item.arrival_s is not None]
    span = max(times) - min(times) if times else 0.0
    return len(items) / (span * scale) if span > 0 else 1.0  # later turns of sessions have no times of their own


def _requests_a_session(items: Sequence[WorkloadItem]) -> float:
    """Each arrival is a whole session where the workload has them."""
    from benchlab.loadgen.session_graph import SessionGraph, has_sessions

    return len(items) / SessionGraph(items).num_sessions if has_sessions(items) else 1.0


def need_of(loads: Sequence[tuple[str, float]], mean_tokens: float | None) -> Need:
    """The need of the busiest of these loads: ("open", requests a second) or ("closed", users).

    mean_tokens: output tokens of a request of the workload, None where it does not say.
    """
    tokens = mean_tokens or 128.0
    assumed = "" if mean_tokens else "128 tokens a request"
    needs: list[Need] = []
    for kind, number in loads:
        if kind == "open":
            needs.append(Need(number, number * tokens, assumed))
        else:
            events = number * CLOSED_EVENTS_PER_USER
            words = f"{CLOSED_EVENTS_PER_USER:g} tokens a second of each user"
            needs.append(Need(events / tokens, events, words))
    return max(needs, key=lambda need: need.events_per_s, default=Need(0, 0))


def workers_for(need: Need, figure: Kept, cores: int) -> tuple[int, str]:
    """How many workers, and why in words. One core is left for what else runs here, where there are several."""
    share = need.events_per_s / figure.events_per_s + need.requests_per_s / figure.requests_per_s
    wanted = max(1, math.ceil(share / TARGET_SHARE))
    most = max(1, min(MAX_WORKERS, cores - 1))
    due = f"{need.events_per_s:,.0f} token events/s due" + (f" (assumed: {need.assumed})" if need.assumed else "")
    words = f"{due}, one worker carries {figure.events_per_s:,.0f}/s at most and should carry half of it"
    if wanted > most:
        words += f"; {wanted} would be right, but this host has {cores} cores: a larger client host is wanted"
    return min(wanted, most), words
