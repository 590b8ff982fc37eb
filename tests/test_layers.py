"""The laws of the architecture: import contracts, what a clean process loads, sizes and names."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.running import CLI, ROOT, environment

PACKAGES = (ROOT / "benchlab", ROOT / "engines" / "benchlab_engine")
FILES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
MAX_LINES = 400
HTTP = {"httpx", "httpcore", "aiohttp", "httptools", "uvloop", "requests"}
HEAVY = {"pandas", "pyarrow", "scipy", "numpy", "plotly", "torch", "transformers", "aiohttp", "httpx", "ray", "pynvml"}


def in_clean_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def loaded_by(*modules: str) -> frozenset[str]:
    """Top-level names in sys.modules of a process that imported only these."""
    lines = ["import json, sys", *(f"import {module}" for module in modules)]
    lines.append("print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))")
    return frozenset(json.loads(in_clean_process("\n".join(lines))))


def modules_of(*rooms: str) -> list[str]:
    found = []
    for path in FILES:
        base = ROOT if path.is_relative_to(ROOT / "benchlab") else ROOT / "engines"
        name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        if any(name == room or name.startswith(room + ".") for room in rooms):
            found.append(name)
    assert found
    return found


@pytest.mark.skipif(importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed")
def test_import_contracts_are_kept() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_judging_loads_no_http_library() -> None:
    loaded = loaded_by(*modules_of("benchlab.metrics", "benchlab.selection", "benchlab.report"))
    assert "pyarrow" in loaded  # it was really imported
    assert not loaded & HTTP


def test_engine_core_loads_the_standard_library_only() -> None:
    loaded = loaded_by(*modules_of("benchlab_engine.core"))
    theirs = {name for name in loaded - loaded_by() if name not in sys.stdlib_module_names}
    assert theirs == {"benchlab_engine"}


def test_paced_engine_loads_no_torch_and_no_numpy() -> None:
    loaded = loaded_by("benchlab_engine.serve.build", "benchlab_engine.serve.run", "benchlab_engine.sim.runner")
    assert not loaded & {"torch", "numpy", "tokenizers", "transformers", "benchlab"}


def test_a_room_loads_nothing_heavy_by_its_name() -> None:
    rooms = [path.parent.name for path in (ROOT / "benchlab").glob("*/__init__.py")]
    loaded = loaded_by(*(f"benchlab.{room}" for room in rooms))
    assert not loaded & (HEAVY | HTTP)


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_load_nothing_heavy(flag: str) -> None:
    code = (
        "import json, sys\nfrom benchlab.cli.app import main\n"
        f"sys.stdout, kept = sys.stderr, sys.stdout\ncode = main(['{flag}'])\n"
        "print(json.dumps([code, sorted({name.partition('.')[0] for name in sys.modules})]), file=kept)"
    )
    exit_code, loaded = json.loads(in_clean_process(code))
    assert exit_code == 0
    assert not set(loaded) & (HEAVY | HTTP)


def test_the_first_flush_of_a_spool_loads_nothing(tmp_path: Path) -> None:
    """A library loaded on the way stops the event loop for as long: half a second of late requests."""
    code = f"""
import sys
from pathlib import Path
from benchlab.records.event import Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.spool import Spool
spool = Spool(Path({str(tmp_path)!r}), 0)
before = set(sys.modules)
spool.begin(Identity("a", 0, "i", 0), intended_ns=0, dispatched_ns=0)
spool.add(Record(request_id="b", stage=0, item_id="i", outcome=Outcome.OK, intended_ns=0))
spool.flush()
print(sorted(set(sys.modules) - before))
"""
    assert in_clean_process(code).strip() == "[]"


def imports_of(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append(node.module or "")
    return found


@pytest.mark.parametrize(
    ("package", "other", "allowed"),
    [
        ("benchlab", "benchlab_engine", {"benchlab/simulate/drive.py", "benchlab/simulate/settings.py"}),
        ("engines/benchlab_engine", "benchlab", set()),
    ],
)
def test_harness_and_engine_do_not_import_each_other(package: str, other: str, allowed: set[str]) -> None:
    for path in (ROOT / package).rglob("*.py"):
        if str(path.relative_to(ROOT)) not in allowed:
            assert not [name for name in imports_of(path) if name.partition(".")[0] == other], path


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


def test_each_module_says_what_it_is() -> None:
    silent = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if ast.get_docstring(tree) is None:
            silent.append(str(path.relative_to(ROOT)))
    assert not silent


def test_no_class_is_called_by_a_word_that_says_nothing() -> None:
    words = ("Manager", "Factory", "Mixin", "Utils", "Helper", "Base")
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith(words), f"{path}: {node.name}"


@pytest.mark.parametrize("room", ["metrics", "selection"])
def test_judging_reads_no_clock_and_draws_no_chance(room: str) -> None:
    for path in (ROOT / "benchlab" / room).rglob("*.py"):
        assert not {"time", "random", "secrets", "datetime"} & set(imports_of(path)), path


def test_engine_core_reads_no_clock_and_draws_no_chance() -> None:
    for path in (ROOT / "engines" / "benchlab_engine" / "core").rglob("*.py"):
        assert not {"time", "random", "secrets", "datetime"} & set(imports_of(path)), path


def test_the_module_is_the_command() -> None:
    done = subprocess.run([*CLI, "--version"], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("benchlab ")
