"""How far a client's own times are from the server's log, chunk by chunk, for the clients that keep raw times.

The one idea: pairs of the same chunk on one clock, the client's stamp and the moment of its write. Answers are paired
by the request's id; a client that sends none is paired by the order of sending. Clients that keep no times of single
chunks have no figure here. It must not know loads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.benchmarks.peers.cases import program
from tests.benchmarks.peers.server_log import Answer, spread

Stamps = tuple[str | None, float, npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Request id, time of sending, stamps of the content chunks, slack stated for each; all ns, monotonic."""


def stamp_errors(tool: str, out: Path, answers: Sequence[Answer]) -> dict[str, Any] | None:
    """First-chunk and gap errors in ms (absolute); None where the client keeps no raw times.

    Chunks for which the client states slack are left out of both, and their share and how many of them the slack
    covers is said. unpaired: answers that the client has otherwise.
    """
    reader = _READERS.get(program(tool))
    if reader is None:
        return None
    try:
        client = list(reader(out))
    except (OSError, KeyError, ValueError) as error:
        return {"unreadable": f"{type(error).__name__}: {error}"}
    return _compare(client, answers)


def _compare(client: Sequence[Stamps], answers: Sequence[Answer]) -> dict[str, Any]:
    by_id = {answer.id: answer for answer in answers}
    in_order = iter(answers)
    firsts: list[float] = []
    gaps: list[npt.NDArray[np.float64]] = []
    unpaired = chunks = merged = covered = 0
    for name, _, stamps, slack in sorted(client, key=lambda row: row[1]):
        answer = next(in_order, None) if name is None else by_id.get(name)
        if answer is None or len(answer.content_ns) != len(stamps):
            unpaired += 1
            continue
        truth, sharp = answer.content_ns, slack == 0
        chunks += len(stamps)
        merged += int((~sharp).sum())
        covered += int((stamps - slack <= truth + _LOOPBACK_NS)[~sharp].sum())
        if sharp[0]:
            firsts.append(abs(stamps[0] - truth[0]) / 1e6)
        both = sharp[1:] & sharp[:-1]
        gaps.append(np.abs(np.diff(stamps) - np.diff(truth))[both] / 1e6)
    return {
        "chunks": chunks,
        "unpaired": unpaired,
        "first": spread(firsts),
        "gap": spread(np.concatenate(gaps) if gaps else []),
        "merged_share": merged / max(chunks, 1),
        "covered_share": covered / merged if merged else None,
    }


_LOOPBACK_NS = 100_000
"""The server notes the time just before it writes: a chunk reaches the client's socket so much later at the most."""


def _benchlab(out: Path) -> Iterator[Stamps]:
    import pyarrow.parquet as pq

    t0 = json.loads((out / "run/manifest.json").read_text())["t0"]["monotonic_ns"]
    table = pq.read_table(
        out / "run/requests.parquet", columns=["request_id", "sent_ns", "chunk_ns", "chunk_slack_ns", "chunk_kind"]
    )
    for row in table.to_pylist():
        kept = [k for k, kind in enumerate(row["chunk_kind"]) if kind == "content"]
        stamps = np.array([row["chunk_ns"][k] for k in kept], dtype=np.float64) + t0
        slack = np.array([row["chunk_slack_ns"][k] for k in kept], dtype=np.float64)
        if kept and row["sent_ns"] is not None:
            yield row["request_id"], row["sent_ns"] + t0, stamps, slack


def _no_slack(name: str | None, sent: float, stamps: Sequence[float]) -> Stamps:
    return name, sent, np.array(stamps, dtype=np.float64), np.zeros(len(stamps))


def _floor(out: Path) -> Iterator[Stamps]:
    for number, ok, sent, _, chunks in json.loads((out / "rows.json").read_text()):
        if ok and chunks:
            yield _no_slack(str(number), sent, chunks)


def _vllm(out: Path) -> Iterator[Stamps]:
    """Its clock is time.perf_counter, monotonic on Linux; its rows do not hold the ids that it sends."""
    found = json.loads((out / "out.json").read_text())
    for start, ttft, itls in zip(found["start_times"], found["ttfts"], found["itls"], strict=True):
        times = list(accumulate([start + ttft, *itls]))
        yield _no_slack(None, start * 1e9, [at * 1e9 for at in times])


def _aiperf(out: Path) -> Iterator[Stamps]:
    """Its start is wall time: carried over with the offset that holds when the file is read, seconds later."""
    wall = time.time_ns() - time.monotonic_ns()
    for line in (out / "profile_export.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not {"time_to_first_token", "inter_chunk_latency"} <= row["metrics"].keys():
            continue
        start = row["metadata"]["request_start_ns"] - wall
        steps = [row["metrics"]["time_to_first_token"]["value"], *row["metrics"]["inter_chunk_latency"]["value"]]
        yield _no_slack(row["metadata"]["x_request_id"], start, [start + at * 1e6 for at in accumulate(steps)])


def _inference_perf(out: Path) -> Iterator[Stamps]:
    for row in json.loads((out / "report/per_request_lifecycle_metrics.json").read_text()):
        times = row["info"]["response_metrics"]["chunk_times"]
        if not row["error"] and times:
            yield _no_slack(None, row["start_time"] * 1e9, [at * 1e9 for at in times])


_READERS = {
    "benchlab": _benchlab,
    "floor": _floor,
    "vllm": _vllm,
    "aiperf": _aiperf,
    "inference-perf": _inference_perf,
}
