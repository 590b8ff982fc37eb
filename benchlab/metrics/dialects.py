"""The same records in other tools' words: what each would have printed for this very run, beside ours.

The one idea: a tool's number is a definition applied to events, and all events are kept; so its table is recomputed,
not converted. A definition that needs what the records' source did not tell answers with its reason. It must not know
how the records were made, nor print anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchlab.metrics.columns import Columns, Floats, stages_of
from benchlab.metrics.dialects_read import Drawn, Sight
from benchlab.metrics.dialects_tools import DIALECTS, Dialect, Quantity
from benchlab.metrics.goodput import SloClause, good_requests
from benchlab.metrics.quantiles import quantile
from benchlab.metrics.table import BY_NAME, measure
from benchlab.metrics.window import window_of
from benchlab.records.manifest import finite

__all__ = ["DIALECTS", "Figure", "Speech", "StageSpeeches", "in_dialects", "in_dialects_of"]


PERCENTILES: tuple[float, ...] = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity as one tool would print it: times in ms, rates a second, shares as shares.

    key: our name of the quantity. word: the tool's. stats: mean and percentiles, or `value` for a rate or share.
    gap: why there is none. differs: one line on how the definition departs from ours, '' where it does not.
    """

    key: str
    word: str
    unit: str
    n: int
    stats: dict[str, float | None]
    gap: str | None
    differs: str


@dataclass(frozen=True, slots=True)
class Speech:
    """A stage in one tool's words."""

    tool: str
    checked: str
    sentence: str
    span_s: float | None
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class StageSpeeches:
    """A stage in every tool's words, ours first."""

    stage: int
    name: str
    speeches: tuple[Speech, ...]

    def as_dict(self) -> dict[str, Any]:
        clean: dict[str, Any] = finite(asdict(self))
        return clean


def in_dialects(
    manifest: Mapping[str, Any],
    requests: pa.Table,
    *,
    slo: Sequence[SloClause] = (),
    percentiles: Sequence[float] = PERCENTILES,
    tools: Sequence[Dialect] = DIALECTS,
) -> list[StageSpeeches]:
    """Every stage that has a window, in our words and in each tool's. Requests due in the window are meant."""
    found = stages_of(requests)
    source = (manifest.get("imported") or {}).get("tool")
    result: list[StageSpeeches] = []
    for place, entry in enumerate(manifest.get("stages") or []):
        number = int(entry.get("stage", place))
        c = found.get(number)
        if c is not None:
            speeches = in_dialects_of(c, entry, slo=slo, percentiles=percentiles, tools=tools, source=source)
            if speeches:
                result.append(StageSpeeches(number, str(entry.get("name") or f"stage {number}"), speeches))
    return result


def in_dialects_of(
    c: Columns,
    entry: Mapping[str, Any],
    *,
    slo: Sequence[SloClause] = (),
    percentiles: Sequence[float] = PERCENTILES,
    tools: Sequence[Dialect] = DIALECTS,
    source: str | None = None,
) -> tuple[Speech, ...]:
    """One stage in our words, then in each tool's; empty where the stage has no window.

    source: the tool whose own file the records come from: its definitions need not be told which events it meant.
    """
    window = window_of(entry, c)
    if window is None:
        return ()
    among = window.holds(c.number("intended_ns"))
    told = entry.get("tool_span_s")
    speeches = [_ours(Sight(c, among, window, entry), slo, percentiles)]
    for tool in tools:
        own = tool.name == source
        sight = Sight(c, among, window, entry, float(told) if own and told is not None else None)
        speeches.append(_speak(tool, sight, slo, percentiles, own))
    return tuple(speeches)


# -- ours, from the table of metrics

_OURS = (("ttft", "ttft"), ("itl", "itl"), ("tpot", "tpot"), ("e2e", "e2e"))


def _ours(s: Sight, slo: Sequence[SloClause], percentiles: Sequence[float]) -> Speech:
    figures: list[Figure] = []
    for key, name in _OURS:
        samples = measure(BY_NAME[name], s.c, s.ok)
        values = np.sort(samples.values)
        stats: dict[str, float | None] = {"mean": float(values.mean()) if len(values) else None}
        for p in percentiles:
            stats[f"p{p:g}"] = quantile(values, p / 100) if len(values) else None
        gap = samples.gap.reason if samples.gap is not None else None
        figures.append(Figure(key, name, "ms", len(values), stats, gap, ""))
    for name in ("completed_rps", "output_tps"):
        metric = BY_NAME[name]
        value = metric.figure(s.c, s.window) if metric.figure is not None else None
        figures.append(
            Figure(name, name, metric.unit, 0, {"value": value}, None if value is not None else "not known", "")
        )
    if slo:
        good = good_requests(s.c, slo)
        hits, tried = int((s.among & good.mask).sum()), int(s.among.sum())
        gap = good.unknown if good.unknown is not None else None if tried else "nothing was attempted"
        rate = float((s.window.holds(s.c.done_ns) & good.mask).sum()) / s.window.seconds
        for name, value in (("good_rps", rate), ("attainment", hits / tried if tried else None)):
            figures.append(Figure(name, name, BY_NAME[name].unit, hits, {"value": None if gap else value}, gap, ""))
    sentence = "Requests due in the window; text of any kind; every attempted request in a share's denominator."
    return Speech("benchlab", "this program", sentence, s.window.seconds, tuple(figures))


# -- theirs


def _speak(tool: Dialect, s: Sight, slo: Sequence[SloClause], percentiles: Sequence[float], own: bool) -> Speech:
    figures = [_figure(tool, quantity, s, percentiles, own) for quantity in tool.quantities]
    untold = None if s.told_span_s is not None else _lacking(tool.span_needs, s)
    span = tool.span(s) if untold is None else None
    why = untold or (None if span is not None else "the span is not known: no request was sent and ended")
    done = int(s.ok.sum())
    count = max(0, done - tool.open_ended)
    tokens = s.tokens[s.ok]
    lacking = "output tokens not known" if np.isnan(tokens).any() else None
    rate = count / span if span else None
    figures.append(Figure("completed_rps", tool.rate_word, "1/s", done, {"value": rate}, why, tool.span_differs))
    speed = float(tokens.sum()) / span if span and lacking is None else None
    figures.append(
        Figure("output_tps", tool.tokens_word, "tokens/s", done, {"value": speed}, why or lacking, tool.span_differs)
    )
    if slo:
        figures += _goodput(tool, s, slo, span, own)
    return Speech(tool.name, tool.checked, tool.sentence, span, tuple(figures))


def _figure(tool: Dialect, q: Quantity, s: Sight, percentiles: Sequence[float], own: bool) -> Figure:
    names = ["mean", *(f"p{p:g}" for p in percentiles)]
    empty: dict[str, float | None] = dict.fromkeys(names)
    if q.draw is None:
        return Figure(q.key, q.word, "ms", 0, empty, "this tool has no such number", q.differs)
    gap = _untold(q, s, own)
    if gap is not None:
        return Figure(q.key, q.word, "ms", 0, empty, gap, q.differs)
    drawn = _sorted(q.draw(s), s)
    if not len(drawn.values):
        return Figure(q.key, q.word, "ms", 0, empty, "no request of this kind", q.differs)
    weights = drawn.weights
    stats: dict[str, float | None] = {"mean": float(np.average(drawn.values, weights=weights))}
    for p in percentiles:
        stats[f"p{p:g}"] = tool.quantile(drawn.values, weights, p / 100)
    return Figure(q.key, q.word, "ms", len(drawn.values), stats, None, q.differs)


def _sorted(drawn: Drawn, s: Sight) -> Drawn:
    """Rising values without those that are not there; of one a request, only those of requests that ended well."""
    values, weights = drawn.values, drawn.weights
    keep = np.isfinite(values)
    if drawn.each_request:
        keep &= s.ok
    if weights is not None:
        keep &= np.isfinite(weights) & (weights > 0)
        weights = weights[keep]
    values = values[keep]
    if weights is None:
        return Drawn(np.sort(values))
    order = np.argsort(values, kind="stable")
    return Drawn(values[order], weights[order])


_WAIVED = ("chunk_kind", "chunk_kind.answer", "chunk_kind.silent", "chunk_ns.between")
"""What a tool's own file need not tell for its own definitions: it kept the very instants that it uses."""


def _untold(q: Quantity, s: Sight, own: bool) -> str | None:
    return _lacking([name for name in q.needs if not own or name not in _WAIVED], s)


def _lacking(needs: Sequence[str], s: Sight) -> str | None:
    """Why not, where any good answer's record does not tell one of these fields."""
    for name in needs:
        if (s.c.untold(name) & s.ok).any():
            return f"the source does not tell {name}"
    return None


def _goodput(tool: Dialect, s: Sight, slo: Sequence[SloClause], span: float | None, own: bool) -> list[Figure]:
    """Good requests a second and their share, as the tool counts them; its own latencies against our limits."""
    words = tool.good
    if words is None:
        none = "this tool has no goodput"
        return [
            Figure(k, "—", u, 0, {"value": None}, none, "") for k, u in (("good_rps", "1/s"), ("attainment", "share"))
        ]
    by_key: dict[str, Quantity] = {q.key: q for q in tool.quantities}
    mask, gap = s.ok.copy(), None
    unclear = np.zeros(s.c.n, dtype=np.bool_)
    for clause in slo:
        q = by_key.get(words.of.get(clause.metric, ""))
        if q is None or q.draw is None:
            gap = f"this tool has no limit on {clause.metric}"
            break
        gap = _untold(q, s, own)
        if gap is not None:
            break
        values: Floats = q.draw(s).values
        lost = ~np.isfinite(values)
        unclear |= lost & s.ok
        met = values <= clause.limit
        mask &= met | (lost if words.missing == "passes" else np.zeros_like(lost))
    rate = None if gap or not span else int(mask.sum()) / span
    tried = (
        words.denominator(s) & ~(unclear if words.missing == "apart" else np.zeros_like(unclear))
        if words.denominator
        else None
    )
    share = None if gap or tried is None or not tried.any() else float((mask & tried).sum() / tried.sum())
    shareless = gap or (
        "this tool gives no share" if tried is None else None if share is not None else "nothing was attempted"
    )
    return [
        Figure(
            "good_rps",
            words.word,
            "1/s",
            int(mask.sum()),
            {"value": rate},
            gap or (None if span else "no span"),
            words.differs,
        ),
        Figure("attainment", words.share_word, "share", int(mask.sum()), {"value": share}, shareless, words.differs),
    ]
