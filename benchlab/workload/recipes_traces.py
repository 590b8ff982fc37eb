"""Recipes without sessions, fitted on published percentiles: Azure's two traces, Mooncake's conversations, ServeGen's
reasoning clients.

The one idea: lengths and gaps are strata of their published quantiles; who shares what with whom is drawn first and
carries the lengths by rank. It must not know how an item is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchlab.workload.draw import Draw, Quantiles, ranked, tokens_at, weibull
from benchlab.workload.draw_math import Floats, exp, gamma, log
from benchlab.workload.fit_arrivals import drifting, merged, runs, times
from benchlab.workload.item import WorkloadItem
from benchlab.workload.recipe import Make

# Published percentiles (p50, p90, p95, p99, max) of the Azure LLM inference traces of November 2023.
CODE_INPUT: Quantiles = ((0, 12), (0.5, 1469), (0.9, 5188), (0.95, 7303), (0.99, 7436), (1, 7437))
CODE_OUTPUT: Quantiles = ((0, 3), (0.5, 13), (0.9, 55), (0.95, 90), (0.99, 251), (1, 1899))
CONV_INPUT: Quantiles = ((0, 60), (0.5, 1020), (0.9, 2734), (0.95, 4083), (0.99, 4142), (1, 14050))
CONV_OUTPUT: Quantiles = ((0, 12), (0.5, 129), (0.9, 424), (0.95, 451), (0.99, 601), (1, 1000))
CODE_RATE, CODE_CV = 2.566, 13.15
CONV_RATE = 5.530
_CONV_SHAPE, _CONV_MEAN = 0.919, 1.0405236442667496
"""A Weibull of this shape has a CV of 1.09; its mean at scale 1, gamma(1 + 1/shape)."""

# Percentiles of the gaps between requests (s), computed from the code trace; alone they make a renewal process of
# CV 13.1 whose counts disperse by 9 / 51 / 125 in 1 / 10 / 60 s, below the trace's 13.2 / 71.6 / 164. The runs of
# short gaps (a weight of 0.35, lasting a dozen gaps) make up the rest.
CODE_GAPS_S: Quantiles = (
    (0, 0.0001),
    (0.1, 0.0002),
    (0.2, 0.0012),
    (0.3, 0.0033),
    (0.4, 0.0151),
    (0.5, 0.0638),
    (0.6, 0.095),
    (0.75, 0.104),
    (0.85, 0.1988),
    (0.9, 0.2729),
    (0.95, 0.4008),
    (0.98, 0.7987),
    (0.99, 2.2051),
    (0.993, 3.6997),
    (0.995, 9.9783),
    (0.997, 28.086),
    (0.998, 41.4),
    (0.999, 79.23),
    (0.9995, 132.5),
    (1, 217.2),
)
_CODE_RUNS, _CODE_KEEP = 0.35, 0.92


def azure_conv(seed: int, num_items: int) -> list[WorkloadItem]:
    """Steady chat: independent lengths, Weibull gaps."""
    draw = Draw(seed, "azure-conv")
    asked, answered, gaps = draw.strata(num_items), draw.strata(num_items), draw.strata(num_items)
    at = times(weibull(gaps, _CONV_SHAPE) / _CONV_MEAN / CONV_RATE)
    return _plain("azure-conv", tokens_at(CONV_INPUT, asked), tokens_at(CONV_OUTPUT, answered), at, ["conv"])


def azure_code(seed: int, num_items: int) -> list[WorkloadItem]:
    """Code completion: long prompts, short answers, bursts within bursts."""
    draw = Draw(seed, "azure-code")
    asked, answered = draw.strata(num_items), draw.strata(num_items)
    at = runs(draw, num_items, CODE_GAPS_S, _CODE_RUNS, _CODE_KEEP)
    return _plain("azure-code", tokens_at(CODE_INPUT, asked), tokens_at(CODE_OUTPUT, answered), at, ["code"])


def _plain(name: str, inputs: Any, outputs: Any, at: list[float], tags: list[str]) -> list[WorkloadItem]:
    return [
        WorkloadItem(id=f"{name}-{place:04d}", input_tokens=asked, output_tokens=most, arrival_s=when, tags=list(tags))
        for place, (asked, most, when) in enumerate(zip(inputs.tolist(), outputs.tolist(), at, strict=True), 1)
    ]


# Mooncake, conversation trace (12,031 requests of one hour).
CHAT_INPUT: Quantiles = ((0, 891), (0.5, 6909), (0.9, 27367), (0.95, 39550), (0.99, 85400), (1, 126195))
CHAT_OUTPUT: Quantiles = ((0, 1), (0.1, 25), (0.5, 350), (0.9, 597), (0.95, 698), (0.99, 1119), (1, 2000))
CHAT_RATE, CHAT_HITS, CHAT_BLOCK = 3.401, 0.374, 512
_GOES_ON, _OPEN = 0.365, 800
"""The share of requests that go on with one of the last so many conversations."""


def mooncake_conv(seed: int, num_items: int) -> list[WorkloadItem]:
    """Long-context chat. All share the first block; some two in five go on with an earlier conversation.

    Times are spread evenly at random over the trace's three-second ticks: the ticks are its clock's, not its users'.
    """
    draw = Draw(seed, "mooncake-conv")
    before, size = _conversations(draw, num_items)
    asked = tokens_at(CHAT_INPUT, ranked(size)).tolist()
    most = tokens_at(CHAT_OUTPUT, draw.strata(num_items)).tolist()
    at = drifting(draw, num_items, CHAT_RATE, 0.1, 600)
    chains: list[list[int]] = []
    next_id = 1
    items = []
    for place in range(num_items):
        num_blocks = -(-asked[place] // CHAT_BLOCK)
        chain = [0]
        if before[place] >= 0:
            whole = min(asked[before[place]] // CHAT_BLOCK, num_blocks)
            chain = chains[before[place]][: max(1, whole)]
        fresh = num_blocks - len(chain)
        chain = [*chain, *range(next_id, next_id + fresh)]
        next_id += fresh
        chains.append(chain)
        items.append(
            WorkloadItem(
                id=f"mooncake-conv-{place + 1:04d}",
                input_tokens=asked[place],
                prefix_blocks=chain,
                block_tokens=CHAT_BLOCK,
                output_tokens=most[place],
                arrival_s=at[place],
                tags=["chat"],
            )
        )
    return items


def _conversations(draw: Draw, num: int) -> tuple[list[int], Floats]:
    """For each request the one it goes on from (-1: none), and a size whose order its length follows."""
    starts, growth = 5800 * exp(1.3 * draw.normals(num)), exp(0.16 * exp(1.4 * draw.normals(num)))
    goes_on, which = draw.units(num) < _GOES_ON, draw.units(num)
    before, size = [-1] * num, starts.copy()
    open_now: list[int] = []
    for place in range(num):
        if goes_on[place] and open_now:
            before[place] = open_now.pop(int(which[place] * len(open_now)))
            size[place] = size[before[place]] * min(float(growth[place]), 20.0)
        open_now.append(place)
        if len(open_now) > _OPEN:
            del open_now[0]
    return before, size


# ServeGen, deepseek-r1: 73 clients of one day; lengths weighted by rate, rounded by the source to four digits.
REASONING_INPUT: Quantiles = ((0, 3), (0.5, 208), (0.9, 2092), (0.95, 6714), (0.99, 23420), (1, 57280))
REASONING_OUTPUT: Quantiles = ((0, 8), (0.5, 792), (0.9, 3432), (0.95, 5701), (0.99, 12610), (1, 32770))
REASONING_RATE, CLIENTS, CLIENT_CV = 16.0, 73, 2.28
_BUSIEST, _SLANT = 0.29, 1.1
"""The busiest client's share of the traffic, and Zipf's exponent of the others'."""
_BURSTY, _STEADY_CV = 0.60, 0.9
"""The share of traffic with a CV above 1, and the CV of the rest."""


def servegen_reasoning(seed: int, num_items: int) -> list[WorkloadItem]:
    """Reasoning with long answers by clients of unequal traffic: a few carry most, and bring the bursts."""
    draw = Draw(seed, "servegen-reasoning")
    weights = exp(-_SLANT * log(np.arange(2, CLIENTS + 1)))
    shares = np.concatenate(([_BUSIEST], weights * ((1 - _BUSIEST) / np.cumsum(weights)[-1])))
    counts = _counts(shares, num_items)
    at, client = merged(_client_times(draw, counts, shares, num_items / REASONING_RATE))
    sizes = draw.normals(CLIENTS), draw.normals(CLIENTS)
    inputs, outputs = (
        tokens_at(table, ranked(0.6 * own[client] + 0.8 * draw.normals(num_items)))
        for table, own in zip((REASONING_INPUT, REASONING_OUTPUT), sizes, strict=True)
    )
    return [
        WorkloadItem(
            id=f"reasoning-{place:05d}",
            input_tokens=asked,
            output_tokens=most,
            arrival_s=when,
            tenant=f"client-{of + 1:02d}",
            tags=["reasoning"],
        )
        for place, (asked, most, when, of) in enumerate(
            zip(inputs.tolist(), outputs.tolist(), at, client.tolist(), strict=True), 1
        )
    ]


def _counts(shares: Floats, num: int) -> list[int]:
    """`num` split by shares, the largest remainders rounded up."""
    exact = shares * num
    counts = np.floor(exact).astype(np.int64)
    for place in np.argsort(counts - exact, kind="stable")[: num - int(counts.sum())]:
        counts[place] += 1
    return [int(count) for count in counts]


def _client_times(draw: Draw, counts: list[int], shares: Floats, span: float) -> list[Floats]:
    """Each client's own gamma renewal process over the span (s), at a phase of its own."""
    streams, bursty = [], 0.0
    high = (CLIENT_CV - (1 - _BURSTY) * _STEADY_CV) / _BURSTY
    for count, share in zip(counts, shares, strict=True):
        cv = high if bursty + share <= _BURSTY else _STEADY_CV
        bursty += float(share) if cv == high else 0.0
        start = draw.unit() * span
        if not count:
            streams.append(np.zeros(0))
            continue
        upto = np.cumsum(gamma(np.array(draw.strata(count)), 1 / (cv * cv)))
        at = upto * (span / upto[-1]) + start  # round the clock, so that no client begins or ends within the span
        streams.append(np.sort(np.where(at >= span, at - span, at)))
    return streams


MAKES: dict[str, Make] = {
    "azure-conv": azure_conv,
    "azure-code": azure_code,
    "mooncake-conv": mooncake_conv,
    "servegen-reasoning": servegen_reasoning,
}
