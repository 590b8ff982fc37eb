"""One measured run: a client under one case, beside the server's own log.

The one idea: what a run was, in one row of plain values: what the server saw, what the client cost in the inner part of
the run, what the client says of itself. It must not know targets or tables.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from tests.benchmarks.peers import reported, server_log, tools, watch
from tests.benchmarks.peers.cases import Case
from tests.benchmarks.peers.exact import stamp_errors

Row = dict[str, Any]


def measure(
    tool: str,
    case: Case,
    *,
    seed: int,
    peers: Path,
    work: Path,
    group: Path | None,
    shared: bool = False,
    limit_s: float = 120,
) -> Row | None:
    """Run it and give its row; None where the client has no such load. shared: both cores for server and client
    (streams one at a time, several clients side by side)."""
    out = work / f"{case.name}.{tool}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    last = max(os.sched_getaffinity(0))
    cores = [0, last] if shared else tools.cores(tool, last)
    with watch.served(peers / "paced_server", case.server, out / "truth.bin", 0, group) as (server, port):
        url = f"http://127.0.0.1:{port}"
        argv = tools.command(tool, case, seed=seed, peers=peers, out=out, url=url)
        if argv is None:
            return None
        seen = watch.run(
            argv, server=server, cores=cores, out=out / "printed.txt", folder=out,
            environment=tools.environment(tool), limit_s=limit_s, group=group,
        )  # fmt: skip
    row: Row = {"tool": tool, "case": case.name, "exit": seen.code, "command": shlex.join(argv)}
    row["server"] = shlex.join(case.server)
    row["seconds"] = (seen.ended_ns - seen.started_ns) / 1e9
    row |= {"peak_mb": seen.peak_mb, "rss_mb": seen.rss_mb, "processes": seen.processes}
    try:
        row["reported"] = reported.read(tool, out)
    except (OSError, KeyError, ValueError, StopIteration, IndexError, TypeError) as error:
        row["reported"] = {"unreadable": f"{type(error).__name__}: {error}"}
    answers = server_log.read(out / "truth.bin")
    if not case.single:
        answers = server_log.without_probes(answers)
    else:
        answers = [answer for answer in answers if answer.whole][-case.requests :]
    if len(answers) > 2:
        row |= _seen_by_server(case, answers, seen)
        row["true"]["per_token"] = server_log.per_token(answers, case.tokens)
        row["stamps"] = stamp_errors(tool, out, answers)
    return row


def _seen_by_server(case: Case, answers: list[server_log.Answer], seen: watch.Watched) -> Row:
    window = server_log.after_upload(answers) if case.wave else server_log.inner(answers)
    seconds, events = (window[1] - window[0]) / 1e9, server_log.events_in(answers, window)
    cost = seen.cost(window)
    found: Row = {
        "requests": len(answers),
        "events_s": events / seconds,
        "window_s": seconds,
        "cpu_per_1k": 1000 * cost["client_s"] / max(events, 1),
        "cpu_share": cost["client_s"] / seconds,
        "server_share": cost["server_s"] / seconds,
        "others_cores": cost["others_s"] / seconds,
        "load_mb": seen.peak_until(max(answer.end_ns for answer in answers)),
        "start_s": (answers[0].read_ns - seen.started_ns) / 1e9,
        "body_bytes": max(answer.body_bytes for answer in answers),
        "true": server_log.latencies(answers),
    }
    if case.kind != "closed" and not case.wave:
        found["arrivals"] = server_log.arrivals(answers, case.kind, case.level)
    return found
