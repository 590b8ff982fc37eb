"""Bad input of `run` and `sweep`: one clear error each, with what, where and the next thing to try."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import benchlab

HERE = "http://127.0.0.1:9"

USAGE = {
    "no target": (["run", "-r", "1"], ["give an endpoint or an engine"]),
    "both targets": (["run", "-u", HERE, "--engine", "bundled"], ["not both"]),
    "URL without host": (["run", "-u", "http://"], ["-u/--url", "names no host"]),
    "URL with a wild port": (["run", "-u", "http://127.0.0.1:99999"], ["-u/--url", "Port out of range"]),
    "URL of another scheme": (["run", "-u", "ftp://127.0.0.1"], ["-u/--url", "ftp"]),
    "rate 0": (["sweep", "-u", HERE, "-r", "0"], ["-r/--rate", "a rate of 0 sends nothing"]),
    "negative rate": (["sweep", "-u", HERE, "-r", "1,-2"], ["-r/--rate", "-2"]),
    "rate in words": (["sweep", "-u", HERE, "-r", "fast"], ["-r/--rate", "'fast'", "90/min"]),
    "infinite rate": (["sweep", "-u", HERE, "-r", "inf"], ["-r/--rate", "'inf'"]),
    "huge rate": (["sweep", "-u", HERE, "-r", "1e999"], ["-r/--rate", "1e999"]),
    "no rate": (["sweep", "-u", HERE, "-r", ""], ["-r/--rate", "no rate was given"]),
    "no load in a sweep": (["sweep", "-u", HERE], ["a sweep needs loads"]),
    "no users": (["run", "-u", HERE, "-c", "0"], ["-c/--concurrency", "'0'"]),
    "half a user": (["run", "-u", HERE, "-c", "1.5"], ["-c/--concurrency", "'1.5'"]),
    "time without unit": (["run", "-u", HERE, "--duration", "60"], ["--duration", "60ms or 60s"]),
    "drain without unit": (["run", "-u", HERE, "--drain", "5"], ["--drain", "5ms or 5s"]),
    "timeout without unit": (["run", "-u", HERE, "--timeout", "5"], ["--timeout", "5ms or 5s"]),
    "warm-up without unit": (["run", "-u", HERE, "--warmup", "5"], ["--warmup", "5ms or 5s"]),
    "unknown timeout": (["run", "-u", HERE, "--timeout", "idle=5s"], ["--timeout", "connect, first, gap, total"]),
    "slo without unit": (["run", "-u", HERE, "--slo", "ttft=500"], ["--slo", "500ms or 500s"]),
    "slo of a share": (["run", "-u", HERE, "--slo", "ttft=5%"], ["--slo"]),
    "unknown metric, slo": (["run", "-u", HERE, "--slo", "tfft=1s"], ["--slo", "did you mean ttft?", "tpot"]),
    "unknown metric, objective": (["run", "-u", HERE, "--objective", "latency.p9<=1s"], ["--objective", "e2e"]),
    "unknown metric, assert": (["run", "-u", HERE, "--assert", "speed.p50<1s"], ["--assert", "known: ttft"]),
    "no statistic": (["run", "-u", HERE, "--objective", "ttft<=1s"], ["--objective", "ttft.p95"]),
    "unknown statistic": (["run", "-u", HERE, "--objective", "ttft.p100<=1s"], ["--objective", "p100"]),
    "no operator": (["run", "-u", HERE, "--assert", "ttft.p50"], ["--assert"]),
    "target over 1": (["run", "-u", HERE, "--slo-target", "150%"], ["--slo-target", "150%"]),
    "percentile 100": (["run", "-u", HERE, "--percentiles", "50,100"], ["--percentiles", "100"]),
    "regression against nothing": (["run", "-u", HERE, "--max-regression", "tpot.p95=5%"], ["--baseline"]),
    "requests 0": (["run", "-u", HERE, "-n", "0"], ["-n/--requests", "0 requests"]),
    "requests and a time": (["run", "-u", HERE, "-n", "1", "--duration", "1s"], ["give one"]),
    "one length": (["run", "-u", HERE, "--isl", "8"], ["--isl", "both lengths"]),
    "lengths and data": (["run", "-u", HERE, "--isl", "8", "--osl", "8", "-d", "chat-short"], ["one of them"]),
    "no such workload": (["run", "-u", HERE, "-d", "chat-shirt"], ["did you mean 'chat-short'", "-d/--data"]),
    "no such engine": (["run", "--engine", "vlm", "-m", "x"], ["--engine", "vllm"]),
    "engine without model": (["run", "--engine", "bundled"], ["-m/--model"]),
    "unknown api": (["run", "-u", HERE, "--api", "grpc"], ["--api", "chat, completions"]),
    "unknown cache": (["run", "-u", HERE, "--cache", "hot"], ["--cache", "warm, cold"]),
    "unknown arrival": (["run", "-u", HERE, "-r", "1", "--arrival", "burst"], ["--arrival", "poisson"]),
    "trace without times": (["run", "-u", HERE, "-d", "chat-short", "--arrival", "trace"], ["--arrival trace"]),
    "unknown format": (["run", "-u", HERE, "--format", "xml"], ["--format", "table, json, md, csv"]),
    "unknown progress": (["run", "-u", HERE, "--progress", "bar"], ["--progress", "plain"]),
    "broken body": (["run", "-u", HERE, "--body", "{"], ["--body", "not JSON"]),
    "body without stream": (["run", "-u", HERE, "--body", '{"stream": false}'], ["--body", "measures streams"]),
    "header without name": (["run", "-u", HERE, "-H", "secret"], ["-H", "Name: value"]),
    "label without value": (["run", "-u", HERE, "-l", "team"], ["-l/--label", "team=search"]),
    "unknown flag": (["run", "-u", HERE, "--rates", "1"], ["--rates", "--rate"]),
    "unknown command": (["messure"], ["messure", "benchlab --help"]),
    "no whole number": (["run", "-u", HERE, "-n", "many"], ["-n"]),
    "workers 0": (["run", "-u", HERE, "--workers", "0"], ["--workers"]),
    "unknown recipe": (["workload", "make", "chat"], ["chat-short"]),
    "no such file to check": (["workload", "check", "nothing.jsonl"], ["nothing.jsonl"]),
    "unknown engine verb": (["engine", "sevre"], ["sevre"]),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(name, call, told, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv, words = USAGE[name]
    lines = told(call(*argv), 2)
    for word in words:
        assert word in "\n".join(lines[:-1])
    assert not list(tmp_path.iterdir())  # nothing is left behind by what never began


def test_a_missing_number_never_eats_the_next_flag(call, told) -> None:
    told(call("run", "-u", HERE, "-r", "-n", "5"), 2)


LINES = {
    "no JSON": ('{"prompt": ', ["2", "JSON"]),
    "not an object": ("[1]", ["2", "object"]),
    "wrong type": ('{"prompt": 5}', ["2", "prompt", "str"]),
    "unknown field": ('{"promt": "x"}', ["2", "promt", "prompt"]),
    "nothing asked": ('{"output_tokens": 5}', ["2", "prompt"]),
    "tokens below 1": ('{"prompt": "x", "output_tokens": 0}', ["2", "output_tokens"]),
    "messages empty": ('{"messages": []}', ["2", "messages"]),
    "bad UTF-8": (b'{"prompt": "\xff"}', ["2", "UTF-8"]),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("command", [["workload", "check"], ["run", "-u", HERE, "-d"]], ids=["check", "run"])
def test_broken_workload_line(name, command, call, told, tmp_path) -> None:
    line, words = LINES[name]
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b'{"prompt": "fine"}\n' + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    text = "\n".join(told(call(*command, path), 2)[:-1])
    assert "mine.jsonl" in text
    for word in words:
        assert word in text


def test_workload_that_holds_nothing(call, told, tmp_path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    assert "empty.jsonl" in told(call("run", "-u", HERE, "-d", tmp_path / "empty.jsonl"), 2)[0]


# -- endpoints


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><html><body>It works!</body></html>"
        self.send_response(self.server.status)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.do_GET()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(params=[200, 404, 401], scope="module")
def web_page(request) -> Iterator[tuple[str, int]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    server.status = request.param
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", request.param
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("model", [[], ["-m", "some"]], ids=["any model", "named"])
def test_a_web_page_is_no_endpoint(web_page, model, call, told, tmp_path) -> None:
    url, status = web_page
    text = "\n".join(told(call("run", "-u", url, "-n", "1", "-c", "1", "-o", tmp_path / "run", *model), 3))
    assert url in text
    assert ("HTML" if status != 401 else "OPENAI_API_KEY") in text
    assert not (tmp_path / "run").exists()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_nothing_listens_there(call, told, free_port, tmp_path) -> None:
    text = "\n".join(told(call("run", "-u", f"http://127.0.0.1:{free_port}", "-o", tmp_path / "run"), 3))
    assert f"127.0.0.1:{free_port}" in text
    assert "refused" in text
    assert not (tmp_path / "run").exists()


def test_no_such_host(call, told) -> None:
    assert "no-such-host.invalid" in told(call("run", "-u", "http://no-such-host.invalid:8000"), 3)[0]


def test_no_such_model(engine, call, told, tmp_path) -> None:
    text = "\n".join(told(call("run", "-u", engine, "-m", "gpt-7", "-o", tmp_path / "run"), 3))
    assert "gpt-7" in text
    assert "tiny" in text
    assert not (tmp_path / "run").exists()


def test_wrong_path(engine, call, told) -> None:
    told(call("run", "-u", engine + "/api/v2", "-m", "tiny", "-c", "1", "-n", "1"), 3)


# -- where it goes


def test_out_that_holds_something(engine, call, told, tmp_path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    assert "ever overwritten" in told(call("run", "-u", engine, "-c", "1", "-n", "1", "-o", tmp_path), 2)[0]
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_out_that_is_a_file(engine, call, told, tmp_path) -> None:
    (tmp_path / "file").write_text("mine")
    told(call("run", "-u", engine, "-c", "1", "-n", "1", "-o", tmp_path / "file"), 2)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("where", ["/proc/none/run", "/dev/null/run"])
def test_out_that_cannot_be_made(where, engine, call, told) -> None:
    assert where in told(call("run", "-u", engine, "-c", "1", "-n", "1", "-o", where), 2)[0]


@pytest.mark.parametrize("baseline", ["none", "file", "empty"])
def test_baseline_that_is_none(baseline, call, told, tmp_path) -> None:
    (tmp_path / "file").write_text("no run")
    (tmp_path / "empty").mkdir()
    argv = ["run", "-u", HERE, "--max-regression", "tpot.p95=5%", "--baseline", tmp_path / baseline]
    assert baseline in told(call(*argv), 6)[0]


# -- in processes of their own: what only a process has


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["run", "-u", "http://127.0.0.1:1"], 3),
        (["sweep", "-u", HERE, "-r", "0"], 2),
        (["run", "-u", b"http://\xff", "-c", "1"], 2),
        (["run", "-u", HERE, "-o", b"r\xe4n"], 2),
        (["nonsense"], 2),
    ],
)
def test_real_processes_say_the_same(argv, code, told, tmp_path) -> None:
    told(benchlab(*argv, cwd=tmp_path), code)
    assert not list(tmp_path.glob("runs/*"))


def test_dry_run_sends_nothing(call) -> None:
    done = call("sweep", "-u", HERE, "-r", "1,2", "--duration", "10s", "--dry-run")
    assert done.code == 0
    assert "2/s" in done.out


def test_progress_json_is_json_on_stderr(engine, call, tmp_path) -> None:
    argv = ["run", "-u", engine, "-c", "1", "-n", "2", "--isl", "8", "--osl", "4", "--warmup", "none"]
    done = call(*argv, "--progress", "json", "--format", "json", "-o", tmp_path / "run")
    assert json.loads(done.out)["schema"] == 1
    *events, last = done.err.strip().splitlines()
    assert last.startswith("benchlab: exit ")
    assert {json.loads(line)["event"] for line in events} <= {"note", "tick", "stage"}


def test_out_default_is_a_new_directory(engine, call, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["run", "-u", engine, "-c", "1", "-n", "1", "--isl", "8", "--osl", "4", "--warmup", "none", "-q"]
    done = call(*argv)
    [path] = Path("runs").iterdir()
    assert path.name in done.out
    assert len(done.err.strip().splitlines()) == 1
