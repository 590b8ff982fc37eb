"""What a stage proves of each objective on a percentile, and how much longer it would have to be to prove it.

The one idea: whoever was cut off missed the limit; those who follow each other are alike and count for fewer. It must
not know selection: it says what the records show, and leaves what follows from it to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchlab.metrics.columns import Bools, Columns
from benchlab.metrics.intervals import effective_n
from benchlab.metrics.needed import in_words, proof
from benchlab.metrics.table import BY_NAME, measure
from benchlab.metrics.window import Window
from benchlab.records.event import Outcome


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `limit` (in its unit) for the `share` quantile of a request or gap metric; text: as the user wrote it."""

    metric: str
    share: float
    limit: float
    text: str


def proofs(c: Columns, w: Window | None, inside: Bools, limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """One entry a limit: n (independent ones), misses among them, proven, needed, longer_s and the sentence."""
    return [_proof(c, w, inside, limit) for limit in limits] if w is not None else []


def _proof(c: Columns, w: Window, inside: Bools, limit: Limit) -> dict[str, Any]:
    cut = inside & c.is_outcome(Outcome.UNFINISHED, Outcome.TIMEOUT)
    samples = measure(BY_NAME[limit.metric], c, inside & c.is_outcome(Outcome.OK))
    counts = np.bincount(samples.rows, minlength=c.n).astype(np.float64)
    over = np.bincount(samples.rows, weights=(samples.values > limit.limit).astype(np.float64), minlength=c.n)
    counts[cut], over[cut] = 1.0, 1.0
    rows = np.flatnonzero(counts)
    if not len(rows):
        return {"objective": limit.text, "n": 0, "misses": 0, "proven": False, "needed": None, "longer_s": None,
                "say": f"{limit.text}: {samples.gap.reason if samples.gap else 'no samples'}"}  # fmt: skip
    rows = rows[np.argsort(c.number("intended_ns")[rows], kind="stable")]
    # gaps of one request are as one sample, of which a part missed
    parts = over[rows] / counts[rows]
    n = effective_n(parts)
    missed = float(over[rows].sum() / counts[rows].sum()) * n
    found = proof(n, missed, limit.share)
    rate = n / w.seconds
    longer = found.longer_s(rate)
    name = f"p{limit.share * 100:g}"
    if found.proven:
        say = f"{limit.text} is proved by {n:.0f} independent samples, {missed:.3g} of them over it"
    elif longer is None:
        say = f"{limit.text}: {missed / n:.2%} are over it, no length of run proves {name}"
    else:
        say = f"run {in_words(longer)} longer to prove {name}: {limit.text}, {found.needed} samples at {rate:.3g}/s"
    return {
        "objective": limit.text,
        "n": round(n, 3),
        "misses": round(missed, 3),
        "proven": found.proven,
        "needed": found.needed,
        "longer_s": longer,
        "say": say,
    }
