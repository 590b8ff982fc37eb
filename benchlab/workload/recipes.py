"""The recipes: what each makes, what it was shaped on, and the published figures it is held against.

A recipe is a row of the table RECIPES. Fields of an item that a recipe does not know (a session, an expectation) are
left out, never invented. Chance comes in as a seed; it must not know files.
"""

from __future__ import annotations

from benchlab.errors import UsageError
from benchlab.workload import recipes_agents as agents
from benchlab.workload import recipes_tasks as tasks
from benchlab.workload import recipes_traces as traces
from benchlab.workload.chat import chat_short, qa_checkable
from benchlab.workload.item import MAX_TOKENS, WorkloadItem
from benchlab.workload.recipe import Make, Recipe, length_targets

_MAKES: dict[str, Make] = {
    "chat-short": chat_short,
    "qa-checkable": qa_checkable,
    **traces.MAKES,
    **agents.MAKES,
    **tasks.MAKES,
}
_TASKS = "nothing measured: tasks whose answers can be checked"


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


def _recipe(
    name: str, about: str, shaped_on: str, items: int = 200, targets: dict[str, float] | None = None, shown_at: int = 0
) -> Recipe:
    return Recipe(name, _MAKES[name], about, shaped_on, items, targets or {}, shown_at)


_PLATFORM = {"rate_rps": agents.PLATFORM_RATE} | {
    f"tag:{name}.{key}": value
    for name, share, tokens, _, most in agents.PLATFORM
    for key, value in (("share", share), ("input.p50", float(tokens)), ("output.p50", float(most)))
}

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _recipe(
            "chat-short",
            "short chat prompts of a few tenants with shared system messages, fit for a 135M model on one core",
            "the shape of production chat (long-tailed lengths, shared heads, a few tenants carry most), scaled down; "
            "no published trace is this short",
        ),
        _recipe(
            "azure-conv",
            "chat at a steady rate: Azure's conversation trace of 2023",
            "lengths, rate and CV of the Azure LLM inference trace 2023 (conversation), 19,366 requests, CC BY 4.0",
            500,
            {"rate_rps": traces.CONV_RATE, "cv": 1.09} | length_targets(traces.CONV_INPUT, traces.CONV_OUTPUT),
        ),
        _recipe(
            "azure-code",
            "bursty code completion with short answers: Azure's code trace of 2023",
            "lengths, rate, CV and dispersion of counts of the Azure LLM inference trace 2023 (code), 8,819 requests, "
            "CC BY 4.0",
            2000,
            {"rate_rps": traces.CODE_RATE, "cv": traces.CODE_CV, "idc.1s": 13.2, "idc.10s": 71.6, "idc.60s": 164.0}
            | length_targets(traces.CODE_INPUT, traces.CODE_OUTPUT),
            20_000,
        ),
        _recipe(
            "mooncake-conv",
            "long-context chat that goes on with earlier conversations: Mooncake's conversation trace",
            "lengths, rate, token hit ratio and dispersion by the minute of Mooncake's conversation trace (FAST 2025), "
            "12,031 requests, Apache-2.0; its CV of 3.03 and its dispersion by the second come from its clock's "
            "3-second ticks and are left out: here arrivals are spread",
            1000,
            {"rate_rps": traces.CHAT_RATE, "idc.60s": 2.95, "hit_ratio": traces.CHAT_HITS}
            | length_targets(traces.CHAT_INPUT, traces.CHAT_OUTPUT),
            10_000,
        ),
        _recipe(
            "servegen-reasoning",
            "reasoning with long answers by 73 unequal, bursty clients: ServeGen's deepseek-r1",
            "lengths, rate, shares of the busiest clients and their traffic-weighted CV of ServeGen's deepseek-r1 "
            "(arXiv 2505.09999), Apache-2.0",
            1000,
            {
                "rate_rps": traces.REASONING_RATE,
                "tenants.top1": 0.29,
                "tenants.top10": 0.68,
                "tenants.cv": traces.CLIENT_CV,
            }
            | length_targets(traces.REASONING_INPUT, traces.REASONING_OUTPUT),
            10_000,
        ),
        _recipe(
            "claude-code-agent",
            "coding agents: sessions of growing contexts with tool waits, nearly all of each prompt seen before",
            "lengths, items a session, waits and token hit ratio of the kv-cache-tester's Claude Code traces, 49,334 "
            "requests, Apache-2.0, lengths rounded by the source to four digits; waits are cut at 60 s; when sessions "
            "begin (one in 20 s) is this recipe's choice, for the traces do not say; sub-agents are left out",
            1000,
            {"hit_ratio": agents.AGENT_HITS, "turns.p50": 45.5, "turns.p90": 157.0, "wait.p50": 10.0}
            | length_targets(agents.AGENT_INPUT, agents.AGENT_OUTPUT),
            10_000,
        ),
        _recipe(
            "agent-platform",
            "an agent platform: 60% tool calls, 30% questions on shared 16K documents, 10% long-form",
            "a stated design case (1K/80, 16K shared/500, 2K/2K tokens at 12 requests/s), not a trace; lengths spread "
            "by a quarter about these figures, and 40 documents by Zipf's law, are this recipe's choice",
            600,
            _PLATFORM,
        ),
        _recipe(
            "support-assistant",
            "a support assistant: 2,000-token prompts of which 1,200 are shared, 300 tokens out",
            "a stated design case (2,000 in, 1,200 shared, 300 out), not a trace",
            200,
            {"input.p50": 2000, "output.p50": 300},
        ),
        _recipe("qa-checkable", "arithmetic and extraction prompts with the expected answer", _TASKS),
        _recipe("tool-calls", "requests that need one call of one of three tools, with the expected call", _TASKS),
        _recipe("passage-qa", "questions on a short passage, half of them in two steps, with the answer", _TASKS),
        _recipe("reasoning", "arithmetic in several steps and what a function returns, with the number", _TASKS),
        _recipe("needle", "a sentence to find at five depths of 1K, 2K and 4K tokens", _TASKS, 15),
        _recipe(
            "matrix",
            "the workload matrix: 128/2K/8K/32K in, 32/256/1K out, 0/50/90% shared, four tasks, one item a cell",
            "stated strata, not a trace; tasks are tags here, matrix-text writes the same cells with text and answers",
            len(tasks.CELLS),
        ),
        _recipe(
            "matrix-text",
            "the cells of matrix with their text and expected answers (8 MB)",
            f"stated strata, not a trace; {_TASKS[len('nothing measured: ') :]}",
            len(tasks.CELLS),
        ),
    )
}
