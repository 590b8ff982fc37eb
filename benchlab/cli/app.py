"""The entry point: commands by name, errors as one message, exit codes as INTERFACES.md says."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Any

import typer

from benchlab import __version__
from benchlab.cli import output
from benchlab.cli.output import say_exit
from benchlab.errors import BenchlabError, Exit, UsageError, most_severe

_HELP = """Measure LLM inference endpoints so that the numbers can be believed.

Start with `benchlab run -u http://127.0.0.1:8000`, or `benchlab sweep -u URL -r 1,2,4 --objective 'ttft.p90<=500ms'`.

Exit codes: 0 done · 1 internal · 2 usage · 3 target unreachable · 4 run INVALID · 5 inconclusive ·
6 baseline missing or not comparable · 7 aborted by a rule · 99 a gate was breached · 130/143 interrupted.
"""

_USAGE_FAULT: Any = typer.BadParameter.mro()[2]
"""click's ClickException: newer typers carry a click of their own, so it is taken from theirs."""


def _version(value: bool) -> None:
    if value:
        typer.echo(f"benchlab {__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """The whole command line. Commands import what is heavy when they run, so `--version` loads none of it."""
    from benchlab.cli import doctor, engine, foreign, measure, metrics, simulate, stored, workload

    app = typer.Typer(help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False)

    @app.callback(help=_HELP)
    def root(
        version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    ) -> None:
        pass

    for module in (measure, simulate, stored, foreign, metrics, workload, doctor, engine):
        module.add(app)
    return app


def main(argv: list[str] | None = None) -> int:
    """Run a command line; returns the exit code (and exits with it when called as the console script)."""
    own = argv is None
    if own:
        from benchlab.records.lean import keep_pandas_out

        keep_pandas_out()
        _prepare_streams()
    code = _flushed(int(_run(sys.argv[1:] if argv is None else argv)))
    if own:
        sys.exit(code)
    return code


def _prepare_streams() -> None:
    """A closed stream becomes one that leads nowhere; what a file or pipe gets is UTF-8 whatever the locale says."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif stream.isatty():
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _flushed(code: int) -> int:
    """The same code once stdout has been written out; 1 when it could not be."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        output.drop_stdout()  # the reader of our output has gone: nothing more to say
    except OSError as error:
        output.drop_stdout()
        return int(most_severe([Exit(code), Exit(_stdout_failed(error))]))
    return code


def _stdout_failed(error: OSError) -> int:
    print(f"error: stdout: the result cannot be written: {error.strerror}", file=sys.stderr)
    print("  try: free some space there; a run's own directory has it as summary.json too", file=sys.stderr)
    return say_exit(Exit.INTERNAL, "stdout cannot be written")


def _run(argv: list[str]) -> int:
    if argv == ["--help", "metrics"]:
        argv = ["metrics"]
    try:
        for word in argv:
            if any("\ud800" <= letter <= "\udfff" for letter in word):
                shown = word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                raise UsageError(f"'{shown}' is not UTF-8", where="command line", hint="give names in UTF-8")
        result = typer.main.get_command(build()).main(args=argv, prog_name="benchlab", standalone_mode=False)
        return int(result) if isinstance(result, int) else 0
    except (typer.Abort, KeyboardInterrupt):
        return say_exit(Exit.INTERRUPTED, "interrupted before anything was measured")
    except typer.Exit as error:
        return int(error.exit_code)
    except BenchlabError as error:
        print(f"error: {error}", file=sys.stderr)
        return say_exit(error.exit_code, error.what.splitlines()[0])
    except (BrokenPipeError, SystemExit):  # the latter is what typer makes of the former
        output.drop_stdout()  # the reader of our output has gone: nothing more to say
        return Exit.OK
    except _USAGE_FAULT as error:
        error.show()
        return say_exit(Exit.USAGE, "usage")
    except OSError as error:
        if error.filename is None and error.errno == errno.ENOSPC:  # files are named, and met where they are written
            output.drop_stdout()
            return _stdout_failed(error)
        return _internal(error)
    except Exception as error:
        return _internal(error)


def _internal(error: Exception) -> int:
    if os.environ.get("BENCHLAB_DEBUG"):
        traceback.print_exc()
    print(f"error: benchlab itself failed: {type(error).__name__}: {error}", file=sys.stderr)
    print("  try: run it again with BENCHLAB_DEBUG=1 and report what it prints", file=sys.stderr)
    return say_exit(Exit.INTERNAL, "internal error")


if __name__ == "__main__":
    main()
