"""What the paced server wrote down: when each request was read, and when each chunk was written.

The one idea: the server's log is the truth, whatever a client reports; all its times are CLOCK_MONOTONIC, ns. It must
not know clients.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_HEAD = struct.Struct("<IIQqqIIIIiI48s")
_MAGIC = 0x31435250
_ABORTED, _NOT_STREAMED = 1, 2
_EARLY, _SILENCE_NS = 8, 250_000_000
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as the server saw it. content_ns: writes of content chunks; end_ns: the last byte handed over."""

    id: str
    read_ns: int
    end_ns: int
    content_ns: Ints
    whole: bool
    body_bytes: int


def read(path: Path) -> list[Answer]:
    """All answers, in order of their arrival. Raises ValueError where the file is not such a log."""
    data, at, found = path.read_bytes(), 0, []
    while at + _HEAD.size <= len(data):
        magic, n, _, read_ns, end_ns, chunks, first, _, flags, _, body, name = _HEAD.unpack_from(data, at)
        if magic != _MAGIC:
            raise ValueError(f"{path}: no log of the paced server at byte {at}")
        at += _HEAD.size
        times = np.frombuffer(data, np.int64, n, at)[first : first + chunks]
        at += 8 * n
        whole = not flags & (_ABORTED | _NOT_STREAMED)
        found.append(Answer(name.rstrip(b"\0").decode("latin1"), read_ns, end_ns, times, whole, body))
    return sorted(found, key=lambda answer: answer.read_ns)


def without_probes(answers: Sequence[Answer]) -> list[Answer]:
    """Leaves out the few requests with which a client tries the endpoint, then pauses, before its load begins."""
    start = 0
    for k in range(1, min(_EARLY, len(answers) - 1)):
        if answers[k].read_ns - answers[k - 1].read_ns > _SILENCE_NS:
            start = k
    return [answer for answer in answers[start:] if answer.whole]


def inner(answers: Sequence[Answer], low: float = 0.15, high: float = 0.85) -> tuple[int, int]:
    """The inner part of the run, so that neither starting nor draining counts."""
    first, last = answers[0].read_ns, max(answer.end_ns for answer in answers)
    return round(first + (last - first) * low), round(first + (last - first) * high)


def after_upload(answers: Sequence[Answer]) -> tuple[int, int]:
    """From when every stream had begun to when the first ended: for loads of a single wave."""
    return int(max(a.content_ns[0] for a in answers)), int(min(a.content_ns[-1] for a in answers))


def events_in(answers: Sequence[Answer], window: tuple[int, int]) -> int:
    """Content chunks written in the window."""
    times = np.concatenate([answer.content_ns for answer in answers])
    return int(((times >= window[0]) & (times < window[1])).sum())


def spread(values: npt.ArrayLike) -> dict[str, float] | None:
    """Mean, median, p99 and largest; None of nothing."""
    found = np.asarray(values, dtype=np.float64)
    if not found.size:
        return None
    p50, p99 = np.quantile(found, [0.5, 0.99])
    return {"mean": float(found.mean()), "p50": float(p50), "p99": float(p99), "max": float(found.max())}


def latencies(answers: Sequence[Answer]) -> dict[str, dict[str, float] | None]:
    """True TTFT (request read to first content), gaps, mean gap of each answer, and last content, all ms."""
    ttft = [(a.content_ns[0] - a.read_ns) / 1e6 for a in answers]
    e2e = [(a.content_ns[-1] - a.read_ns) / 1e6 for a in answers]
    gaps = [np.diff(a.content_ns) / 1e6 for a in answers if len(a.content_ns) > 1]
    return {
        "ttft": spread(ttft),
        "gap": spread(np.concatenate(gaps) if gaps else []),
        "mean_gap": spread([gap.mean() for gap in gaps]),
        "e2e": spread(e2e),
    }


def per_token(answers: Sequence[Answer], tokens: int) -> dict[str, float] | None:
    """True TPOT of answers of so many tokens, ms: first to last content over the tokens after the first."""
    return spread([(a.content_ns[-1] - a.content_ns[0]) / 1e6 / (tokens - 1) for a in answers])


def arrivals(answers: Sequence[Answer], kind: str, rate: float) -> dict[str, Any]:
    """How the requests arrived beside what was asked: rate, CV of the gaps, and the distance from grid or law.

    off_grid_p99_ms: |arrival - its place on the grid of the asked rate|, the grid laid through the median. ks: largest
    distance of the gaps' distribution to the exponential of their own mean; ks_limit: at 5% for so many gaps.
    """
    at = np.array([answer.read_ns for answer in answers], dtype=np.float64) / 1e6
    gaps = np.diff(at)
    found: dict[str, Any] = {
        "n": len(at),
        "rate": 1000 * len(gaps) / (at[-1] - at[0]),
        "gap_cv": float(gaps.std() / gaps.mean()),
        "clumped": float((gaps < 0.05 * 1000 / rate).mean()),
    }
    if kind == "constant":
        off = at - np.arange(len(at)) * 1000 / rate
        found["off_grid_p99_ms"] = float(np.quantile(np.abs(off - np.median(off)), 0.99))
    else:
        ordered, n = np.sort(gaps), len(gaps)
        law = 1 - np.exp(-ordered / gaps.mean())
        step = np.arange(n)
        found["ks"] = float(max((law - step / n).max(), ((step + 1) / n - law).max()))
        found["ks_limit"] = 1.358 / n**0.5
    return found
