"""A recipe and a seed make items, the same bytes on every machine, and a card says what they are.

It must not know the inside of a recipe.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from benchlab.errors import UsageError
from benchlab.units import format_number
from benchlab.workload.fit import nearness
from benchlab.workload.inspect import facts
from benchlab.workload.item import WorkloadItem
from benchlab.workload.recipe import Recipe
from benchlab.workload.recipes import RECIPES

_MOST = 10_000_000
_NAMED = 24
"""So many tenants and tags are named on a card."""


def recipe_named(name: str) -> Recipe:
    """The recipe of that name. Raises UsageError with the nearest names."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(name, RECIPES, 1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    known = ", ".join((*RECIPES, "fixed", "custom"))
    raise UsageError(f"no recipe '{name}'", where="workload make", hint=f"{hint}there are: {known}")


def make(recipe: str | Recipe, seed: int = 0, n: int | None = None) -> list[WorkloadItem]:
    """`n` items of a recipe (its own number when None). Raises UsageError for an unknown recipe or an `n` below 1."""
    chosen = recipe if isinstance(recipe, Recipe) else recipe_named(recipe)
    num_items = chosen.default_items if n is None else n
    if not 1 <= num_items <= _MOST:
        raise UsageError(f"{num_items} items", where="-n", hint=f"give 1 to {_MOST:,}")
    return chosen.make(seed, num_items)


def to_bytes(items: Sequence[WorkloadItem]) -> bytes:
    """Items as the bytes of a JSON Lines file."""
    encoder = msgspec.json.Encoder()
    return b"".join(encoder.encode(item) + b"\n" for item in items)


def card(name: str, recipe: Recipe, seed: int, items: Sequence[WorkloadItem]) -> str:
    """The data card of a shipped file, in Markdown."""
    data, told = to_bytes(items), facts(items)
    lines = [
        f"# {name}.jsonl",
        "",
        f"{recipe.about[0].upper()}{recipe.about[1:]}.",
        "",
        "| | |",
        "|---|---|",
        f"| recipe, seed | `{recipe.name}`, {seed} |",
        f"| command | `benchlab workload make {recipe.name} --seed {seed} -n {len(items)} -o workloads/{name}.jsonl` |",
        f"| items, bytes | {len(items):,}, {len(data):,} |",
        f"| sha256 | `{hashlib.sha256(data).hexdigest()}` |",
        f"| shaped on | {recipe.shaped_on} |",
        "| licence | Apache-2.0, made by this project's generator; no text or row of any source |",
        "",
        "| tokens | mean | p50 | p90 | p95 | p99 | max |",
        "|---|---|---|---|---|---|---|",
    ]
    sides = (("input_tokens", "input"), ("input_tokens_estimated", "input (estimate, 4 characters a token)"))
    for key, title in (*sides, ("output_tokens", "output (most)")):
        if (row := told[key]) is not None:
            cells = (format_number(row[column], 4) for column in ("mean", "p50", "p90", "p95", "p99", "max"))
            lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += _card_rest(recipe, items, told)
    return "\n".join(lines) + "\n"


def _card_rest(recipe: Recipe, items: Sequence[WorkloadItem], told: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if (times := told["arrivals"]) is not None:
        span, rate, cv = (format_number(times[key], 4) for key in ("span_s", "rate_rps", "cv"))
        lines += ["", f"Arrivals: span {span} s, {rate} requests/s, CV {cv}."]
    if (prefix := told["prefix"]) is not None:
        lines += ["", f"Token hit ratio with an infinite cache, cold at the start: {prefix['token_hit_ratio']:.3f}."]
    for key in ("tenants", "tags"):
        if told[key]:
            counts = [f"{name} {count}" for name, count in told[key].items()]
            rest = [f"and {len(counts) - _NAMED} others"] if len(counts) > _NAMED else []
            lines += ["", f"{key.capitalize()}: {', '.join([*counts[:_NAMED], *rest])}."]
    lines += _sessions(items, told)
    rows = nearness(recipe, items, told)
    if rows and len(items) < recipe.shown_at:
        lines += ["", f"The published figures show from {recipe.shown_at:,} items on; here are {len(items):,}."]
    if rows:
        lines += ["", "| figure | published | here | off |", "|---|---|---|---|"]
    for row in rows:
        off = "—" if row["off"] is None else f"{row['off']:+.1%}"
        lines.append(
            f"| {row['metric']} | {format_number(row['published'], 4)} | {format_number(row['made'], 4)} | {off} |"
        )
    return lines


def _sessions(items: Sequence[WorkloadItem], told: dict[str, Any]) -> list[str]:
    if told["sessions"] is None:
        return []
    count, per = told["sessions"]["n"], told["sessions"]["items_per_session"]
    waits = sum(item.wait_s is not None for item in items)
    shares = "/".join(format_number(per[share], 4) for share in ("p50", "p90", "max"))
    return ["", f"Sessions: {count:,}, items a session p50/p90/max {shares}, {waits:,} turns that wait."]
