"""`python -m benchlab_engine serve|fetch|fit|replay`: the command line. No logic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchlab_engine.errors import EngineError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 a replay differs, 2 usage, 3 cannot load or bind."""
    from benchlab_engine import fetch
    from benchlab_engine.serve import options
    from benchlab_engine.serve.journal_file import replay_file
    from benchlab_engine.sim import fit

    parser = argparse.ArgumentParser(prog="benchlab_engine", description="The bundled reference engine.")
    commands = parser.add_subparsers(dest="command", required=True)
    options.add_arguments(commands.add_parser("serve", help="serve a model over HTTP"))
    fetcher = commands.add_parser("fetch", help="put a real model into the user's cache and print its path")
    fetcher.add_argument("name", help=f"one of: {', '.join(fetch.SOURCES)}")
    fitting = commands.add_parser("fit", help="fit a cost model to a journal, for --runner paced:fitted:FILE")
    fit.add_arguments(fitting)
    again = commands.add_parser("replay", help="plan a journal's steps again, and compare")
    again.add_argument("journal", help="a file that serve --journal wrote")
    try:
        given = parser.parse_args(argv)
    except SystemExit as done:
        return int(done.code or 0)
    try:
        if given.command == "serve":
            from benchlab_engine.serve.run import serve

            return serve(options.read(given))
        if given.command == "fetch":
            print(fetch.fetch(given.name))  # noqa: T201
        elif given.command == "fit":
            print(fit.run(given))  # noqa: T201
        else:
            print(replay_file(Path(given.journal)))  # noqa: T201
        return 0
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
