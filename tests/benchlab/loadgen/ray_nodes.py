"""A Ray cluster of several nodes on loopback, in a process of its own, told what to do over its standard input.

It prints `ready ADDRESS PID` and then answers each word: `kill` (the second node dies as by SIGKILL), `add` (one node
more joins). It ends, and every process of Ray with it, when its input does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchlab.campaign.process import descendants, gone

ROOT = Path(__file__).resolve().parents[3]
LOOPBACK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray binds to 127.0.0.1 and to nothing else
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",  # else a token of the person who runs the tests would decide
}
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'benchlab[cluster]'"
)


class Nodes:
    """The cluster under way. `env` makes a command of benchlab find it with `--cluster auto`."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder
        self.address = self._line("ready ").split()[1]
        self.env = {**LOOPBACK, "RAY_ADDRESS": self.address}
        self.pids = set(descendants(process.pid))

    def _line(self, start: str, limit_s: float = 60.0) -> str:
        assert self._process.stdout is not None
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            ready, _, _ = select.select([self._process.stdout], [], [], 1.0)
            if not ready:
                continue
            line = self._process.stdout.readline()
            assert line, "the cluster did not start"
            if line.startswith(start):
                return line
        raise AssertionError(f"the cluster never said {start!r}")

    def found(self, text: str) -> list[Path]:
        """Files of Ray (logs, spilled objects) that hold the text."""
        files = [path for path in self._folder.rglob("*") if path.is_file() and not path.is_symlink()]
        return [path for path in files if text.encode() in path.read_bytes()]

    def folders(self) -> list[Path]:
        """Folders that load generators have on the nodes now."""
        return list(self._folder.glob("benchlab-*"))

    def workers(self) -> list[int]:
        """Load generator processes on the nodes."""
        found = []
        for pid in descendants(self._process.pid):
            with contextlib.suppress(OSError):
                if b"benchlab.loadgen.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        self.pids |= set(found)
        return found

    def tell(self, word: str) -> None:
        """Send a word and wait until it was done."""
        assert self._process.stdin is not None
        self.pids |= set(descendants(self._process.pid))
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        self._line(f"done {word}")
        self.pids |= set(descendants(self._process.pid))


@contextlib.contextmanager
def ray_nodes() -> Iterator[Nodes]:
    """Two nodes of one CPU each. Neither a process of Ray nor a file outlives the block."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # not pytest's: a socket's path has 107 bytes at most
    environment = {**os.environ, **LOOPBACK, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engines")])}
    environment["TMPDIR"] = str(folder)
    (folder / "ray").mkdir()
    environment.pop("RAY_ADDRESS", None)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchlab.loadgen.ray_nodes", str(folder / "ray")],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        start_new_session=True,
    ) as process:
        nodes = None
        try:
            nodes = Nodes(process, folder)
            yield nodes
        finally:
            pids = (nodes.pids if nodes else set()) | set(descendants(process.pid))
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            for pid in [process.pid, *pids]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(10)
            shutil.rmtree(folder, ignore_errors=True)
            assert gone(sorted(pids)), "a process of Ray outlived its test"


def serve(folder: str) -> None:
    """The process itself."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 4, "health_check_initial_delay_ms": 0}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**size, "include_dashboard": False, "temp_dir": folder, "_system_config": quick},
    )
    second = cluster.add_node(**size)
    print("ready", cluster.address, os.getpid(), flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(second, allow_graceful=False)
        elif line.strip() == "add":
            cluster.add_node(**size)
        print("done", line.strip(), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    serve(sys.argv[1])
