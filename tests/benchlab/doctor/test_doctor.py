"""The whole examination and how it is shown: 80 columns, JSON without gaps, exit codes, errors that say what to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchlab.cli import output
from benchlab.cli.app import main
from benchlab.clients.contract_shape import Check
from benchlab.doctor.ceiling import Ceiling, Rate
from benchlab.doctor.exactness import Error, Spread
from benchlab.doctor.examine import Examination, examine
from benchlab.doctor.host import Fact, Timers
from benchlab.doctor.table import as_json, as_text
from tests.benchlab.clients.contract_server import Endpoint
from tests.running import CLI, Done, environment, paced_engine, plain_signals
from tests.support.stub_server import StubServer

RATE = Rate(38_000.4, 120_000.6, 1, 0.84, 0.33)
NOTHING, FINE = Spread(0, None, None, None), Spread(5, 0.0, 0.002, 0.009)


def found(**more) -> Examination:
    plain = {
        "took_s": 14.83,
        "facts": [Fact("host", "Linux 6.18, x86_64"), Fact("cpu_governor", None), Fact("time_sync", "none", "steps")],
        "timers": Timers("uvloop", 0.0171, 3.22, 0.469, 1.84, 0.0915, None, 0.106),
        "ceiling": Ceiling(RATE, RATE, RATE, Rate(1, None, 2, 0, 0), RATE, 1000, 1000, None, "nothing told", 28_232),
        "exactness": [
            Error("kernel", 19_000, FINE, Spread(9, 0.0, 0.005, 0.013), 0.51, 1.0, 0, 0.0, 0.26, 0),
            Error("callback", 101, NOTHING, Spread(9, 1.646, 14.51, 12345.6), 0.0, None, 0, 0.0, 1.0, 0),
        ],
        "url": "http://127.0.0.1:8000",
        "model": "m" * 90,
        "checks": [
            Check("chat", "stream", "PASS", "word " * 40),
            Check("", "models", "FAIL", "none\x1b[31m\nsecond"),
            Check("messages", "unknown_model", "SKIP", "x" * 200),
        ],
        "notes": ["a note " * 30],
    }  # fmt: skip
    return Examination(**(plain | more))


def test_the_table_fits_80_columns_and_says_everything() -> None:
    shown = as_text(found())

    assert max(map(len, shown.splitlines())) <= 80
    for words in ("not told", "120,001", "events in a flood, 2 workers", "51% (100%)", "1 passed, 1 failed, 1 skipped"):
        assert words in shown
    assert "! a note" in shown and "\x1b" not in shown and "12346" in shown


def test_parts_that_were_not_asked_for_are_not_shown() -> None:
    shown = as_text(Examination(took_s=1.0))

    assert len(shown.splitlines()) == 1
    assert as_json(Examination())["ceiling"] is None


def test_json_has_every_figure_and_no_nan() -> None:
    document = json.loads(json.dumps(as_json(found()), allow_nan=False))

    assert document["schema"] == 1 and document["passed"] is False
    assert document["ceiling"]["events_per_s"] == pytest.approx(120_000.6)
    assert document["exactness"][0]["gap"] == {"n": 9, "p50": 0.0, "p99": 0.005, "max": 0.013}
    assert document["checks"][1] == {"api": "", "name": "models", "state": "FAIL", "seen": "none\x1b[31m\nsecond"}


@contextlib.contextmanager
def serving(fault: str = "") -> Iterator[str]:
    """The small endpoint in a thread."""
    urls: list[str] = []
    up, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with StubServer(Endpoint(fault)) as server:
            urls.append(server.url)
            up.set()
            while not over.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(10)
    try:
        yield urls[0]
    finally:
        over.set()
        thread.join()


def call(capfd: pytest.CaptureFixture[str], *words: str) -> Done:
    capfd.readouterr()
    code = main(["doctor", *words])
    shown = capfd.readouterr()
    return Done(code, shown.out, shown.err)


def test_an_endpoint_that_keeps_the_contract(capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as url:
        done = call(capfd, url, "--api", "all", "--only", "endpoint", "--format", "json")

    assert done.code == 0, done
    checks = json.loads(done.out)["checks"]
    assert {check["api"] for check in checks} == {"", "chat", "completions", "messages"}
    assert {check["state"] for check in checks} == {"PASS", "SKIP"}
    assert "endpoint: messages" in done.err and "benchlab: exit 0" in done.err


def test_the_bundled_engine_keeps_it_in_all_apis(capfd: pytest.CaptureFixture[str]) -> None:
    with paced_engine("ttft=5ms,itl=2ms") as url:
        done = call(capfd, url, "--api", "all", "--only", "endpoint", "--format", "json", "-q")

    assert done.code == 0, done
    skipped = {(check["api"], check["name"]) for check in json.loads(done.out)["checks"] if check["state"] != "PASS"}
    assert {name for _, name in skipped} == {"wrong_key"} and len(skipped) == 3


def test_an_endpoint_that_does_not_is_exit_4_and_the_check_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with serving("ignores max_tokens") as url:
        done = call(capfd, url, "--only", "endpoint", "-q")

    assert done.code == 4, done
    assert "FAIL chat" in done.out and "chat max_tokens" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["http://127.0.0.1:1", "--only", "endpoint"], 3, "cannot be reached"),
        (["--only", "endpoint"], 2, "which endpoint?"),
        (["--only", "everything"], 2, "'everything' is no part"),
        (["--only", ","], 2, "no part was named"),
        (["--api", "smoke"], 2, "'smoke' is not known"),
        (["ftp://x", "--only", "endpoint"], 2, "not spoken here"),
        (["--format", "csv"], 2, "no format"),
        (["--body", "[1]"], 2, "not a JSON object"),
        (["-H", "nonsense"], 2, "a name and a value"),
    ],
)
def test_bad_input_is_one_clear_error(
    capfd: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    done = call(capfd, *words)

    assert done.code == code, done
    assert done.out == "" and told in done.err and "  try: " in done.err
    assert "Traceback" not in done.err


def test_a_reader_that_leaves_does_not_change_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(output, "drop_stdout", lambda: None)
    monkeypatch.setattr(sys.stdout, "write", broken)
    assert main(["doctor", "--only", "host", "-q"]) == 0


@pytest.mark.slow
def test_the_whole_examination_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    whole = examine(url=None)

    assert whole.took_s < 60
    assert whole.ceiling is not None and whole.ceiling.events_per_s and whole.ceiling.events_per_s > 1000
    assert whole.ceiling.streams_held == whole.ceiling.streams_tried
    assert [error.stamps for error in whole.exactness if error.rate < 500] == ["kernel", "callback"]
    assert all(error.unmatched == 0 and error.early == 0 for error in whole.exactness)
    assert (tmp_path / "benchlab" / "ceiling.json").exists()
    assert max(map(len, as_text(whole).splitlines())) <= 80


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_everything_that_it_started(tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    argv = [*CLI, "doctor", "--only", "ceiling"]
    environ = environment({"TMPDIR": str(folder), "XDG_CACHE_HOME": str(tmp_path)})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, **pipes, env=environ, preexec_fn=plain_signals) as process:  # noqa: PLW1509
        assert process.stderr is not None and process.stdout is not None
        assert process.stderr.readline().startswith(b"ceiling")  # its server and workers are up
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait(20) == code
        assert process.stdout.read() == b""

    assert told.startswith(f"benchlab: exit {code} (".encode()) and told.count(b"\n") == 1
    assert list(folder.iterdir()) == []
    assert not (tmp_path / "benchlab").exists()
