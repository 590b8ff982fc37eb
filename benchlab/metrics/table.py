"""The one table of metrics: name, unit, which way is better, what a record must know, one sentence, the function.

It is the documentation, the CSV header and the check. A metric whose need a source could not tell answers with a Gap
and the reason, never with a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchlab.metrics import engine, level, request, run, session
from benchlab.metrics.columns import Bools, Columns, Floats, Ints
from benchlab.metrics.parts import NEEDED
from benchlab.metrics.request import Values
from benchlab.metrics.window import Window

Better = Literal["lower", "higher", "neither"]
Scope = Literal["request", "gap", "session", "run"]
Over = Literal["ok", "dispatched"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A row. `function` for request, gap and session scope, `figure` for run scope (a number a stage, or None).

    needs: fields of the record it is made from. over: whose samples count, requests that ended ok or all dispatched.
    of_engine: made of times on the engine's own clock, where it tells them.
    """

    name: str
    unit: str
    better: Better
    needs: tuple[str, ...]
    scope: Scope
    sentence: str
    function: Callable[[Columns], Values] | None = None
    figure: Callable[[Columns, Window], float | None] | None = None
    over: Over = "ok"
    of_engine: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """The answer of a metric that cannot be told, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a metric over some requests: values in the metric's unit, the request of each, who was left out.

    estimated: how many requests gave a value that rests on an estimated token count.
    """

    values: Floats
    rows: Ints
    left_out: dict[str, int]
    estimated: int
    gap: Gap | None


_TEXT = ("chunk_ns", "chunk_kind")


def _r(name: str, unit: str, better: Better, needs: tuple[str, ...], sentence: str, **more: object) -> Metric:
    function = getattr(request, name)
    return Metric(name, unit, better, needs, more.pop("scope", "request"), sentence, function, **more)  # type: ignore[arg-type]


def _e(name: str, unit: str, sentence: str) -> Metric:
    """A row of what only the engine can tell."""
    return Metric(name, unit, "lower", (), "request", sentence, getattr(engine, name), of_engine=True)


def _s(name: str, unit: str, better: Better, sentence: str) -> Metric:
    """A row about whole sessions."""
    needs = ("session_id", "intended_ns", *_TEXT)
    return Metric(name, unit, better, needs, "session", sentence, getattr(session, name))


def _f(
    name: str, unit: str, better: Better, sentence: str, figure: Callable[[Columns, Window], float | None] | None
) -> Metric:
    return Metric(name, unit, better, (), "run", sentence, figure=figure)


METRICS: tuple[Metric, ...] = (
    _r("ttft", "ms", "lower", ("sent_ns", *_TEXT), "From sending a request to its first text of any kind."),
    _r(
        "response_ttft",
        "ms",
        "lower",
        ("intended_ns", *_TEXT),
        "From when a request was due to its first text; the client's own delay included.",
    ),
    _r(
        "itl",
        "ms",
        "lower",
        _TEXT,
        "Gaps between successive text chunks of a request, pooled; between tokens only where each chunk holds one.",
        scope="gap",
    ),
    _r(
        "tpot",
        "ms",
        "lower",
        (*_TEXT, "output_tokens"),
        "Time from first to last text, divided by the tokens after the first chunk's.",
    ),
    _r("e2e", "ms", "lower", ("sent_ns", *_TEXT), "From sending a request to its last text."),
    _r("response_e2e", "ms", "lower", ("intended_ns", *_TEXT), "From when a request was due to its last text."),
    _r(
        "ttfa",
        "ms",
        "lower",
        ("sent_ns", *_TEXT),
        "From sending to the first text of the answer proper; later than ttft where a model reasons first.",
    ),
    _r("stall", "ms", "lower", _TEXT, "The worst gap between two text chunks of a request."),
    _r("stalls_100ms", "times", "lower", _TEXT, "Gaps of a request longer than 100 ms."),
    _r("stalls_500ms", "times", "lower", _TEXT, "Gaps of a request longer than 500 ms."),
    _r("stalls_1s", "times", "lower", _TEXT, "Gaps of a request longer than 1 s."),
    _r("stream_speed", "tokens/s", "higher", (*_TEXT, "output_tokens"), "Speed of one stream, 1 / tpot."),
    _r(
        "dispatch_lag",
        "ms",
        "lower",
        ("intended_ns", "dispatched_ns"),
        "How late the client itself began to act on a request.",
        over="dispatched",
    ),
    _r(
        "held",
        "ms",
        "lower",
        ("held_ns",),
        "How long a cap on requests in flight kept a request back.",
        over="dispatched",
    ),
    _r(
        "connect",
        "ms",
        "lower",
        ("connect_start_ns", "connect_end_ns"),
        "How long opening a connection took, where one was opened.",
        over="dispatched",
    ),
    _r("headers", "ms", "lower", ("sent_ns", "headers_ns"), "From sending to the response headers."),
    _r(
        "stream_end",
        "ms",
        "lower",
        ("sent_ns", "end_ns"),
        "From sending to the end of the message, after its last text.",
    ),
    _r("output_tokens", "tokens", "neither", ("output_tokens",), "Output tokens that were streamed."),
    _r("prompt_tokens", "tokens", "neither", ("prompt_tokens",), "Prompt tokens as the server counted them."),
    _r(
        "cached_tokens",
        "tokens",
        "neither",
        ("cached_tokens",),
        "Prompt tokens that the server took from its prefix cache.",
    ),
    _r("tokens_per_chunk", "tokens", "neither", (*_TEXT, "output_tokens"), "Streamed tokens for each text chunk."),
    _e("queue", "ms", "From when the engine accepted a request to the first step that works on its prompt."),
    _e("prefill", "ms", "From the first step on a prompt to its first token, on the engine's clock."),
    _e("decode", "ms", "From the first token to the last, on the engine's clock; time spent preempted is in it."),
    _e("cleanup", "ms", "From the last token ready to its memory free and all handed over, on the engine's clock."),
    _e("transport", "ms", "The client's ttft less the engine's time from accepting to writing the first token."),
    _e("preemptions", "times", "How often the engine took a request's place away."),
    _s("session_time", "ms", "lower", "From when a session's first turn was due to its last answer; pauses included."),
    _s("session_wait", "ms", "lower", "The time of a session that was spent waiting for answers."),
    _s("session_turns", "turns", "neither", "Turns of a session that came to its end."),
    _f("offered_rps", "1/s", "neither", "Requests due inside the window, a second.", run.offered_rps),
    _f("achieved_rps", "1/s", "higher", "Requests sent inside the window, a second.", run.achieved_rps),
    _f("completed_rps", "1/s", "higher", "Answers whole inside the window, a second.", run.completed_rps),
    _f(
        "good_rps", "1/s", "higher", "Answers whole inside the window that met every per-request limit, a second.", None
    ),
    _f("attainment", "share", "higher", "Good requests among those attempted.", None),
    _f("failed_share", "share", "lower", "Requests that did not end well among those attempted.", None),
    _f(
        "not_sent_share",
        "share",
        "lower",
        "Requests that the client could not send in time among those attempted.",
        None,
    ),
    _f(
        "input_tps",
        "tokens/s",
        "higher",
        "Prompt tokens of requests whose first text came inside the window, a second.",
        run.input_tps,
    ),
    _f("output_tps", "tokens/s", "higher", "Output tokens that arrived inside the window, a second.", run.output_tps),
    _f("total_tps", "tokens/s", "higher", "Input plus output tokens, a second.", run.total_tps),
    _f("wasted_tps", "tokens/s", "lower", "Output tokens of requests that failed, a second.", run.wasted_tps),
    _f("peak_tps", "tokens/s", "higher", "The most output tokens in any one second, a second.", run.peak_tps),
    _f(
        "good_tps",
        "tokens/s",
        "higher",
        "Output tokens that arrived inside the window for requests that met every per-request limit, a second.",
        None,
    ),
    _f(
        "fluid_share",
        "share",
        "higher",
        "Output tokens of ok requests that came by their deadline: the first within --slo ttft, each other within "
        "--slo tpot of the one before, earliness carried on.",
        None,
    ),
    _f("in_flight_mean", "requests", "neither", "Requests in flight, averaged over time.", run.in_flight_mean),
    _f("in_flight_peak", "requests", "neither", "The most requests in flight at once.", level.in_flight_peak),
)
"""Every metric, in the order in which tables and CSV show them."""

BY_NAME = {metric.name: metric for metric in METRICS}


def measure(metric: Metric, c: Columns, among: Bools) -> Samples:
    """The samples of a request or gap metric over the requests in the mask `among`."""
    if metric.function is None:
        raise ValueError(f"{metric.name} is a figure of a stage, not of requests")
    found = metric.function(c)
    if metric.scope == "session" and found.rows is not None:  # a session stands at its first turn
        first = np.zeros(c.n, dtype=np.bool_)
        first[found.rows] = True
        among = among & first
    unable = np.zeros(c.n, dtype=np.bool_)
    left_out: dict[str, int] = {}
    estimates = c.text_is("tokens_source", "chunks") & ("output_tokens" in metric.needs)
    for name in (*metric.needs, *NEEDED.get(metric.name, ())):
        untold = c.untold(name) & among & ~unable
        if name == "output_tokens":
            untold &= ~estimates  # an estimate is marked, not refused
        _count(left_out, f"the source does not tell {name}", untold)
        unable |= untold
    rows = np.arange(c.n) if found.rows is None else found.rows
    good = (among & ~unable)[rows] & np.isfinite(found.values)
    values, rows = found.values[good], rows[good]
    without = among & ~unable
    without[rows] = False
    for reason, where in found.reasons:
        _count(left_out, reason, without & where)
        without &= ~where
    _count(left_out, "a time it needs is not known", without)
    gap = None
    if len(values) == 0:
        gap = Gap(max(left_out, key=lambda reason: left_out[reason]) if left_out else "no request of this kind")
    seen = np.zeros(c.n, dtype=np.bool_)
    seen[rows] = True
    return Samples(values, rows, left_out, int((seen & estimates).sum()), gap)


def _count(left_out: dict[str, int], reason: str, where: Bools) -> None:
    if where.any():
        left_out[reason] = left_out.get(reason, 0) + int(where.sum())
