"""The facts of a workload: rows, times, burstiness, lengths, shared prefixes, sessions.

A figure that the items do not carry is None and said to be unknown, never 0. It must not know how a run went: these
are facts of what is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchlab.units import format_number
from benchlab.workload.blocks import cache_hits
from benchlab.workload.item import WorkloadItem
from benchlab.workload.items import lazily
from benchlab.workload.read import Workload
from benchlab.workload.tokens import CHARS_PER_TOKEN

SHARES = (50, 90, 95, 99)
BINS_S = (1, 10, 60)
LICENCES = {
    "azure": "CC BY 4.0", "burstgpt": "CC BY 4.0", "mooncake": "Apache-2.0", "bailian": "Apache-2.0", "ragpulse": "MIT",
    "weka": "Apache-2.0", "tracelab": "CC BY 4.0", "tracelab-replay": "Apache-2.0", "lmcache": "Apache-2.0",
    "servegen": "Apache-2.0", "lengths (etalon)": "Apache-2.0",
}  # fmt: skip
"""Under what the project behind a format publishes its own files; a file of somebody else may have another."""


def inspect(workload: Workload) -> dict[str, Any]:
    """All facts as plain data (JSON-ready, no NaN): reading, times, lengths, prefixes, sessions, tenants, tags."""
    items = workload.items
    return {
        "path": workload.path,
        "sha256": workload.sha256,
        "format": workload.format,
        "licence": LICENCES.get(workload.format),
        "rows": {"read": workload.read, "kept": workload.kept, "dropped": dict(sorted(workload.dropped.items()))},
        "time_unit": workload.time_unit,
        "inversions": workload.inversions,
        **facts(items),
        "notes": list(workload.notes),
    }


def facts(items: Sequence[WorkloadItem]) -> dict[str, Any]:
    """The facts of the items alone, whether read or made."""
    found = lazily(items)
    columns, rows = found.columns, found.rows
    asked, answered = (columns.view(name)[rows] for name in ("input", "output"))
    chars = columns.view("chars")[rows]
    times, waits = found.arrival_s[rows], columns.view("wait_s")[rows]
    of_label = _number(columns.view("label")[rows], columns.labels)
    return {
        "items": len(items),
        "arrivals": arrivals(times[~np.isnan(times)]),
        "input_tokens": lengths(asked[asked > 0]),
        "input_tokens_estimated": lengths(-(-chars[chars > 0] // int(CHARS_PER_TOKEN))),
        "output_tokens": lengths(answered[answered > 0]),
        "prefix": cache_hits(columns, rows),
        "sessions": _sessions(columns.view("session")[rows], waits),
        "tenants": _counts((tenant, n) for (tenant, _), n in of_label if tenant is not None),
        "tags": _counts((tag, n) for (_, tags), n in of_label for tag in tags),
    }


def prefix_hits(items: Sequence[WorkloadItem]) -> dict[str, Any] | None:
    """What an infinite cache that starts cold would answer to the items in their order (`blocks.cache_hits`)."""
    found = lazily(items)
    return cache_hits(found.columns, found.rows)


def arrivals(times: Sequence[float] | Any) -> dict[str, Any] | None:
    """Span (s), rate (1/s), CV of the gaps, and variance over mean of counts in bins of 1, 10 and 60 s (whole bins).

    per_minute: least and most arrivals in a whole minute. tick_s: the usual step of a clock that is too coarse for the
    rate (fewer than half of the times differ), None where it is fine enough.
    """
    if not len(times):
        return None
    at = np.sort(np.asarray(times, dtype=np.float64))
    at -= at[0]
    span, gaps = float(at[-1]), np.diff(at)
    mean = float(gaps.mean()) if gaps.size else 0.0
    steps = gaps[gaps > 0]
    coarse = steps.size + 1 < 0.5 * len(at)
    return {
        "span_s": span,
        "rate_rps": (len(at) - 1) / span if span > 0 else None,
        "cv": float(gaps.std() / mean) if mean > 0 else None,
        "idc": {f"{width}s": _dispersion(at, span, width) for width in BINS_S},
        "per_minute": _per_minute(at, span),
        "distinct_times": int(steps.size) + 1,
        "tick_s": float(np.median(steps)) if coarse and steps.size else None,
    }


def _dispersion(at: Any, span: float, width: int) -> float | None:
    whole = int(span // width)
    if whole < 2:
        return None
    counts = np.bincount((at // width).astype(np.int64), minlength=whole)[:whole]
    return float(counts.var() / counts.mean()) if counts.mean() > 0 else None


def _per_minute(at: Any, span: float) -> dict[str, int] | None:
    whole = int(span // 60)
    if whole < 1:
        return None
    counts = np.bincount((at // 60).astype(np.int64), minlength=whole)[:whole]
    return {"min": int(counts.min()), "max": int(counts.max())}


def lengths(tokens: Sequence[int] | Any) -> dict[str, float] | None:
    """n, mean, min, percentiles and max of lengths in tokens; None where no item has one."""
    if not len(tokens):
        return None
    values = np.sort(np.asarray(tokens, dtype=np.int64))
    told = {f"p{share}": float(np.percentile(values, share)) for share in SHARES}
    return {"n": len(values), "mean": float(values.mean()), "min": int(values[0]), **told, "max": int(values[-1])}


def _sessions(sessions: Any, waits: Any) -> dict[str, Any] | None:
    named = sessions[sessions >= 0]
    if not len(named):
        return None
    counts = np.bincount(named)
    known = waits[~np.isnan(waits)]
    told = {f"p{share}": float(np.percentile(known, share)) for share in SHARES} if len(known) else None
    return {
        "n": int((counts > 0).sum()),
        "items_without": int(len(sessions) - len(named)),
        "items_per_session": lengths(counts[counts > 0]),
        "wait_s": None if told is None else {"n": len(known), **told, "max": float(known.max())},
    }


def _number(places: Any, names: Mapping[Any, int]) -> list[tuple[Any, int]]:
    """Each name that is used, and how often."""
    counts: Any = np.bincount(places[places >= 0], minlength=len(names)) if len(names) else []
    return [(name, int(count)) for name, count in zip(names, counts, strict=True) if count]


def _counts(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, number in pairs:
        counts[name] = counts.get(name, 0) + number
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def tick_of(items: Sequence[WorkloadItem]) -> float | None:
    """The tick of a source whose clock is too coarse for its rate, s; None where it is fine enough."""
    found = lazily(items)
    times = found.arrival_s[found.rows]
    told = arrivals(times[~np.isnan(times)])
    return None if told is None else told["tick_s"]


_BESIDE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("items", ("items",)),
    ("span, s", ("arrivals", "span_s")),
    ("requests/s", ("arrivals", "rate_rps")),
    ("CV", ("arrivals", "cv")),
    ("IDC 1 s", ("arrivals", "idc", "1s")),
    ("IDC 10 s", ("arrivals", "idc", "10s")),
    ("IDC 60 s", ("arrivals", "idc", "60s")),
    ("input mean", ("input_tokens", "mean")),
    ("input p50", ("input_tokens", "p50")),
    ("input p99", ("input_tokens", "p99")),
    ("output mean", ("output_tokens", "mean")),
    ("output p50", ("output_tokens", "p50")),
    ("output p99", ("output_tokens", "p99")),
    ("token hit ratio", ("prefix", "token_hit_ratio")),
    ("sessions", ("sessions", "n")),
    ("wait p50, s", ("sessions", "wait_s", "p50")),
    ("wait max, s", ("sessions", "wait_s", "max")),
)


def beside(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Two sets of facts side by side, for a change of a workload; lines that neither has are left out."""
    lines = [f"{'':<16}{'before':>14}{'after':>14}"]
    for title, path in _BESIDE:
        values: list[Any] = []
        for found in (before, after):
            value: Any = found
            for name in path:
                value = None if value is None else value[name]
            values.append(value)
        if any(value is not None for value in values):
            cells = (f"{value:,}" if isinstance(value, int) else format_number(value, 4) for value in values)
            lines.append(f"{title:<16}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def as_text(found: dict[str, Any]) -> str:
    """The facts of `inspect` as lines for the console."""
    rows = found["rows"]
    dropped = "".join(f"; {count:,} {reason}" for reason, count in rows["dropped"].items())
    lines = [
        f"{found['path']} ({found['format']}, sha256 {found['sha256'][:12]})",
        f"rows       {rows['read']:,} read, {rows['kept']:,} kept, {rows['read'] - rows['kept']:,} dropped{dropped}",
        *([f"licence    {found['licence']}, if it is the file its source publishes"] if found["licence"] else []),
        *_arrival_lines(found),
    ]
    names = (("input_tokens", "input"), ("input_tokens_estimated", "input, est."), ("output_tokens", "output"))
    for key, name in names:
        if (told := found[key]) is not None:
            shares = "/".join(format_number(told[f"p{share}"], 4) for share in SHARES)
            lines.append(
                f"{name:<10} mean {format_number(told['mean'], 4)}; p50/p90/p95/p99/max {shares}/{told['max']:,} tokens"
            )
    if (prefix := found["prefix"]) is not None:
        lines += [
            f"prefixes   token hit ratio {prefix['token_hit_ratio']:.3f} with an infinite cache; "
            f"{prefix['items_with_hit']:.1%} of items hit, {prefix['items_with_two_blocks']:.1%} two blocks or more",
            f"           {prefix['blocks']:,} blocks, {prefix['first_blocks']:,} of them first ones; shared tokens "
            + "p50/p90 "
            + "/".join(format_number(prefix["shared_tokens"][f"p{share}"], 4) for share in (50, 90)),
        ]
    lines += _session_lines(found["sessions"])
    for key in ("tenants", "tags"):
        if found[key]:
            counts = ", ".join(f"{name} {count:,}" for name, count in list(found[key].items())[:8])
            lines += [f"{key:<10} {counts}"]
    return "\n".join([*lines, *(f"note       {note}" for note in found["notes"])])


def _arrival_lines(found: dict[str, Any]) -> list[str]:
    told = found["arrivals"]
    if told is None:
        return ["arrivals   untimed: give a rate or a concurrency"]
    idc = " / ".join(format_number(told["idc"][f"{width}s"]) for width in BINS_S)
    unit = f", time unit {found['time_unit']}" if found["time_unit"] else ""
    lines = [
        f"arrivals   span {told['span_s']:,.3f} s, {format_number(told['rate_rps'], 4)} requests/s{unit}",
        f"bursts     CV {format_number(told['cv'])}; IDC at 1/10/60 s {idc}",
    ]
    if (minute := told["per_minute"]) is not None:
        lines.append(f"           {minute['min']:,} to {minute['max']:,} arrivals a minute")
    if told["distinct_times"] < 0.5 * found["items"] and told["tick_s"] is not None:
        lines.append(
            f"           only {told['distinct_times']:,} distinct times for {found['items']:,} items: the source's "
            f"clock ticks every {format_number(told['tick_s'], 4)} s, so CV and the IDC at 1 s say little "
            "(`workload convert --spread-ticks` spreads them)"
        )
    return lines


def _session_lines(told: dict[str, Any] | None) -> list[str]:
    if told is None:
        return ["sessions   none named"]
    per = told["items_per_session"]
    without = f"; {told['items_without']:,} items without one" if told["items_without"] else ""
    lines = [
        f"sessions   {told['n']:,}; items in one p50/p99/max "
        f"{format_number(per['p50'], 4)}/{format_number(per['p99'], 4)}/{per['max']:,}{without}"
    ]
    if (wait := told["wait_s"]) is not None:
        shares = "/".join(format_number(wait[f"p{share}"], 4) for share in SHARES)
        lines.append(f"           waits between turns p50/p90/p95/p99/max {shares}/{format_number(wait['max'], 4)} s")
    return lines
