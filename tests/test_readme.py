"""Every command of the README's `sh` blocks is run, in order, in one empty directory, against a paced engine.

Only the URL and the length of the stages are changed. A line ends with 0, or with what its comment says (`# exit 99`).
Figures are not judged: on a busy machine a measurement may be INVALID (exit 4), which is the command doing its work.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import ROOT, benchlab, paced_engine

_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SKIP = ("make ", "pip ", "python ", "git ", "apt", "docker ")
_EXIT = re.compile(r"\s+# exit (\d+)\s*$")


def commands() -> list[tuple[str, int]]:
    """(command, exit code) of each line that is run."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found: list[tuple[str, int]] = []
    for block in _BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            told = _EXIT.search(line)
            command = _EXIT.sub("", line).strip()
            if command and not command.startswith(("#", *_SKIP)):
                found.append((command, int(told.group(1)) if told else 0))
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    with paced_engine("ttft=20ms,itl=5ms") as url:
        yield tmp_path_factory.mktemp("readme"), url


def test_there_is_something_to_run() -> None:
    assert len(commands()) > 8
    assert all(command.startswith("benchlab ") for command, _ in commands())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("command", "code"), commands(), ids=[command[:60] for command, _ in commands()])
def test_command(command: str, code: int, place: tuple[Path, str]) -> None:
    folder, url = place
    line = command
    for written, here in (
        ("http://127.0.0.1:8000", url),
        ("--duration 10s", "--duration 6s"),
        ("--warmup 2s", "--warmup 1s"),
    ):
        line = line.replace(written, here)
    words = shlex.split(line)[1:]
    sends = words[0] in ("run", "sweep") and "--dry-run" not in words
    done = benchlab(*words, cwd=folder, timeout=300)
    if sends and done.code == 4 and "-o" in words:  # a busy machine: once more, in peace perhaps
        shutil.rmtree(folder / words[words.index("-o") + 1])
        done = benchlab(*words, cwd=folder, timeout=300)
    invalid = done.code == 4 and words[0] in ("run", "sweep", "gate", "report", "validate")
    assert done.code == code or invalid, done
    assert "Traceback" not in done.err
