"""In words: what a run supports, claim by claim, what it costs, and how much longer it would have to be.

The one idea: short lines for a terminal, made of the summary alone; what is not there gives no line. It must not judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from benchlab.report.view import Summary, mapping, number, rule_word
from benchlab.units import format_number


def claims_line(summary: Summary) -> str:
    """'latency with reservations (window) · capacity supported · ...'; '' for a summary without claims."""
    parts = []
    for claim, entry in mapping(summary.get("claims")).items():
        found = mapping(entry)
        against = [str(mapping(rule).get("name")) for rule in found.get("rules") or []]
        why = ", ".join(dict.fromkeys(re.sub(r" (ms|s)$", "", name.replace("_", " ")) for name in against))
        measured = found.get("state") != "not measured"
        parts.append(f"{claim} {found.get('state')}" + (f" ({why})" if why and measured else ""))
    return " · ".join(parts)


def claim_hints(summary: Summary) -> list[str]:
    """What would help, each thing once, in the order of the claims."""
    hints: dict[str, None] = {}
    for entry in mapping(summary.get("claims")).values():
        for raw in mapping(entry).get("rules") or []:
            rule = mapping(raw)
            if rule.get("hint"):
                stage = "" if rule.get("stage") is None else f"stage {rule['stage']}, "
                hints[f"{stage}{rule_word(str(rule.get('name')))}: {rule['hint']}"] = None
    return list(hints)


def stage_entry(summary: Summary, index: int) -> Mapping[str, Any]:
    """The stage of this number as the summary has it."""
    return next((raw for raw in map(mapping, summary.get("stages") or []) if raw.get("stage") == index), {})


def proof_lines(summary: Summary, index: int) -> list[str]:
    """What the stage proves of each objective on a percentile, or how much longer it would have to be."""
    return [
        str(mapping(raw).get("say"))
        for raw in stage_entry(summary, index).get("proofs") or []
        if mapping(raw).get("say")
    ]


def _dollars(value: float) -> str:
    return f"${value:.2f}" if value >= 1 else f"${value:.3g}"


_COSTS = (
    ("per_1k_requests", "1,000 requests"),
    ("per_1m_input_tokens", "1M input tokens"),
    ("per_1m_output_tokens", "1M output tokens"),
    ("per_1m_tokens_blended", "1M tokens, blended"),
    ("per_1m_output_tokens_all_cost", "1M output tokens bearing all of it"),
    ("per_1k_good_requests", "1,000 good requests"),
    ("per_successful_task", "successful task"),
)
_ENERGIES = (("joules_per_output_token", "output token"), ("joules_per_good_token", "good token"))


def economics_lines(summary: Summary, index: int) -> list[str]:
    """A line of costs and one of energy, each only where something is known."""
    found = mapping(stage_entry(summary, index).get("economics"))
    lines = []
    costs = [(number(found.get(key)), words) for key, words in _COSTS]
    told = [f"{_dollars(value)} / {words}" for value, words in costs if value is not None]
    if told:
        used = number(found.get("utilisation")) or 1.0
        price = f"${format_number(number(found.get('price_per_hour')))} an hour"
        at = "" if used == 1 else f", {used:.0%} used"
        lines.append("cost       " + " · ".join(told) + f" ({price}{at})")
    joules = [(number(found.get(key)), words) for key, words in _ENERGIES]
    spent = [f"{format_number(value)} J / {words}" for value, words in joules if value is not None]
    idle = number(found.get("idle_share"))
    if spent:
        least = "at least " if found.get("energy_is_lower_bound") else ""
        rest = "" if idle is None else f" · {idle:.0%} of it is what the devices use at rest"
        lines.append(f"energy     {least}" + " · ".join(spent) + rest)
    return lines
