"""The sources of one run, from the flags people type: `--gpu auto|off|0,1` and `--scrape auto|off|URL`.

What `auto` cannot have is a note; what was asked for by name and cannot be had is an error. It starts no thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchlab.telemetry.host import HostSource
from benchlab.telemetry.nvml import open_nvml
from benchlab.telemetry.policy import GpuPolicy, gpu_policy
from benchlab.telemetry.prometheus import ScrapeError
from benchlab.telemetry.sampler import Source
from benchlab.telemetry.scrape import Scraper, ScrapeSource, metrics_url


@dataclass(slots=True)
class Sources:
    """What a run samples. notes: what it does not, and why. gpu_facts: for the manifest, {} without a GPU.

    host: to `watch` worker processes once they are started. scraper: the engine's metrics, for a baseline, or None.
    """

    all: list[Source]
    host: HostSource
    gpu: GpuPolicy
    scraper: Scraper | None = None
    notes: list[str] = field(default_factory=list)
    gpu_facts: dict[str, Any] = field(default_factory=dict)


def _scraper(url: str, scrape: str, told: str | None, headers: Mapping[str, str] | None) -> tuple[Scraper | None, str]:
    """The engine's metrics page if there is one, else why not. Raises ScrapeError for one that was named."""
    if scrape == "off":
        return None, "the engine's metrics are not read (--scrape off)"
    named = scrape != "auto"
    # a page named by the user may be another machine's: the endpoint's credentials are not for it
    scraper = Scraper(metrics_url(scrape) if named else told or metrics_url(url), headers=None if named else headers)
    try:
        scraper.fetch()
    except ScrapeError as error:
        scraper.close()
        if named:
            raise ScrapeError(error.what, where=f"--scrape {error.where}", hint=error.hint) from error
        return None, f"no engine metrics: {error.where}: {error.what}"
    return scraper, ""


def open_sources(
    url: str,
    *,
    gpu: str = "auto",
    scrape: str = "auto",
    launched: bool = False,
    metrics: str | None = None,
    headers: Mapping[str, str] | None = None,
    trees: Mapping[str, int] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Sources:
    """Host always; GPUs where they may be sampled; the engine's metrics where it has some.

    metrics: where a launch file says they are. headers: the endpoint's, for its own metrics only. trees: {entity: pid}
    to follow. environ: of the serving process, for CUDA_VISIBLE_DEVICES. Raises UsageError and ScrapeError for what
    was asked for by name and is not there.
    """
    policy = gpu_policy(url, gpu, launched)
    scraper, why = _scraper(url, scrape, metrics, headers)
    host = HostSource(trees)
    result = Sources([host], host, policy, scraper)
    if why:
        result.notes.append(why)
    if policy.sample:
        nvml = open_nvml(policy.devices, environ)
        result.gpu_facts = nvml.facts()
        if nvml.devices:
            result.all.append(nvml)
        else:
            result.notes.extend(nvml.notes)
            nvml.close()
    else:
        result.notes.append(f"no GPU telemetry: {policy.reason}")
    if scraper is not None:
        result.all.append(ScrapeSource(scraper))
    return result
