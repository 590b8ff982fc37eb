"""The facts of a workload: rows, times, burstiness, lengths, shared prefixes, sessions.

A figure that the items do not carry is None and said to be unknown, never 0. It must not know how a run went: these
are facts of what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchlab.units import format_number
from benchlab.workload.item import WorkloadItem
from benchlab.workload.read import Workload
from benchlab.workload.tokens import CHARS_PER_TOKEN

SHARES = (50, 90, 95, 99)
BINS_S = (1, 10, 60)


def inspect(workload: Workload) -> dict[str, Any]:
    """All facts as plain data (JSON-ready, no NaN): reading, times, lengths, prefixes, sessions, tenants, tags."""
    items = workload.items
    return {
        "path": workload.path,
        "sha256": workload.sha256,
        "format": workload.format,
        "rows": {"read": workload.read, "kept": workload.kept, "dropped": dict(sorted(workload.dropped.items()))},
        "time_unit": workload.time_unit,
        "inversions": workload.inversions,
        **facts(items),
        "notes": list(workload.notes),
    }


def facts(items: Sequence[WorkloadItem]) -> dict[str, Any]:
    """The facts of the items alone, whether read or made."""
    texts = [prompt_chars(item) for item in items]
    asked = [item.input_tokens for item in items if item.input_tokens is not None]
    return {
        "items": len(items),
        "arrivals": arrivals([item.arrival_s for item in items if item.arrival_s is not None]),
        "input_tokens": lengths(asked),
        "input_tokens_estimated": lengths([-(-chars // int(CHARS_PER_TOKEN)) for chars in texts if chars]),
        "output_tokens": lengths([item.output_tokens for item in items if item.output_tokens is not None]),
        "prefix": prefix_hits(items),
        "sessions": _sessions(items),
        "tenants": _counts(item.tenant for item in items if item.tenant is not None),
        "tags": _counts(tag for item in items for tag in item.tags),
    }


def prompt_chars(item: WorkloadItem) -> int:
    """Characters of the text that is asked, 0 where it is still to be made."""
    if item.prompt is not None:
        return len(item.prompt)
    contents = [message.get("content") for message in item.messages or []]
    return sum(len(content) for content in contents if isinstance(content, str))


def arrivals(times: Sequence[float]) -> dict[str, Any] | None:
    """Span (s), rate (1/s), CV of the gaps, and variance over mean of counts in bins of 1, 10 and 60 s (whole bins)."""
    if not times:
        return None
    at = np.sort(np.asarray(times, dtype=np.float64))
    at -= at[0]
    span, gaps = float(at[-1]), np.diff(at)
    mean = float(gaps.mean()) if gaps.size else 0.0
    return {
        "span_s": span,
        "rate_rps": (len(at) - 1) / span if span > 0 else None,
        "cv": float(gaps.std() / mean) if mean > 0 else None,
        "idc": {f"{width}s": _dispersion(at, span, width) for width in BINS_S},
        "distinct_times": int(np.unique(at).size),
    }


def _dispersion(at: Any, span: float, width: int) -> float | None:
    whole = int(span // width)
    if whole < 2:
        return None
    counts = np.bincount((at // width).astype(np.int64), minlength=whole)[:whole]
    return float(counts.var() / counts.mean()) if counts.mean() > 0 else None


def lengths(tokens: Sequence[int]) -> dict[str, float] | None:
    """n, mean, min, percentiles and max of lengths in tokens; None where no item has one."""
    if not tokens:
        return None
    values = np.sort(np.asarray(tokens, dtype=np.int64))
    told = {f"p{share}": float(np.percentile(values, share)) for share in SHARES}
    return {"n": len(tokens), "mean": float(values.mean()), "min": int(values[0]), **told, "max": int(values[-1])}


def prefix_hits(items: Sequence[WorkloadItem]) -> dict[str, Any] | None:
    """What an infinite cache that starts cold would answer: ids are a chain, so the leading run of known ids counts.

    token_hit_ratio: shared tokens over all tokens of the items that have ids.
    """
    known: set[tuple[int, int]] = set()
    total = shared = with_hit = rows = 0
    for item in items:
        if item.prefix_blocks is None or item.input_tokens is None or item.block_tokens is None:
            continue
        rows += 1
        run = 0
        for block in item.prefix_blocks:
            if (item.block_tokens, block) not in known:
                break
            run += 1
        tokens = min(run * item.block_tokens, item.input_tokens)
        total, shared, with_hit = total + item.input_tokens, shared + tokens, with_hit + (run > 0)
        known.update((item.block_tokens, block) for block in item.prefix_blocks[run:])
    if not rows:
        return None
    return {"items": rows, "token_hit_ratio": shared / total, "items_with_hit": with_hit / rows, "blocks": len(known)}


def _sessions(items: Sequence[WorkloadItem]) -> dict[str, Any] | None:
    counts = _counts(item.session for item in items if item.session is not None)
    if not counts:
        return None
    return {"n": len(counts), "items_per_session": lengths(list(counts.values()))}


def _counts(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def as_text(found: dict[str, Any]) -> str:
    """The facts of `inspect` as lines for the console."""
    rows = found["rows"]
    dropped = "".join(f"; {count:,} {reason}" for reason, count in rows["dropped"].items())
    lines = [
        f"{found['path']} ({found['format']}, sha256 {found['sha256'][:12]})",
        f"rows       {rows['read']:,} read, {rows['kept']:,} kept, {rows['read'] - rows['kept']:,} dropped{dropped}",
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
        lines.append(
            f"prefixes   token hit ratio {prefix['token_hit_ratio']:.3f} with an infinite cache; "
            f"{prefix['items_with_hit']:.1%} of items hit; {prefix['blocks']:,} blocks"
        )
    sessions = found["sessions"]
    lines.append("sessions   none named" if sessions is None else f"sessions   {sessions['n']:,}")
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
    if told["distinct_times"] < 0.5 * found["items"]:
        lines.append(
            f"           only {told['distinct_times']:,} distinct times for {found['items']:,} items: the source's "
            "clock is coarse, and CV and the IDC at 1 s say little"
        )
    return lines
