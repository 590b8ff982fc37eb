"""What a recipe is: a way to make items, what it was shaped on, and the figures it is held against.

It must not know any recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchlab.workload.draw import Quantiles
from benchlab.workload.item import WorkloadItem

Make = Callable[[int, int], list[WorkloadItem]]
"""(seed, number of items) to items; the same bytes on every machine."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to make items.

    shaped_on: words for the data card. targets: metric (see fit.measure) to published figure. shown_at: from so many
    items on the figures are near; below it a card says that they need more.
    """

    name: str
    make: Make
    about: str
    shaped_on: str
    default_items: int = 200
    targets: dict[str, float] = field(default_factory=dict)
    shown_at: int = 0


def length_targets(inputs: Quantiles, outputs: Quantiles) -> dict[str, float]:
    """The p50, p90 and p99 of published percentiles as targets."""
    return {
        f"{side}.p{round(share * 100)}": float(value)
        for side, table in (("input", inputs), ("output", outputs))
        for share, value in table
        if share in (0.5, 0.9, 0.99)
    }
