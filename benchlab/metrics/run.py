"""Rates and levels of a stage: what happened inside the window, divided by its length.

An event counts where it happened, whatever window its request began in. Offered, achieved and completed are three
rates and none stands for another. Token rates count what the server streamed to requests that ended well or that we
ended (ok, unfinished, cancelled); tokens of requests that failed are counted apart (`wasted_tps`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchlab.metrics.columns import Bools, Columns, Floats
from benchlab.metrics.window import Window
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_S

COUNTED = (Outcome.OK, Outcome.UNFINISHED, Outcome.CANCELLED)
"""Outcomes whose tokens count as throughput."""


def offered_rps(c: Columns, w: Window) -> float | None:
    """Intended arrivals inside the window, a second."""
    return float(w.holds(c.number("intended_ns")).sum()) / w.seconds


def achieved_rps(c: Columns, w: Window) -> float | None:
    """Requests sent inside the window, a second."""
    return float(w.holds(c.number("sent_ns")).sum()) / w.seconds


def completed_rps(c: Columns, w: Window) -> float | None:
    """Answers (outcome ok) whose last text came inside the window, a second."""
    return float(w.holds(c.done_ns).sum()) / w.seconds


def input_tps(c: Columns, w: Window) -> float | None:
    """Prompt tokens of requests whose first text came inside the window, a second; None if any count is unknown."""
    begun = w.holds(c.first_content_ns) & c.is_outcome(*COUNTED)
    tokens = c.number("prompt_tokens")[begun]
    return None if np.isnan(tokens).any() else float(tokens.sum()) / w.seconds


def tokens_estimated(c: Columns) -> Bools:
    """Requests with text whose output tokens are a count of their chunks, or not known at all."""
    return (c.visible_count > 0) & (np.isnan(c.streamed_tokens) | c.text_is("tokens_source", "chunks"))


def token_events(c: Columns, w: Window, counted: Bools) -> tuple[Floats, Floats]:
    """(when, how many tokens) of each text event inside the window, of the requests `counted`."""
    when = c.chunk_ns[c.visible].astype(np.float64)
    inside = w.holds(when) & counted[c.visible_row]
    return when[inside], c.visible_tokens[inside]


def output_tps(c: Columns, w: Window) -> float | None:
    """Output tokens that arrived inside the window, a second."""
    key = f"output_tps {w.w0_ns} {w.w1_ns}"  # asked for again by the total
    found: float = c.kept(key, lambda c: float(token_events(c, w, c.is_outcome(*COUNTED))[1].sum()) / w.seconds)
    return found


def wasted_tps(c: Columns, w: Window) -> float | None:
    """Output tokens that arrived inside the window for requests that failed, a second."""
    failed = ~c.is_outcome(*COUNTED) & (c.visible_count > 0)
    return float(token_events(c, w, failed)[1].sum()) / w.seconds if failed.any() else 0.0


def total_tps(c: Columns, w: Window) -> float | None:
    """Input plus output tokens, a second; None where either is not known."""
    first, second = input_tps(c, w), output_tps(c, w)
    return None if first is None or second is None else first + second


def peak_tps(c: Columns, w: Window) -> float | None:
    """The most output tokens in any one second, a second.

    The window is tiled by equal buckets of one second or a little more, so that the peak can never be below the mean.
    """
    when, weights = token_events(c, w, c.is_outcome(*COUNTED))
    buckets = max(1, int(w.seconds))
    width = w.seconds / buckets
    place = np.minimum(((when - w.w0_ns) / NS_PER_S / width).astype(np.int64), buckets - 1)
    return float(np.bincount(place, weights=weights, minlength=buckets).max()) / width


def stay(c: Columns, w: Window) -> tuple[Floats, Floats]:
    """When each request entered and left the server, ns (sent; answer whole, or given up). NaN if it was never sent."""
    entered = c.number("sent_ns")
    left = np.where(np.isnan(c.done_ns), c.number("end_ns"), c.done_ns)
    left = np.where(np.isnan(left) & ~np.isnan(entered), float(w.cut_ns), left)
    return entered, np.asarray(np.where(np.isnan(entered), np.nan, left))


def in_flight_mean(c: Columns, w: Window) -> float | None:
    """Requests in flight, averaged over the time of the window."""
    entered, left = stay(c, w)
    inside = np.minimum(left, w.w1_ns) - np.maximum(entered, w.w0_ns)
    return float(np.nansum(np.maximum(inside, 0.0))) / (w.w1_ns - w.w0_ns)


def in_flight_at(c: Columns, w: Window, when_ns: Floats) -> Floats:
    """Requests in flight at each of these instants."""
    entered, left = stay(c, w)
    sent = ~np.isnan(entered)
    begun = np.searchsorted(np.sort(entered[sent]), when_ns, side="right")
    gone = np.searchsorted(np.sort(left[sent]), when_ns, side="right")
    return np.asarray((begun - gone).astype(np.float64))


@dataclass(frozen=True, slots=True)
class Little:
    """Little's law in one stage: `in_flight` (measured) against `rate` (1/s) x `stay_s`; `edges`: stays a window."""

    in_flight: float
    rate: float
    stay_s: float
    window_s: float

    @property
    def disagreement(self) -> float | None:
        """|L - rate x stay| / L; None where nothing was in flight."""
        return abs(self.in_flight - self.rate * self.stay_s) / self.in_flight if self.in_flight > 0 else None

    @property
    def long_enough(self) -> bool:
        """True when the window holds twenty mean stays: below that the requests cut by its edges alone disagree."""
        return self.window_s >= 20 * self.stay_s


def little(c: Columns, w: Window) -> Little | None:
    """Little's law from the requests that completed inside the window; None where none did."""
    entered, left = stay(c, w)
    inside = w.holds(c.done_ns)
    level = in_flight_mean(c, w)
    if not inside.any() or level is None:
        return None
    mean_stay = float(np.mean((left - entered)[inside])) / NS_PER_S
    return Little(level, float(inside.sum()) / w.seconds, mean_stay, w.seconds)
