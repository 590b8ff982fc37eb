"""Which telemetry a run gets: the GPUs where the endpoint runs, this host always, the engine's own metrics."""

from __future__ import annotations

import os
from typing import Any

from benchlab.campaign.spec import RunSpec
from benchlab.clients.endpoint import Endpoint
from benchlab.launch.base import Engine
from benchlab.telemetry.sampler import Sampler
from benchlab.telemetry.sources import Sources, open_sources


def find_sources(spec: RunSpec, endpoint: Endpoint, engine: Engine | None) -> Sources:
    """What can be sampled; what `--gpu` or `--scrape` names and is not there is an error before any load."""
    return open_sources(
        endpoint.base,
        gpu=spec.gpu,
        scrape=spec.scrape,
        launched=engine is not None and engine.pid is not None,
        metrics=engine.metrics_url if engine is not None else None,
        headers=spec.headers,
        trees={"engine": engine.pid} if engine is not None and engine.pid is not None else {},
        environ={**os.environ, **engine.env} if engine is not None else None,
    )


def start_sampler(sources: Sources, pids: dict[str, int], t0_ns: int) -> Sampler:
    """A running sampler on the run's clock, the load generator's own processes included."""
    for entity, pid in pids.items():
        sources.host.watch(entity, pid)
    return Sampler(sources.all, t0_ns, notes=sources.notes).start()


def telemetry_facts(sampler: Sampler, sources: Sources) -> dict[str, Any]:
    """The manifest's `telemetry` entry."""
    return {**sampler.facts(), "gpu": sources.gpu_facts or None, "gpu_policy": sources.gpu.reason}
