"""Launch files: the shipped ones, the user's own, and every way to get one wrong."""

from __future__ import annotations

import signal
import sys

import pytest

from benchlab.errors import Exit, UsageError
from benchlab.launch.base import load_launch_file, shipped_names
from benchlab.launch.command import build_command, default_served_name

GOOD = '[start]\nargv = ["x", "{port}", "{args}"]\n[ready]\npaths = ["/health"]\n'


def test_the_shipped_files_are_sound_and_say_whether_they_were_tried():
    assert {"attach", "bundled", "llamacpp", "vllm"} <= set(shipped_names())
    for name in shipped_names():
        file = load_launch_file(name)
        assert file.title and file.tried and file.models_path == "/v1/models"
        assert file.attach or file.hints
    assert load_launch_file("sglang").tried == "no" and load_launch_file("tgi").tried == "no"


def test_the_bundled_engines_command():
    file = load_launch_file("bundled")
    command = build_command(
        file, {"python": "py", "model": "0:tiny", "host": "127.0.0.1", "port": 81, "threads": 1}, ["--runner", "torch"]
    )

    assert command.argv == (
        "py", "-m", "benchlab_engine", "serve", "--model", "0:tiny", "--host", "127.0.0.1", "--port", "81",
        "--threads", "1", "--runner", "torch",
    )  # fmt: skip
    named = build_command(file, {"python": "py", "model": "m", "host": "h", "port": 1, "served_name": "n"})
    assert named.argv[-2:] == ("--served-model-name", "n")
    assert command.env == {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    assert file.ready_paths == ("/ready",)


def test_llamacpps_command_with_and_without_threads():
    file = load_launch_file("llamacpp")
    given = {"model": "m/Smol.Q4_1.gguf", "host": "127.0.0.1", "port": 81}
    argv = build_command(file, given).argv

    assert argv[:5] == ("llama-server", "-m", "m/Smol.Q4_1.gguf", "--alias", "Smol.Q4_1")
    assert "--metrics" in argv and "-t" not in argv
    assert build_command(file, {**given, "threads": 2}, ["--slots"]).argv[-3:] == ("-t", "2", "--slots")
    assert build_command(file, {**given, "program": "/opt/llama-server", "slots": 4}).argv[0] == "/opt/llama-server"


def test_vllms_command():
    command = build_command(
        load_launch_file("vllm"), {"python": "py", "model": "org/m", "host": "::1", "port": 81, "kv_space": 1}
    )

    assert command.argv[:3] == ("py", "-m", "vllm.entrypoints.openai.api_server")
    assert command.argv[3:7] == ("--model", "org/m", "--served-model-name", "org/m")
    assert command.env["VLLM_CPU_KVCACHE_SPACE"] == "1" and "VLLM_CPU_OMP_THREADS_BIND" not in command.env


def test_names_under_which_models_are_served():
    assert default_served_name("/models/A-b.gguf") == "A-b"
    assert default_served_name("./hf-dir") == "hf-dir"
    assert default_served_name("org/name") == "org/name"


def test_json_in_an_argument_is_no_placeholder(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(GOOD.replace('"{args}"', """'{"method": "ngram", "n": {}}', "{args}\""""))

    assert build_command(load_launch_file(path), {"port": 1}).argv == ("x", "1", '{"method": "ngram", "n": {}}')


def test_a_value_that_is_not_given_is_named():
    with pytest.raises(UsageError, match="no model is given") as caught:
        build_command(load_launch_file("vllm"), {"python": "py", "host": "h", "port": 1})
    assert "-m/--model" in caught.value.hint and "vllm.toml" in caught.value.where


def test_a_users_file_says_only_what_differs(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'extends = "llamacpp"\n[defaults]\nprogram = "/opt/llama"\n[stop]\nsignal = "SIGINT"\n'
        '[[hints]]\nlog = "mine"\nadvice = "ours"\n'
    )
    file, base = load_launch_file(path), load_launch_file("llamacpp")

    assert (file.name, file.argv, file.ready_paths) == ("mine", base.argv, base.ready_paths)
    assert file.values == {**base.values, "program": "/opt/llama"}
    assert file.stop_signal == signal.SIGINT and file.stop_grace_ns == base.stop_grace_ns
    assert file.hints[0].advice == "ours" and len(file.hints) == len(base.hints) + 1
    assert file.sha256 != base.sha256


def test_a_file_beside_another_is_found_from_there(tmp_path):
    (tmp_path / "base.toml").write_text(GOOD)
    (tmp_path / "over.toml").write_text('extends = "./base.toml"\ntitle = "over"\n')

    assert load_launch_file(tmp_path / "over.toml").argv == ("x", "{port}", "{args}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "wait = 3", r"\[ready\]: unknown key 'wait'"),
        (GOOD + 'limit = "5"', r"\[ready\] limit: '5' has no unit"),
        (GOOD + "limit = 5", r"\[ready\] limit: must be a time"),
        (GOOD + "status = true", r"\[ready\] status: must be an HTTP status"),
        ("colour = 1\n" + GOOD, "unknown key 'colour'"),
        ("title = 1\n" + GOOD, "title: must be a text"),
        ("start = 1\n", r"\[start\]: must be a table"),
        (GOOD.replace("/health", "health"), r"\[ready\] paths: must be a list of paths"),
        (GOOD.replace("{port}", "{prot}"), r"\[start\] argv: \{prot\} is no placeholder"),
        (GOOD.replace("{args}", "a{args}"), "must be an argument of its own"),
        ('[start]\nargv = "x"\n', r"\[start\] argv: must be a list of texts"),
        ('[start]\nargv = ["x"]\n', r"\[ready\] paths: says no path"),
        ("[ready]\npaths = ['/h']\n", r"\[start\] argv: says no command"),
        (GOOD + "[stop]\nsignal = 'SIGNOPE'", r"\[stop\] signal: must be a signal"),
        (GOOD + "[capabilities]\nflies = true", r"\[capabilities\]: unknown key 'flies'"),
        (GOOD + "[capabilities]\nusage = 'yes'", "capabilities: usage must be true or false"),
        (GOOD + "[[hints]]\nlog = '('\nadvice = 'x'", "log: is no regular expression"),
        (GOOD + "[[hints]]\nlog = 'x'", r"\[\[hints\]\] 1: lacks advice"),
        (GOOD + "[version]\nargv = ['x', '{nope}']", r"\[version\] argv: \{nope\}"),
        (GOOD + "[defaults]\nx = [1]", "defaults: x must be a text or a number"),
        ("not toml", "cannot be read as TOML"),
        ('extends = "./bad.toml"\n', "extends itself"),
        ('extends = "nothing"\n', "there is no engine 'nothing'"),
    ],
)
def test_every_mistake_is_named_with_file_and_key(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=message) as caught:
        load_launch_file(path)
    assert caught.value.exit_code == Exit.USAGE
    assert "bad.toml" in caught.value.where or "engine" in caught.value.where


def test_an_engine_or_a_file_that_is_not_there():
    with pytest.raises(UsageError, match="there is no engine 'vlm'") as caught:
        load_launch_file("vlm")
    assert "vllm" in caught.value.hint
    with pytest.raises(UsageError, match="no such launch file"):
        load_launch_file("missing/file.toml")


def test_importing_the_room_loads_nothing_heavy():
    import subprocess

    code = "import sys, benchlab.launch.base\nassert not {'httpx', 'pyarrow', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
