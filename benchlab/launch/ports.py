"""A port to listen on: a free one, or the asked one with who holds it. No port is ever freed by force."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from benchlab.errors import UsageError

_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    """A process that listens; pid None when the kernel tells no one but that somebody does (another user's)."""

    pid: int | None
    command: str

    def __str__(self) -> str:
        return "a process that this user may not see" if self.pid is None else f"process {self.pid} ({self.command})"


def _inodes(port: int, proc: Path) -> set[str]:
    """Socket inodes that listen on a TCP port, of either IP version."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and int(words[1].rsplit(":", 1)[1], 16) == port:
                found.add(words[9])
    return found


def listeners(port: int, proc: Path = Path("/proc")) -> list[Listener]:
    """Who listens on a port of this host, as far as the kernel tells this user; [] where there is no /proc."""
    inodes = _inodes(port, proc)
    if not inodes:
        return []
    wanted = {f"socket:[{inode}]" for inode in inodes}
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(_link(handle) in wanted for handle in (entry / "fd").iterdir()):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append(Listener(int(entry.name), command[:120]))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found or [Listener(None, "")]


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def choose_port(host: str, asked: int | None) -> int:
    """A free port (asked None or 0), or the asked one. Raises UsageError when it is taken, saying by whom."""
    try:
        with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
            if asked:
                # as servers do: a connection that ended a moment ago (TIME_WAIT) does not hold the port
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, asked or 0))
            return int(probe.getsockname()[1])
    except OSError as error:
        where = f"{host}:{asked or 0}"
        if error.errno == errno.EADDRINUSE:
            who = ", ".join(str(listener) for listener in listeners(asked or 0))
            raise UsageError(
                f"the port is taken{f' by {who}' if who else ''}",
                where=where,
                hint=f"give no port (a free one is chosen), or measure what runs there: -u http://{where}",
            ) from error
        raise UsageError(
            f"cannot listen there: {error.strerror or os.strerror(error.errno or 0)}", where=where
        ) from error
    except OverflowError as error:
        raise UsageError(f"{asked} is no port", where="--port", hint="1 to 65535") from error
