"""Limits of this process that would fail requests and look like the server's fault: found before the start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from benchlab.errors import UsageError

_OTHER_DESCRIPTORS = 64
"""What a worker needs beside its connections: pipes, spool, timers, the libraries' own."""


def raise_descriptor_limit(connections: int | None) -> int | None:
    """Raise the soft limit of open files to the hard one; returns it, None where the platform has none.

    connections: how many at once one process will need, None if not known. Raises UsageError when the hard limit is
    too low for it.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    wanted = 1_048_576 if unlimited else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError):
            pass
    if connections is not None and not unlimited and connections + _OTHER_DESCRIPTORS > soft:
        raise UsageError(
            f"{connections} connections need about {connections + _OTHER_DESCRIPTORS} open files, "
            f"and this process may have {soft}",
            where="--concurrency",
            hint=f"ulimit -Hn {connections + 1024} (or LimitNOFILE=, or nofile in limits.conf), or more --workers",
        )
    return soft


_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SPARE_PORTS = 200
"""Of the range, what others on this host may hold."""


def local_ports() -> int | None:
    """How many ports a connection may be given from one address to one target; None where the system does not say."""
    try:
        low, high = map(int, _PORT_RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return max(0, high - low + 1)


def choose_sources(connections: int | None, target: str, given: Sequence[str]) -> tuple[list[str], str | None]:
    """Local addresses to connect from, and a sentence to print where there is something to say.

    connections: how many at once the run may need, None if not known. target: the endpoint's address. Past the ports
    of one address a loopback target gets 127.0.0.1, 127.0.0.2, ...; another one needs --source-address, and the
    sentence warns with the numbers.
    """
    ports = local_ports()
    usable = None if ports is None else max(1, ports - _SPARE_PORTS)
    sources = list(given)
    if connections is None or usable is None or connections <= usable * max(1, len(sources)):
        return sources, None
    needed = -(-connections // usable)
    if not sources and _is_loopback(target) and sys.platform == "linux" and needed < 250:
        names = [f"127.0.0.{number}" for number in range(1, needed + 1)]
        return names, f"{connections:,} connections need more than this host's {ports:,} ports: from {needed} addresses"
    return sources, (
        f"{connections:,} connections at once may be needed, and from {max(1, len(sources))} local address(es) this "
        f"host has ports for {usable * max(1, len(sources)):,}: give {needed} with --source-address, or widen it with "
        "`sysctl -w net.ipv4.ip_local_port_range='1024 65535'`"
    )


def _is_loopback(target: str) -> bool:
    if target == "localhost":
        return True
    try:
        address = ip_address(target)
    except ValueError:
        return False
    return address.version == 4 and address.is_loopback


def parse_sources(text: str | None) -> list[str]:
    """'10.0.0.5,10.0.0.6' -> addresses. Raises UsageError for what is none, or is not this host's."""
    import socket

    found = []
    for word in filter(None, (word.strip() for word in (text or "").split(","))):
        hint = "give addresses of this host, such as 10.0.0.5,10.0.0.6"
        try:
            family = socket.AF_INET6 if ip_address(word).version == 6 else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.bind((word, 0))
        except ValueError:
            raise UsageError(f"'{word}' is no address", where="--source-address", hint=hint) from None
        except OSError as error:
            raise UsageError(f"{word}: {error.strerror}", where="--source-address", hint=hint) from None
        found.append(word)
    return found
