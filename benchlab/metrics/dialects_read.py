"""What a dialect reads of a stage: the same records, seen as another tool's client would have seen them.

The one idea: every tool's definition is a choice of instants (which event is the first, which is the last, when the
clock starts), of a count and of a span; each choice is one small function here. It must not know any tool's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchlab.metrics.columns import KINDS, Bools, Columns, Floats, Ints
from benchlab.metrics.window import Window
from benchlab.records.event import Kind, Outcome
from benchlab.units import NS_PER_MS, NS_PER_S

_OF_CHOICES = [
    KINDS.index(kind) for kind in (Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL, Kind.ROLE, Kind.EMPTY, Kind.FINISH)
]
_CONTENT = [KINDS.index(Kind.CONTENT)]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Samples of a quantity, ms: `values`, each with a weight (None: all the same).

    each_request: one value a request of the stage, NaN where it has none; else pooled over those that ended well.
    """

    values: Floats
    weights: Floats | None = None
    each_request: bool = False


@dataclass(frozen=True, slots=True)
class Sight:
    """A stage: its columns, the requests that are meant (due inside the window), the window, the manifest's entry.

    told_span_s: what the tool itself divided by, where the records come from its own file.
    """

    c: Columns
    among: Bools
    window: Window
    entry: Mapping[str, Any]
    told_span_s: float | None = None
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> Bools:
        """The requests that are meant and ended well: the only ones that any tool's latencies hold."""
        return np.asarray(self.among & self.c.is_outcome(Outcome.OK))

    @property
    def tokens(self) -> Floats:
        """Output tokens a request as they were counted, hidden reasoning included; NaN where not known."""
        return self.c.number("output_tokens")

    # -- instants, ns from t0, one a request, NaN where it did not happen

    def sent(self) -> Floats:
        """Just before the request went out."""
        return self.c.number("sent_ns")

    def due(self) -> Floats:
        """When the schedule wanted it sent."""
        return self.c.number("intended_ns")

    def first_text(self) -> Floats:
        """First event with text of any kind."""
        return self.c.first_content_ns

    def last_text(self) -> Floats:
        """Last event with text of any kind."""
        return self.c.last_content_ns

    def first_answer(self) -> Floats:
        """First event with answer text, reasoning apart."""
        return self._edge("answer", _CONTENT)[0]

    def last_answer(self) -> Floats:
        """Last event with answer text."""
        return self._edge("answer", _CONTENT)[1]

    def first_choice(self) -> Floats:
        """First event that has `choices`, if only a role in it."""
        return self._edge("choices", _OF_CHOICES)[0]

    def last_choice(self) -> Floats:
        """Last event that has `choices`, if only the finish reason in it."""
        return self._edge("choices", _OF_CHOICES)[1]

    def end(self) -> Floats:
        """The end of the stream, `[DONE]` included."""
        return self.c.number("end_ns")

    def _edge(self, name: str, kinds: list[int]) -> tuple[Floats, Floats]:
        if name not in self._cache:
            places = self._places(name, kinds)
            rows = self.c.event_row[places]
            first, last = np.full(self.c.n, np.nan), np.full(self.c.n, np.nan)
            first[rows[::-1]] = self.c.chunk_ns[places[::-1]]
            last[rows] = self.c.chunk_ns[places]
            self._cache[name] = (first, last)
        found: tuple[Floats, Floats] = self._cache[name]
        return found

    def _places(self, name: str, kinds: list[int]) -> Ints:
        key = f"places {name}"
        if key not in self._cache:
            self._cache[key] = np.flatnonzero(np.isin(self.c.kind, kinds))
        found: Ints = self._cache[key]
        return found

    # -- gaps, ms, pooled over the requests that ended well

    def text_gaps(self) -> Drawn:
        """Between successive events with text."""
        return self._gaps(self.c.visible)

    def choice_gaps(self) -> Drawn:
        """Between successive events with `choices`, role and finish included."""
        return self._gaps(self.choice_places())

    def choice_places(self) -> Ints:
        """Places of the events with `choices` among all events, in order."""
        return self._places("choices", _OF_CHOICES)

    def _gaps(self, places: Ints) -> Drawn:
        rows = self.c.event_row[places]
        same = (rows[1:] == rows[:-1]) & self.ok[rows[1:]]
        return Drawn(np.diff(self.c.chunk_ns[places])[same] / NS_PER_MS)

    def token_gaps(self) -> Drawn:
        """Between tokens, where all tokens of an event came at its time: one gap an event, zeros within it."""
        places = self._places("answer", _CONTENT)
        gaps = self._gaps(places).values
        many = np.bincount(self.c.event_row[places], minlength=self.c.n)
        within = np.maximum(0.0, self.event_tokens() - many)[self.ok].sum()
        return Drawn(np.concatenate([np.zeros(int(within)), gaps]))

    def event_tokens(self) -> Floats:
        """Tokens a request as the sum of its events', a whole number."""
        sums = np.bincount(self.c.visible_row, weights=self.c.visible_tokens, minlength=self.c.n)
        return np.asarray(np.round(sums))

    # -- spans, s

    def sent_to_end(self) -> float | None:
        """From the first request sent to the end of the last stream: the whole run, its drain included."""
        return self._span(self.sent(), np.fmax(self.end(), self.last_text()))

    def sent_to_text(self) -> float | None:
        """From the first request sent to the last text."""
        return self._span(self.sent(), self.last_text())

    def due_to_end(self) -> float | None:
        """From the first request's due time to the end of the last stream."""
        return self._span(self.due(), np.fmax(self.end(), self.last_text()))

    def measured(self) -> float | None:
        """The measured window."""
        return self.told_span_s if self.told_span_s is not None else self.window.seconds

    def _span(self, begin: Floats, until: Floats) -> float | None:
        if self.told_span_s is not None:
            return self.told_span_s
        begin, until = begin[self.among], until[self.among]
        if not (np.isfinite(begin).any() and np.isfinite(until).any()):
            return None
        span = float(np.nanmax(until) - np.nanmin(begin)) / NS_PER_S
        return span if span > 0 else None


def linear(values: Floats, weights: Floats | None, share: float) -> float:
    """numpy's `linear`, of rising values."""
    from benchlab.metrics.quantiles import quantile

    return quantile(values, share)


def inverse_cdf(values: Floats, weights: Floats | None, share: float) -> float:
    """The least value at which the weighted share of values up to it reaches `share`."""
    if weights is None:
        weights = np.ones(len(values))
    # Equal values are one step of the curve: added up one by one, rounding could leave them below the share.
    steps, place = np.unique(values, return_inverse=True)
    reached = np.cumsum(np.bincount(place, weights=weights) / weights.sum())
    return float(steps[min(int(np.searchsorted(reached, share, side="left")), len(steps) - 1)])


def floor_index(values: Floats, weights: Floats | None, share: float) -> float:
    """The order statistic at place floor(n x share), counted from 0."""
    return float(values[min(int(len(values) * share), len(values) - 1)])
