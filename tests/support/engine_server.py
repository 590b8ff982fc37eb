"""The bundled engine's server in its own process, and small clients for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

NO_TORCH = (
    "import sys\n"
    "for name in ('torch', 'tokenizers', 'numpy'): sys.modules[name] = None\n"
    "from benchlab_engine.__main__ import main\n"
    "sys.exit(main(sys.argv[1:]))"
)


@contextmanager
def served(*flags, runner="paced:null"):
    argv = [sys.executable, "-c", NO_TORCH, "serve", "--runner", runner, "--port", "0", *flags]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("ready http://127.0.0.1:"), process.stderr.read()
            process.url = line.split()[1]
            yield process
        finally:
            process.kill()


def ask(url, path, body=None, headers=None):
    data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
    request = urllib.request.Request(url + path, data, {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def chat(**extra):
    return {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "seed": 0, **extra}


def events(raw):
    lines = [line[6:] for line in raw.decode().split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def text_of(found):
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in found if e != "[DONE]" and e.get("choices"))


def metric(url, name):
    page = ask(url, "/metrics")[2].decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.split("{")[0].split(" ")[0] == name)


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def open_stream(url, headers="", **extra):
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    body = json.dumps(chat(stream=True, **extra))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    connection.sendall((head + body).encode())
    return connection
