"""`benchlab doctor`: how fast and how exact this client is on this host; does an endpoint keep the wire contract."""

from __future__ import annotations

import json
import signal
import sys
from typing import Annotated

import typer

from benchlab.cli import output
from benchlab.errors import Exit


def doctor(
    url: Annotated[str | None, typer.Argument(help="An endpoint to check as well.")] = None,
    model: Annotated[str | None, typer.Option("-m", "--model", help="Model name (default: from /v1/models).")] = None,
    api: Annotated[
        list[str] | None, typer.Option("--api", help="chat | completions | messages | all; repeat (default: chat).")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", help="'Name: value'; repeat. Never written down.")
    ] = None,
    body: Annotated[str | None, typer.Option("--body", help="JSON object merged into each request.")] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="host, ceiling, exactness, endpoint: these parts alone.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table | json")] = "table",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> int:
    """How fast and how exact this client is on this host, and whether an endpoint keeps the wire contract.

    Takes about 15 seconds, and some more with a URL. Exit 3: the endpoint does not answer. Exit 4: it does not keep
    the contract (a check says FAIL), so what is measured through it cannot be believed.
    """
    from benchlab.cli.options import parse_body, parse_headers
    from benchlab.doctor import table
    from benchlab.doctor.examine import examine

    form = output.check_format(form, ("table", "json"))
    parts, apis, asked = _parts(only, url), _apis(api), bool(api) and "all" not in (api or [])
    told: list[int] = []

    def ended(number: int, _: object) -> None:
        told.append(number)
        raise KeyboardInterrupt  # its processes and files are put away first

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, ended)
    if before[signal.SIGINT] is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, ended)
    try:
        found = examine(
            url=url,
            parts=parts,
            apis=apis,
            asked=asked or not api,
            model=model,
            headers=parse_headers(header or [], ""),  # a key goes to its own API alone: added there
            extra=parse_body(body),
            say=lambda words: None if quiet else print(words, file=sys.stderr),
        )
    except BaseException:  # whatever the cut made of it on its way here
        if signal.SIGTERM in told:
            return output.say_exit(Exit.TERMINATED, "terminated; nothing was kept")
        if told:
            return output.say_exit(Exit.INTERRUPTED, "interrupted; nothing was kept")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with output.reader_may_leave():
        if form == "json":
            print(json.dumps(table.as_json(found), indent=1, ensure_ascii=False, allow_nan=False))
        else:
            sys.stdout.write(table.as_text(found))
    if found.failed:
        names = ", ".join(f"{check.api} {check.name}".strip() for check in found.failed)
        return output.say_exit(Exit.INVALID, f"the contract is not kept: {names}")
    return output.say_exit(Exit.OK, "done")


def _parts(only: str | None, url: str | None) -> list[str]:
    from benchlab.doctor.examine import PARTS
    from benchlab.errors import UsageError

    if only is None:
        return list(PARTS)
    chosen = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in chosen if word not in PARTS]
    if unknown or not chosen:
        named = f"'{unknown[0]}' is no part" if unknown else "no part was named"
        raise UsageError(named, where="--only", hint=f"of {', '.join(PARTS)}")
    if "endpoint" in chosen and url is None:
        raise UsageError("which endpoint?", where="--only endpoint", hint="benchlab doctor http://127.0.0.1:8000")
    return chosen


def _apis(given: list[str] | None) -> list[str]:
    from benchlab.cli.options import one_of
    from benchlab.doctor.examine import APIS

    chosen = [one_of(name, (*APIS, "all"), "--api") for name in given or ["chat"]]
    return list(APIS) if "all" in chosen else list(dict.fromkeys(chosen))


def add(app: typer.Typer) -> None:
    """Register `doctor`."""
    app.command("doctor")(doctor)
