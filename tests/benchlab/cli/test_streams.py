"""What only a process has: streams that close or fill up, locales, colours. One process a case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.made_runs import MadeStage, made_run, open_stage
from tests.running import CLI, benchlab, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses /dev/full")


@pytest.mark.parametrize("words", [["--version"], ["show", "RUN"], ["validate", "RUN"]], ids=lambda words: words[0])
def test_full_stdout(words, stored: Path) -> None:
    argv = [*CLI, *(str(stored) if word == "RUN" else word for word in words)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, env=environment(), text=True, check=False)
    assert done.returncode == 1
    assert "stdout: the result cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "benchlab: exit 1 (stdout cannot be written)"


def through_a_reader_that_leaves(words: list[str]) -> tuple[int, str]:
    """Exit code and stderr of a command whose stdout is a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*CLI, *words], stdout=write, stderr=subprocess.PIPE, env=environment(), text=True, check=False
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr


def test_a_reader_that_leaves_is_no_error(stored: Path) -> None:
    code, said = through_a_reader_that_leaves(["show", str(stored), "-n", "10000"])
    assert (code, said) == (0, "")


def test_a_reader_that_leaves_does_not_turn_an_invalid_run_green(tmp_path: Path) -> None:
    stage = open_stage(2, 0.0, seed=1)
    bad = MadeStage(stage.records, stage.w0, stage.w1, offered_rps=2, cut=stage.cut, entry={"planned": 99})
    code, said = through_a_reader_that_leaves(["report", str(made_run(tmp_path / "r", [bad])), "--format", "json"])
    assert code == 4
    assert said == "benchlab: exit 4 (INVALID: complete_records)\n"


@pytest.mark.parametrize("closed", ["1", "2"])
def test_closed_streams(closed, stored: Path) -> None:
    command = " ".join([*CLI, "show", str(stored)])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {closed}>&-"], env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "extra",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "40", "NO_COLOR": "1"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "COLUMNS": "nonsense"},
        {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "COLUMNS": "80", "TERM": "xterm-256color"},
    ],
    ids=["C, narrow", "ascii", "German, colours"],
)
def test_locale_width_and_terminal_change_no_word(extra, stored: Path, tmp_path: Path) -> None:
    done = benchlab("report", stored, "--html", tmp_path / "page.html", env=extra)
    assert done.code == 0, done
    assert "—" in done.out or "✓" in done.out
    assert "\x1b" not in done.out  # no colours in a pipe
    assert max(map(len, done.out.splitlines())) <= (100 if extra["COLUMNS"] == "nonsense" else 80)


def test_secrets_are_written_nowhere(engine: str, tmp_path: Path) -> None:
    argv = ["run", "-u", engine, "-c", "1", "-n", "1", "--isl", "8", "--osl", "4", "--warmup", "none"]
    argv += ["-H", "Authorization: Bearer sk-top-secret-1", "-H", "X-Api-Key: hush-hush-2", "-o", str(tmp_path / "run")]
    done = benchlab(*argv, "--format", "json", env={"OPENAI_API_KEY": "sk-env-secret-3"})
    assert done.code in (0, 4), done
    assert json.loads(done.out)
    everything = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    for secret in ("top-secret-1", "hush-hush-2", "env-secret-3"):
        assert secret.encode() not in everything
        assert secret not in done.out + done.err
