"""Recipes of assistants and agents: coding sessions with tool waits, an agent platform's mix, a support assistant.

The one idea: an agent's prompt grows turn by turn and is nearly all shared with the turn before; what it waits for
between turns is a tool or a person. It must not know how a session is sent.
"""

from __future__ import annotations

import numpy as np

from benchlab.workload.draw import Draw, Quantiles, ranked, tokens_at, values_at
from benchlab.workload.draw_math import exp
from benchlab.workload.fit_arrivals import poisson
from benchlab.workload.item import WorkloadItem
from benchlab.workload.recipe import Make

# Claude Code sessions (kv-cache-tester, 49,334 requests of 710 conversations).
AGENT_INPUT: Quantiles = ((0, 4000), (0.5, 103700), (0.9, 233600), (0.95, 300700), (0.99, 498500), (1, 894400))
AGENT_OUTPUT: Quantiles = ((0, 4), (0.5, 216), (0.9, 898), (0.95, 1554), (0.99, 3686), (1, 18200))
AGENT_TURNS: Quantiles = ((0, 2), (0.5, 45.5), (0.9, 157), (0.95, 233), (0.99, 341), (1, 561))
AGENT_NEW: Quantiles = ((0, 20), (0.5, 700), (0.9, 4400), (0.95, 8500), (0.99, 40000), (1, 300000))
AGENT_WAIT_S: Quantiles = ((0, 0.5), (0.5, 10), (0.9, 162), (0.95, 449), (1, 3600))
AGENT_BLOCK, AGENT_HITS, AGENT_WAIT_CAP_S = 512, 0.963, 60.0
_SESSION_RATE = 0.05
"""Sessions begin at this rate (1/s): the traces have no times across conversations, so it is this recipe's choice."""
_CUT_BACK, _KEPT = 0.012, 0.12
"""How often a context is cut back (compacted), and the share of it that stays, from its start."""


def claude_code_agent(seed: int, num_items: int) -> list[WorkloadItem]:
    """Coding agents: long growing contexts, 96% of each prompt seen before, a tool or a person between turns."""
    draw = Draw(seed, "claude-code-agent")
    session, turn = _sessions(draw, num_items)
    size, kept = _contexts(draw, turn)
    asked = tokens_at(AGENT_INPUT, ranked(np.array(size))).tolist()
    most = tokens_at(AGENT_OUTPUT, draw.strata(num_items)).tolist()
    waits = np.minimum(values_at(AGENT_WAIT_S, draw.strata(num_items)), AGENT_WAIT_CAP_S).tolist()
    begins = poisson(draw, session[-1] + 1, _SESSION_RATE)
    next_id, chain, items = 0, list[int](), list[WorkloadItem]()
    for place in range(num_items):
        num_blocks = asked[place] // AGENT_BLOCK  # as in the traces, a last partial block has no id
        first = turn[place] == 1
        # What stays of the context: all full blocks of the turn before, or of a cut one its start.
        shared = 0 if first else min(num_blocks, int(len(chain) * kept[place]))
        fresh = num_blocks - shared
        chain = [*chain[:shared], *range(next_id, next_id + fresh)]
        next_id += fresh
        items.append(
            WorkloadItem(
                id=f"agent-{session[place] + 1:04d}-{turn[place]:03d}",
                input_tokens=asked[place],
                prefix_blocks=chain,
                block_tokens=AGENT_BLOCK,
                output_tokens=most[place],
                arrival_s=begins[session[place]] if first else None,
                wait_s=None if first else round(waits[place], 1),
                session=f"agent-{session[place] + 1:04d}",
                turn=turn[place],
                tags=["agent"],
            )
        )
    return items


def _sessions(draw: Draw, num: int) -> tuple[list[int], list[int]]:
    """The session (from 0) and the turn (from 1) of each item; the last session ends where the items do."""
    session: list[int] = []
    turn: list[int] = []
    lengths: list[int] = []
    while len(session) < num:
        if not lengths:
            lengths = tokens_at(AGENT_TURNS, draw.strata(40)).tolist()
        number, turns = (session[-1] + 1 if session else 0), min(lengths.pop(), num - len(session))
        session += [number] * turns
        turn += range(1, turns + 1)
    return session, turn


def _contexts(draw: Draw, turn: list[int]) -> tuple[list[float], list[float]]:
    """A size whose order the prompt lengths follow, and the share of the turn before that stays."""
    num = len(turn)
    new = values_at(AGENT_NEW, draw.strata(num)).tolist()
    starts = (19000 * exp(0.35 * draw.normals(num))).tolist()
    cuts = draw.units(num).tolist()
    size, kept, now = [0.0] * num, [1.0] * num, 0.0
    for place in range(num):
        if turn[place] == 1:
            now = starts[place]
        else:
            if cuts[place] < _CUT_BACK:
                kept[place] = _KEPT
                now *= _KEPT
            now += new[place]
        size[place] = now
    return size, kept


# Seed figures of an agent platform: peak rate, then class, share, input, shared input and output tokens.
PLATFORM_RATE, PLATFORM_BLOCK = 12.0, 512
PLATFORM = (
    ("tool-call", 0.60, 1024, 0, 80),
    ("document-question", 0.30, 16640, 16384, 500),
    ("long-form", 0.10, 2048, 0, 2048),
)
_DOCUMENTS, _SPREAD = 40, 0.25
"""Documents are asked about by Zipf's law; lengths beside a shared part are lognormal about their stated value."""


def agent_platform(seed: int, num_items: int) -> list[WorkloadItem]:
    """60% tool calls (1K in, 80 out), 30% questions on a shared 16K document (500 out), 10% long-form (2K in, 2K out),
    at the stated peak of 12 requests/s."""
    draw = Draw(seed, "agent-platform")
    at = poisson(draw, num_items, PLATFORM_RATE)
    shares = draw.strata(num_items)
    document = draw.zipf(num_items, _DOCUMENTS, 1.0).tolist()
    scores = exp(_SPREAD * draw.normals(num_items)).tolist(), exp(_SPREAD * draw.normals(num_items)).tolist()
    items = []
    for place in range(num_items):
        name, _, tokens, shared, most = PLATFORM[sum(shares[place] >= upto for upto in (0.6, 0.9))]
        num_blocks = shared // PLATFORM_BLOCK
        start = document[place] * num_blocks
        items.append(
            WorkloadItem(
                id=f"platform-{place + 1:05d}",
                input_tokens=shared + max(1, round((tokens - shared) * scores[0][place])),
                prefix_blocks=list(range(start, start + num_blocks)) if shared else None,
                block_tokens=PLATFORM_BLOCK if shared else None,
                output_tokens=max(1, round(most * scores[1][place])),
                arrival_s=at[place],
                tags=[name],
            )
        )
    return items


def support_assistant(seed: int, num_items: int) -> list[WorkloadItem]:
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


MAKES: dict[str, Make] = {
    "claude-code-agent": claude_code_agent,
    "agent-platform": agent_platform,
    "support-assistant": support_assistant,
}
