"""A command line to call: in this process (quick), or each call in one of its own with BENCHLAB_TEST_PROCESSES=1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchlab.cli.app import main
from tests.made_runs import made_run
from tests.running import Done, benchlab, environment, paced_engine

Call = Callable[..., Done]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`call("run", "-u", URL)` gives the exit code and both streams."""
    if os.environ.get("BENCHLAB_TEST_PROCESSES"):
        return benchlab
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)
    for name in ("COLUMNS", "TERM"):
        monkeypatch.setenv(name, environment()[name])

    def run(*words: str | Path) -> Done:
        capfd.readouterr()
        code = main([str(word) for word in words])
        shown = capfd.readouterr()
        return Done(code, shown.out, shown.err)

    return run


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """A paced engine's URL."""
    with paced_engine("ttft=20ms,itl=5ms") as url:
        yield url


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good stored run; not to be changed."""
    return made_run(tmp_path_factory.mktemp("runs") / "good")


@pytest.fixture
def told() -> Callable[[Done, int], list[str]]:
    """Checks the one shape of an error: exit code, nothing on stdout, what and where, what to try, the last line."""

    def check(done: Done, code: int) -> list[str]:
        assert done.code == code, done
        assert done.out == "", done
        assert "Traceback" not in done.err
        assert "itself failed" not in done.err
        lines = done.err.strip().splitlines()
        assert sum(line.startswith(("error: ", "Error: ")) for line in lines) == 1, done
        assert any(line.startswith(("  try: ", "Try ")) for line in lines), done
        assert lines[-1].startswith(f"benchlab: exit {code} ("), done
        return lines

    return check
