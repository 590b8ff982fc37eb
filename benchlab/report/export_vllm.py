"""A stage as the JSON of `vllm bench serve --save-result --save-detailed`, in vllm's own definitions.

The one idea: whoever reads vllm's files reads this one, and finds under each of vllm's names what vllm means by it. It
must not hold a definition: those stand in `metrics.dialects_tools`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchlab.errors import UsageError
from benchlab.metrics.columns import Columns, Floats
from benchlab.metrics.dialects import in_dialects_of
from benchlab.metrics.dialects_read import Sight
from benchlab.metrics.dialects_tools import VLLM
from benchlab.metrics.goodput import SloClause
from benchlab.metrics.window import window_of
from benchlab.units import NS_PER_S

_WORDS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}


def stage_as_vllm(
    c: Columns,
    entry: Mapping[str, Any],
    manifest: Mapping[str, Any],
    *,
    slo: Sequence[SloClause] = (),
    percentiles: Sequence[float] = (50, 90, 95, 99),
    verdict: str = "",
) -> dict[str, Any]:
    """The JSON object of one stage. Raises UsageError where its records do not tell what vllm's numbers need.

    Requests due in the window are meant; a request that failed keeps its place in every list, as there.
    """
    window = window_of(entry, c)
    if window is None:
        raise UsageError(
            "the stage has no measured window", where=f"stage {entry.get('stage')}", hint="give another --stage"
        )
    among = window.holds(c.number("intended_ns"))
    source = (manifest.get("imported") or {}).get("tool")
    speech = in_dialects_of(c, entry, slo=slo, percentiles=percentiles, tools=(VLLM,), source=source)[1]
    figures = {figure.key: figure for figure in speech.figures}
    sight = Sight(c, among, window, entry)
    if sight.ok.any():
        for key in _WORDS:
            if (gap := figures[key].gap) and gap.startswith("the source"):
                raise UsageError(f"{key}: {gap}", where="--to vllm", hint="a run of benchlab's own tells all of it")
    rows = np.flatnonzero(among)
    good = sight.ok[rows]
    first, last, sent = sight.first_choice(), sight.last_choice(), c.number("sent_ns")
    prompts, outputs = c.number("prompt_tokens"), c.number("output_tokens")
    done = outputs[rows][good]
    endpoint, load = manifest.get("endpoint") or {}, entry
    result: dict[str, Any] = {
        "date": _date(manifest.get("created")),
        "endpoint_type": f"openai-{endpoint.get('api')}" if endpoint.get("api") == "chat" else endpoint.get("api"),
        "backend": endpoint.get("api"),
        "label": entry.get("name"),
        "model_id": endpoint.get("model"),
        "tokenizer_id": (manifest.get("workload") or {}).get("tokenizer"),
        "num_prompts": len(rows),
        "request_rate": load.get("offered_rps") if load.get("offered_rps") is not None else "inf",
        "burstiness": 1.0 if entry.get("arrival") == "poisson" else None,
        "max_concurrency": entry.get("concurrency"),
        "duration": speech.span_s,
        "completed": int(good.sum()),
        "failed": int((~good).sum()),
        "total_input_tokens": _sum(prompts[rows][good]),
        "total_output_tokens": _sum(done),
        "request_throughput": figures["completed_rps"].stats["value"],
        "output_throughput": figures["output_tps"].stats["value"],
        "total_token_throughput": _both(prompts[rows][good], done, speech.span_s),
        **({"request_goodput": figures["good_rps"].stats["value"]} if "good_rps" in figures else {}),
        "input_lens": _counts(prompts[rows]),
        "output_lens": _counts(np.where(good, outputs[rows], 0)),
        "ttfts": _seconds(np.where(good, first[rows] - sent[rows], 0)),
        "itls": _gaps(sight, rows, good),
        "latencies": _seconds(np.where(good, last[rows] - sent[rows], 0)),
        "start_times": _seconds(sent[rows]),
        "errors": [_error(c, int(row), bool(fine)) for row, fine in zip(rows, good, strict=True)],
        "generated_texts": [""] * len(rows),
    }
    for key, word in _WORDS.items():
        stats = figures[key].stats
        result[f"mean_{word}_ms"] = stats["mean"]
        result[f"median_{word}_ms"] = stats.get("p50")
        result |= {f"{name}_{word}_ms": value for name, value in stats.items() if name != "mean"}
    return result | {"exported_by": "benchlab", "benchlab_verdict": verdict, "benchlab_run_id": manifest.get("run_id")}


def _date(created: Any) -> str | None:
    """vllm's '20261129-213255' of an ISO time."""
    digits = "".join(letter for letter in str(created or "")[:19] if letter.isdigit())
    return f"{digits[:8]}-{digits[8:]}" if len(digits) == 14 else None


def _sum(values: Floats) -> int | None:
    return None if np.isnan(values).any() else int(values.sum())


def _both(prompts: Floats, outputs: Floats, span: float | None) -> float | None:
    total = _sum(np.concatenate([prompts, outputs]))
    return total / span if total is not None and span else None


def _counts(values: Floats) -> list[int]:
    """Whole numbers, 0 where one is not known, as vllm writes it."""
    return [int(value) for value in np.nan_to_num(values)]


def _seconds(ns: Floats) -> list[float]:
    return [float(value) / NS_PER_S for value in np.nan_to_num(ns)]


def _gaps(sight: Sight, rows: Any, good: Any) -> list[list[float]]:
    """Gaps in s between the events with `choices`, a list a request."""
    c, places = sight.c, sight.choice_places()
    owner = c.event_row[places]
    begin, until = np.searchsorted(owner, rows, "left"), np.searchsorted(owner, rows, "right")
    when = c.chunk_ns[places]
    return [
        [float(step) / NS_PER_S for step in np.diff(when[a:b])] if fine else []
        for a, b, fine in zip(begin, until, good, strict=True)
    ]


def _error(c: Columns, row: int, fine: bool) -> str:
    if fine:
        return ""
    told = c.table.column("error")[row].as_py() or c.table.column("outcome")[row].as_py()
    return str(told or "failed")
