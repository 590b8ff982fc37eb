"""`benchlab engine`: the bundled engine as its own process, and what launchers there are.

A run never imports the engine (only a simulation does): it starts it the way that any other engine is started.
"""

from __future__ import annotations

import os
import subprocess
import sys

import typer

engines = typer.Typer(help="The bundled engine, and launchers.", no_args_is_help=True)
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _hand_over(verb: str, words: list[str]) -> int:
    argv = [sys.executable, "-m", "benchlab_engine", verb, *words]
    sys.stdout.flush()
    if os.name == "posix":
        os.execv(argv[0], argv)  # noqa: S606 - signals and the terminal then belong to the engine alone
    return subprocess.run(argv, check=False).returncode


@engines.command("serve", context_settings=_PASS_ON)
def serve(ctx: typer.Context) -> int:
    """Serve a model in the foreground (all flags: benchlab engine serve --help)."""
    return _hand_over("serve", list(ctx.args))


@engines.command("fetch", context_settings=_PASS_ON)
def fetch(ctx: typer.Context) -> int:
    """Fetch a small real model into the cache: benchlab engine fetch smollm2-135m."""
    return _hand_over("fetch", list(ctx.args))


@engines.command("fit", context_settings=_PASS_ON)
def fit(ctx: typer.Context) -> int:
    """Fit a cost model to an engine's journal: benchlab engine fit JOURNAL -o FILE."""
    return _hand_over("fit", list(ctx.args))


@engines.command("replay", context_settings=_PASS_ON)
def replay(ctx: typer.Context) -> int:
    """Plan a journal's steps again, and compare: benchlab engine replay JOURNAL."""
    return _hand_over("replay", list(ctx.args))


@engines.command("ls")
def ls() -> int:
    """The engines that `--engine` knows by name."""
    from benchlab.launch.launch_file import load_launch_file, shipped_names

    for name in shipped_names():
        print(f"{name:<12} {load_launch_file(name).title}")
    return 0


def add(app: typer.Typer) -> None:
    """Register the group."""
    app.add_typer(engines, name="engine")
