"""The recipes: what each makes, what it was shaped on, and the published figures it is held against.

A recipe is a row of the table RECIPES. Fields of an item that a recipe does not know (a session, an expectation) are
left out, never invented. Chance comes in as a seed; it must not know files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchlab.errors import UsageError
from benchlab.workload.chat import chat_short, qa_checkable
from benchlab.workload.draw import Draw, Quantiles, at, hyper_gap, weibull_gap
from benchlab.workload.item import MAX_TOKENS, WorkloadItem

Make = Callable[[int, int], list[WorkloadItem]]

# Published percentiles (p50, p90, p95, p99, max) of the Azure LLM inference traces of November 2023.
CODE_INPUT: Quantiles = ((0, 12), (0.5, 1469), (0.9, 5188), (0.95, 7303), (0.99, 7436), (1, 7437))
CODE_OUTPUT: Quantiles = ((0, 3), (0.5, 13), (0.9, 55), (0.95, 90), (0.99, 251), (1, 1899))
CONV_INPUT: Quantiles = ((0, 60), (0.5, 1020), (0.9, 2734), (0.95, 4083), (0.99, 4142), (1, 14050))
CONV_OUTPUT: Quantiles = ((0, 12), (0.5, 129), (0.9, 424), (0.95, 451), (0.99, 601), (1, 1000))
_CODE_RATE, _CODE_CV = 2.566, 13.15
_CONV_RATE, _CONV_SHAPE = 5.530, 0.919  # a Weibull of this shape has a CV of 1.09


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to make items. `shaped_on`: words for the data card. `targets`: metric to published figure."""

    name: str
    make: Make
    about: str
    shaped_on: str
    default_items: int = 200
    targets: dict[str, float] = field(default_factory=dict)


def _azure(name: str, inputs: Quantiles, outputs: Quantiles, gap: Callable[[Draw, float], float], rate: float) -> Make:
    def make(seed: int, num_items: int) -> list[WorkloadItem]:
        draw = Draw(seed, name)
        asked, answered, gaps = draw.strata(num_items), draw.strata(num_items), draw.strata(num_items)
        items, now = [], 0.0
        for place in range(num_items):
            items.append(
                WorkloadItem(
                    id=f"{name}-{place + 1:04d}",
                    input_tokens=at(inputs, asked[place]),
                    output_tokens=at(outputs, answered[place]),
                    arrival_s=round(now, 3),
                    tags=[name.split("-")[1]],
                )
            )
            now += gap(draw, gaps[place]) / rate
        return items

    return make


def _support(seed: int, num_items: int) -> list[WorkloadItem]:
    """2,000 tokens in, of which 1,200 (75 blocks of 16) are the same for all, 300 out."""
    shared = list(range(75))
    return [
        WorkloadItem(
            id=f"support-s{seed}-{place + 1:04d}",
            input_tokens=2000,
            prefix_blocks=shared,
            block_tokens=16,
            output_tokens=300,
            tenant="support",
            tags=["support"],
        )
        for place in range(num_items)
    ]


def fixed(isl: int, osl: int) -> Recipe:
    """Every request `isl` tokens in and `osl` out. Raises UsageError for a length below 1."""
    for flag, length in (("--isl", isl), ("--osl", osl)):
        if not 1 <= length <= MAX_TOKENS:
            raise UsageError(f"expected a length >= 1, got {length}", where=flag, hint="give tokens, for example 512")

    def make(seed: int, num_items: int) -> list[WorkloadItem]:
        return [
            WorkloadItem(id=f"fixed-s{seed}-{place + 1:04d}", input_tokens=isl, output_tokens=osl)
            for place in range(num_items)
        ]

    targets = {"input.p50": float(isl), "output.p50": float(osl)}
    return Recipe("fixed", make, f"every request {isl} tokens in, {osl} out", "nothing: one point", 200, targets)


def _published(inputs: Quantiles, outputs: Quantiles, rate: float, cv: float) -> dict[str, float]:
    figures = {"rate_rps": rate, "cv": cv}
    for side, table in (("input", inputs), ("output", outputs)):
        figures |= {f"{side}.p{round(share * 100)}": value for share, value in table if share in (0.5, 0.9, 0.99)}
    return figures


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "chat-short",
            chat_short,
            "short chat prompts of a few tenants with shared system messages, fit for a 135M model on one core",
            "the shape of production chat (long-tailed lengths, shared heads, a few tenants carry most), scaled down; "
            "no published trace is this short",
        ),
        Recipe(
            "azure-conv",
            _azure("azure-conv", CONV_INPUT, CONV_OUTPUT, lambda _, u: weibull_gap(u, _CONV_SHAPE), _CONV_RATE),
            "chat at a steady rate: Azure's conversation trace of 2023",
            "lengths, rate and CV of the Azure LLM inference trace 2023 (conversation), 19,366 requests, CC BY 4.0",
            500,
            _published(CONV_INPUT, CONV_OUTPUT, _CONV_RATE, 1.09),
        ),
        Recipe(
            "azure-code",
            _azure("azure-code", CODE_INPUT, CODE_OUTPUT, lambda d, u: hyper_gap(u, d.unit(), _CODE_CV), _CODE_RATE),
            "bursty code completion with short answers: Azure's code trace of 2023",
            "lengths, rate and CV of the Azure LLM inference trace 2023 (code), 8,819 requests, CC BY 4.0; "
            "a CV of 13 shows only in thousands of rows",
            2000,
            _published(CODE_INPUT, CODE_OUTPUT, _CODE_RATE, _CODE_CV),
        ),
        Recipe(
            "support-assistant",
            _support,
            "a support assistant: 2,000-token prompts of which 1,200 are shared, 300 tokens out",
            "a stated design case (2,000 in, 1,200 shared, 300 out), not a trace",
            200,
            {"input.p50": 2000, "output.p50": 300},
        ),
        Recipe(
            "qa-checkable",
            qa_checkable,
            "arithmetic and extraction prompts with the expected answer",
            "nothing measured: tasks whose answers can be checked",
        ),
    )
}
