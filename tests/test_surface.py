"""The command line's surface: each command's help, word for word. UPDATE_GOLDEN=1 rewrites the files."""

from __future__ import annotations

import os
import re

import pytest
import typer

from benchlab.cli.app import build, main
from tests.running import ROOT

GOLDEN = ROOT / "tests" / "golden" / "help"
PROMISED = {
    "run", "sweep", "report", "show", "compare", "gate", "validate", "recover", "workload", "engine", "doctor",
    "simulate", "import", "export", "metrics",
}  # fmt: skip
"""Commands of INTERFACES that are built; the others must not be there as stubs."""
PASSED_ON = {("engine", verb) for verb in ("serve", "fetch", "fit", "replay")}
"""Their --help is the engine's own."""
EVERYDAY = """
-u --url -m --model --api -d --data -r --rate -c --concurrency --arrival --duration -n --requests --warmup --drain
--isl --osl --max-inflight --timeout --seed --cache --slo --slo-target --objective --assert --max-regression
--percentiles --workers -o --out -l --label --format --progress -q -v -H --body --gpu --scrape --select
--arrival-seed --keep-text --engine --dry-run --cluster --transport --pacing --replay --abandon --ramp --tokenizer
--base-url --target --dataset --request-rate --num-prompts --request-count --max-concurrency --extra-body --goodput
"""
"""Flags that are built, peers' spellings among them."""


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]

    def walk(group: typer.core.TyperGroup, path: tuple[str, ...]) -> None:
        for name, command in sorted(group.commands.items()):
            found.append((*path, name))
            if hasattr(command, "commands"):
                walk(command, (*path, name))

    walk(typer.main.get_command(build()), ())
    return found


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("path", commands(), ids=lambda path: " ".join(path) or "benchlab")
def test_help_is_what_it_was(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    if path in PASSED_ON:
        pytest.skip("handed to the engine's own command line")
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = [line.rstrip() for line in shown.out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert not re.search("\x1b", shown.out)
    text = "\n".join(lines).strip("\n") + "\n"
    golden = GOLDEN / f"{'-'.join(path) or 'benchlab'}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert golden.exists(), "run once with UPDATE_GOLDEN=1, and read what it wrote"
    assert text == golden.read_text(encoding="utf-8"), "if the change is meant: UPDATE_GOLDEN=1"


def test_no_help_of_a_command_that_has_gone() -> None:
    expected = {f"{'-'.join(path) or 'benchlab'}.txt" for path in commands() if path not in PASSED_ON}
    assert {path.name for path in GOLDEN.glob("*.txt")} == expected


def test_the_commands_are_the_promised_ones() -> None:
    assert {path[0] for path in commands() if path} == PROMISED


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_flags_that_everyone_types_are_there(command: str) -> None:
    options = typer.main.get_command(build()).commands[command].params
    known = {word for option in options for word in option.opts}
    assert not [flag for flag in EVERYDAY.split() if flag not in known]


def test_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for code in ("0 done", "2 usage", "3 target", "4 run INVALID", "6", "99", "130/143"):
        assert code in shown
