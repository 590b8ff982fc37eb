"""Limits of this process that would fail requests and look like the server's fault: found before the start."""

from __future__ import annotations

import sys

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
