"""The transports by the names that `--transport` gives them.

The one idea: whoever makes load asks for a client here and knows no class of one.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping, Sequence

from benchlab.clients.base import ByteLimits, Timeouts
from benchlab.clients.dialect import Dialect
from benchlab.clients.endpoint import Endpoint
from benchlab.clients.native import NativeClient
from benchlab.clients.portable import PortableClient
from benchlab.clients.stamps import Stamps
from benchlab.clock import Clock

TRANSPORTS = ("auto", "native", "aiohttp")


def resolve_transport(name: str) -> str:
    """`native` or `aiohttp`: what `auto` means on this platform (one whose event loops watch sockets, or not)."""
    if name == "auto":
        return "aiohttp" if sys.platform == "win32" else "native"
    return name


def make_client(
    transport: str,
    endpoint: Endpoint,
    dialect: Dialect,
    *,
    clock: Clock,
    stamps: Stamps,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    limits: ByteLimits | None = None,
    tls: ssl.SSLContext | None = None,
    sources: Sequence[str] = (),
) -> NativeClient | PortableClient:
    """A client over `transport`, one of `TRANSPORTS`. Made inside a running loop. `stamps` and `sources` (local
    addresses to connect from) are native's alone."""
    name = resolve_transport(transport)
    if name == "native":
        return NativeClient(
            endpoint,
            dialect,
            clock=clock,
            headers=headers,
            timeouts=timeouts,
            limits=limits,
            stamps=stamps,
            tls=tls,
            sources=sources,
        )
    if name == "aiohttp":
        stamps.close()
        return PortableClient(
            endpoint, dialect, clock=clock, headers=headers, timeouts=timeouts, limits=limits, tls=tls
        )
    raise ValueError(f"no transport is called '{name}'")
