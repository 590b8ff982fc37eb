"""Which GPUs may be sampled: those where the endpoint runs, or those the user names, and no others.

The client's own card says nothing of a server elsewhere; a plot of it would look like the server's. So the answer
carries its reason, and the reason goes into the manifest.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchlab.errors import UsageError


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """sample: whether NVML is asked. devices: the user's list ("0,1"), None for those that are visible. reason: why."""

    sample: bool
    devices: str | None
    reason: str


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this host by its own name alone (no name is looked up: a DNS answer proves nothing)."""
    host = (urlsplit(url if "://" in url else f"//{url}").hostname or "").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or address.is_unspecified or bool(mapped and mapped.is_loopback)


def gpu_policy(url: str, gpu_flag: str, launched: bool) -> GpuPolicy:
    """Decide from the endpoint's URL, `--gpu` (auto | off | a list such as 0,1) and whether we started the engine.

    Raises UsageError for a list that holds neither indexes nor UUIDs.
    """
    flag = gpu_flag.strip()
    if flag == "off":
        return GpuPolicy(False, None, "switched off (--gpu off)")
    if flag != "auto":
        words = [word.strip() for word in flag.split(",")]
        if not all(word.isdecimal() or word.upper().startswith(("GPU-", "MIG-")) for word in words):
            raise UsageError(
                f"'{gpu_flag}' names no GPUs", where="--gpu", hint="write auto, off, indexes (0,1) or UUIDs (GPU-...)"
            )
        return GpuPolicy(True, ",".join(words), f"named by the user (--gpu {flag})")
    if launched:
        return GpuPolicy(True, None, "the engine was started on this host")
    if is_loopback(url):
        return GpuPolicy(True, None, "the endpoint is a loopback address")
    host = urlsplit(url if "://" in url else f"//{url}").hostname or url
    return GpuPolicy(
        False,
        None,
        f"the endpoint ({host}) is not a loopback address: this host's GPUs are not its GPUs; "
        "use --scrape for its own metrics, or --gpu 0,1 if it does run here",
    )
