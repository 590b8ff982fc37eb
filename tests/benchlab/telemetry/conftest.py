"""The stand-in NVML library, compiled once a session, and a way to run code against it in its own process."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "support" / "nvml" / "fake_nvml.c"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory):
    """The folder that holds the stand-in libnvidia-ml.so.1."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform == "darwin":
        pytest.skip("the stand-in NVML needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("nvml")
    command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def with_nvml(nvml_library, tmp_path):
    """Runs Python source in a process where NVML sees the devices given; answers what it printed as JSON.

    pynvml loads the library by its name, and once a process: hence a process for each.
    """

    def run(devices: str, source: str, **environ: str):
        text = tmp_path / "devices.txt"
        text.write_text(devices)
        env = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        env |= {"LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML": str(text), **environ}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", source],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def server():
    """A metrics server: it answers `page` (bytes) with `status`, and keeps each request's `headers`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.server.page
            self.server.headers.append(self.headers)
            self.send_response(self.server.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.page, httpd.status, httpd.headers = b"", 200, []
        httpd.url = f"http://127.0.0.1:{httpd.server_port}/metrics"
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        yield httpd
        httpd.shutdown()
        thread.join()
