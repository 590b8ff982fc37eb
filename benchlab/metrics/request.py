"""The formulas of one request, on columns: each answers a number a request (or a gap), and why some have none.

Times in ms unless the name says otherwise. Which requests count (outcome, window) is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchlab.metrics.columns import Bools, Columns, Floats, Ints
from benchlab.units import NS_PER_MS

NO_TEXT = "no visible content"
NO_COUNT = "output tokens not known"
ONE_TOKEN = "one output token: no gap to divide by"  # noqa: S105 (a reason, not a secret)
ONE_EVENT = "single text event"
ONE_READ = "all text in one read"
HIDDEN = "reasoning tokens were counted but not streamed"
PERHAPS_HIDDEN = "the count may hold reasoning tokens that were not streamed"


@dataclass(frozen=True, slots=True)
class Values:
    """What a formula found: `values` one a request (NaN where it has none), or one a gap with its request in `rows`.

    reasons: for requests without a value, (why, which), the first that fits is said.
    """

    values: Floats
    rows: Ints | None = None
    reasons: tuple[tuple[str, Bools], ...] = ()


def _ms(ns: Floats) -> Floats:
    return np.asarray(ns / NS_PER_MS)


def _no_text(c: Columns) -> tuple[str, Bools]:
    return NO_TEXT, c.visible_count == 0


def ttft(c: Columns) -> Values:
    """First text minus sent, ms."""
    return Values(_ms(c.first_content_ns - c.number("sent_ns")), reasons=(_no_text(c),))


def response_ttft(c: Columns) -> Values:
    """First text minus intended, ms: what a user who came on time waited."""
    return Values(_ms(c.first_content_ns - c.number("intended_ns")), reasons=(_no_text(c),))


def ttfa(c: Columns) -> Values:
    """First text of the answer proper minus sent, ms."""
    values = _ms(c.first_answer_ns - c.number("sent_ns"))
    return Values(values, reasons=(_no_text(c), ("no answer text (reasoning or tool calls only)", np.isnan(values))))


def e2e(c: Columns) -> Values:
    """Last text minus sent, ms."""
    return Values(_ms(c.last_content_ns - c.number("sent_ns")), reasons=(_no_text(c),))


def response_e2e(c: Columns) -> Values:
    """Last text minus intended, ms."""
    return Values(_ms(c.last_content_ns - c.number("intended_ns")), reasons=(_no_text(c),))


def stream_end(c: Columns) -> Values:
    """The message's end minus sent, ms: after the last text by usage, [DONE] and the last flush."""
    return Values(_ms(c.number("end_ns") - c.number("sent_ns")))


def _gapless(c: Columns) -> tuple[tuple[str, Bools], ...]:
    single = c.visible_count == 1
    one = single & ~(c.streamed_tokens > 1)
    return _no_text(c), (ONE_TOKEN, one), (ONE_EVENT, single)


def itl(c: Columns) -> Values:
    """Gaps between successive text events, ms, pooled over requests; the wait for the first is none of them."""
    rows, gaps = c.text_gaps
    return Values(_ms(gaps), rows=rows, reasons=_gapless(c))


def stall(c: Columns) -> Values:
    """The worst gap of each request, ms."""
    rows, gaps = c.text_gaps
    worst = np.full(c.n, -np.inf)
    np.maximum.at(worst, rows, gaps)
    return Values(_ms(np.where(np.isinf(worst), np.nan, worst)), reasons=_gapless(c))


def _stalls(c: Columns, over_ms: float) -> Values:
    rows, gaps = c.text_gaps
    counts = np.bincount(rows[gaps > over_ms * NS_PER_MS], minlength=c.n).astype(np.float64)
    return Values(np.where(c.visible_count > 1, counts, np.nan), reasons=_gapless(c))


def stalls_100ms(c: Columns) -> Values:
    """How many gaps of a request were longer than 100 ms: a reader notices."""
    return _stalls(c, 100.0)


def stalls_500ms(c: Columns) -> Values:
    """How many gaps of a request were longer than 500 ms: a reader waits."""
    return _stalls(c, 500.0)


def stalls_1s(c: Columns) -> Values:
    """How many gaps of a request were longer than 1 s: a reader wonders."""
    return _stalls(c, 1000.0)


def tpot(c: Columns) -> Values:
    """(last text - first text) / (N - n1), ms a token: the first event's own tokens are none of the intervals."""
    n, span = c.streamed_tokens, c.last_content_ns - c.first_content_ns
    divisor = n - c.first_tokens
    hidden = (c.number("output_tokens") > n) & (divisor < 1)
    single = c.visible_count == 1
    sharp = (c.visible_count > 1) & (span <= 0)
    perhaps = c.untold("reasoning_tokens") & c.text_is("tokens_source", "usage") & ~c.reasoning_shown
    fit = (divisor >= 1) & ~single & ~sharp & ~perhaps & (c.visible_count > 0)
    values = np.where(fit, _ms(span) / np.where(fit, divisor, 1.0), np.nan)
    return Values(
        values,
        reasons=(
            _no_text(c),
            (NO_COUNT, np.isnan(n)),
            (HIDDEN, hidden),
            (PERHAPS_HIDDEN, perhaps),
            (ONE_EVENT, single & (divisor >= 1)),
            (ONE_TOKEN, divisor < 1),
            (ONE_READ, sharp),
        ),
    )


def stream_speed(c: Columns) -> Values:
    """1000 / TPOT: tokens per second of one stream while it streams."""
    paced = tpot(c)
    return Values(np.asarray(1000.0 / paced.values), reasons=paced.reasons)


def dispatch_lag(c: Columns) -> Values:
    """Dispatched minus intended, ms: the client's own lateness."""
    lag = _ms(c.number("dispatched_ns") - c.number("intended_ns"))
    return Values(lag, reasons=(("never dispatched", np.isnan(lag)),))


def held(c: Columns) -> Values:
    """How long a cap on requests in flight kept it back, ms."""
    return Values(_ms(np.nan_to_num(c.number("held_ns"))))


def connect(c: Columns) -> Values:
    """How long opening its connection took, ms; requests on a kept connection have none."""
    span = _ms(c.number("connect_end_ns") - c.number("connect_start_ns"))
    return Values(span, reasons=(("on a kept connection", np.isnan(c.number("connect_start_ns"))),))


def headers(c: Columns) -> Values:
    """Response headers complete minus sent, ms."""
    return Values(_ms(c.number("headers_ns") - c.number("sent_ns")))


def output_tokens(c: Columns) -> Values:
    """Output tokens that were streamed."""
    return Values(c.streamed_tokens, reasons=((NO_COUNT, np.isnan(c.streamed_tokens)),))


def prompt_tokens(c: Columns) -> Values:
    """Prompt tokens as the server counted them."""
    count = c.number("prompt_tokens")
    return Values(count, reasons=(("prompt tokens not known", np.isnan(count)),))


def cached_tokens(c: Columns) -> Values:
    """Prompt tokens that the server took from its prefix cache."""
    count = c.number("cached_tokens")
    return Values(count, reasons=(("cached tokens not known", np.isnan(count)),))


def tokens_per_chunk(c: Columns) -> Values:
    """Streamed tokens divided by text events: 1 where each event is one token."""
    n, events = c.streamed_tokens, c.visible_count
    values = np.where(events > 0, n / np.maximum(events, 1), np.nan)
    return Values(values, reasons=(_no_text(c), (NO_COUNT, np.isnan(n))))
