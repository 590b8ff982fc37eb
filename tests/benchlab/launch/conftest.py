"""Small engines that misbehave in one way each, as Python scripts, and a check that nothing outlives a test."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from benchlab.launch.base import Engine, load_launch_file

SERVER = """
import http.server, os, signal, subprocess, sys, time
port = int(sys.argv[1]); flags = sys.argv[2:]
began = time.monotonic()
def flag(name): return any(f == name or f.startswith(name + "=") for f in flags)
def value(name): return next(f.split("=", 1)[1] for f in flags if f.startswith(name + "="))
print("loading weights with sk-verysecret", flush=True)
if flag("--die"):
    print("\\x1b[31mRuntimeError: out of cheese\\x1b[0m", flush=True); sys.exit(3)
if flag("--killed"):
    os.kill(os.getpid(), 9)
if flag("--child"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    open(value("--child"), "w").write(str(child.pid))
if flag("--daemon"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    open(value("--daemon"), "w").write(str(child.pid))
if flag("--deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        late = flag("--never") or (flag("--late") and time.monotonic() - began < float(value("--late")))
        if self.path == "/die":
            print("segmentation of the fault", flush=True); os._exit(5)
        status = 503 if late and self.path == "/ready" else 200
        body = b'{"version": "9.8.7"}' if self.path == "/version" else b"{}"
        self.send_response(status); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

LAUNCH = """
title = "the fake engine"
tried = "yes"
[start]
argv = ["{{python}}", "{script}", "{{port}}", "{{args}}"]
env = {{ FAKE_THREADS = "{{threads}}", FAKE_TOKEN = "hush" }}
[ready]
paths = ["/ready", "/v1/models"]
limit = "20s"
every = "10ms"
[version]
path = "/version"
pattern = '"version": *"([^"]+)"'
[stop]
grace = "5s"
[capabilities]
usage = true
[[hints]]
log = "out of cheese"
advice = "buy cheese"
"""


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX" if Path("/proc").is_dir() else True
    except OSError:
        return False


def is_dead_within(pid: int, seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def alive():
    """Whether a process is there and no zombie."""
    return is_alive


@pytest.fixture
def wait_dead():
    """Waits until a process is gone; False if it stays."""
    return is_dead_within


@pytest.fixture
def launch_file(tmp_path):
    """A launch file for the fake engine."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    path = tmp_path / "fake.toml"
    path.write_text(LAUNCH.format(script=script))
    return path


@pytest.fixture
def start(launch_file, tmp_path):
    """Starts the fake engine with flags; whatever a test leaves running is ended and fails it."""
    started = []

    def run(*flags, **options):
        options.setdefault("log", tmp_path / "run" / "engine.log")
        engine = Engine.start(load_launch_file(launch_file), args=flags, **options)
        started.append(engine)
        return engine

    yield run
    for engine in started:
        engine.stop()
        assert not is_alive(engine.pid)


@pytest.fixture
def child_file(tmp_path):
    """Where the fake engine writes its child's pid; the child is ended if a test failed to."""
    path = tmp_path / "child.pid"
    yield path
    if path.exists() and is_alive(int(path.read_text())):
        os.kill(int(path.read_text()), signal.SIGKILL)
