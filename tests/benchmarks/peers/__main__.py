"""benchlab's load generator beside its peers and a hand-made floor: install them, run them, write the page.

    python -m tests.benchmarks.peers --install DIR                        each peer into an environment of its own
    python -m tests.benchmarks.peers --run DIR --json FILE                all cases, some 15 minutes
    python -m tests.benchmarks.peers --json FILE --write reports/loadgen.md

Needs Linux, gcc, two cores, and for --install the `tokenizers` package. The server has the first core, the client the
last. Each round runs the clients of a case in turn; peers take part in the first `--peer-rounds`. Where control groups
can be made (root), server and client go before everything else on the machine. Cases that are run again replace their
rows in FILE. Some of the peers' own words end up in DIR/work.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.peers import install, page
from tests.benchmarks.peers.cases import BY_NAME, CASES, PEERS, Case
from tests.benchmarks.peers.measure import Row, measure
from tests.benchmarks.peers.watch import ahead


def run_case(case: Case, tools: list[str], rounds: int, peer_rounds: int, peers: Path, group: Path | None) -> list[Row]:
    """The case's rows. Shapes of streams: the peers side by side, since each is idle nearly all the time."""
    rows: list[Row] = []

    def one(tool: str, seed: int, shared: bool = False) -> None:
        row = measure(tool, case, seed=seed, peers=peers, work=peers / "work", group=group, shared=shared)
        if row is not None:
            row |= {"round": seed, "at": _now(), "load": os.getloadavg()[0]}
            rows.append(row)
            print(page.line(row), flush=True)

    if case.single:
        one("benchlab", 0)
        with ThreadPoolExecutor(len(PEERS)) as pool:
            list(pool.map(lambda tool: one(tool, 0, True), [tool for tool in tools if tool in PEERS]))
        return rows
    for number in range(rounds):
        for tool in tools:
            if tool not in PEERS or number < peer_rounds:
                one(tool, number)
    return rows


def exactness(rounds: int) -> Any:
    """`tests.benchmarks.exactness`, in a process of its own: its document and its verdict."""
    argv = [sys.executable, "-m", "tests.benchmarks.exactness", "--runs", str(rounds), "--seconds", "1.5"]
    place = Path(f"exactness-{os.getpid()}.json")
    try:
        done = subprocess.run([*argv, "--json", str(place)], capture_output=True, text=True, check=False)
        document = json.loads(place.read_text()) if place.exists() else None
    finally:
        place.unlink(missing_ok=True)
    print(done.stdout, flush=True)
    return {"exit": done.returncode, "printed": done.stdout, "runs": document, "at": _now()}


def host() -> dict[str, Any]:
    """What machine this is, in the words that the page uses."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "wheels": {peer.name: [*peer.wheels, *(peer.taken[:1] if peer.taken else ())] for peer in install.PEERS},
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def run(arguments: argparse.Namespace) -> None:
    """The cases asked for, one after the other; FILE is written after each."""
    peers = arguments.run.resolve()
    place: Path = arguments.json
    document: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {"rows": []}
    document["host"] = host()
    wanted = arguments.cases.split(",") if arguments.cases else [*BY_NAME, "exactness"]
    missing = {tool for tool in (*PEERS, "floor") if not install.present(peers, tool)}
    for tool in sorted(missing):
        print(f"{tool}: not there; left out (--install {arguments.run})")
    for name in wanted:
        if name == "exactness":
            document["exactness"] = exactness(arguments.rounds)
        else:
            case = BY_NAME[name]
            tools = [tool for tool in case.tools if tool not in missing]
            if arguments.tools:
                tools = [tool for tool in tools if tool in arguments.tools.split(",")]
            start = time.monotonic()
            rounds = 1 if name.startswith("memory-") else arguments.rounds
            with ahead() if arguments.ahead else contextlib.nullcontext() as group:
                rows = run_case(case, tools, rounds, arguments.peer_rounds, peers, group)
            document["rows"] = [
                row for row in document["rows"] if row["case"] != name or row["tool"] not in tools
            ] + rows
            print(f"-- {name}: {time.monotonic() - start:.0f} s", flush=True)
        place.write_text(json.dumps(document, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--install", type=Path, metavar="DIR")
    parser.add_argument("--only", help="peers to install, with commas")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="a Python for one peer")
    parser.add_argument("--run", type=Path, metavar="DIR", help="where the peers were installed")
    parser.add_argument("--cases", help=f"with commas: {', '.join(case.name for case in CASES)}, exactness")
    parser.add_argument("--tools", help="clients to run, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=1)
    parser.add_argument("--not-ahead", dest="ahead", action="store_false", help="as any other process of the machine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    if arguments.install:
        only = set(arguments.only.split(",")) if arguments.only else None
        pythons = dict(pair.split("=", 1) for pair in arguments.python)
        found = install.install(arguments.install.resolve(), only, pythons)
        return int(any(words.startswith("not ") for words in found.values()))
    if not arguments.json or not (arguments.run or arguments.write):
        parser.error("--install DIR, or --run DIR --json FILE, or --json FILE --write PAGE")
    if arguments.run:
        run(arguments)
    if arguments.write:
        page.write(arguments.write, json.loads(arguments.json.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
