"""The workloads that ship: each a row (recipe, seed, number), written with its card, the index and the schema.

`python -m benchlab.workload.ship` writes them anew; a test compares every byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchlab.shipped import shipped_workloads
from benchlab.workload.make import card, make, recipe_named, to_bytes
from benchlab.workload.schema import SCHEMA_FILE, item_schema


@dataclass(frozen=True, slots=True)
class Shipped:
    """One file: its name without `.jsonl`, and how it is made."""

    name: str
    recipe: str
    seed: int
    num_items: int


SHIPPED = (
    Shipped("agent-platform", "agent-platform", 0, 600),
    Shipped("azure-code", "azure-code", 0, 1000),
    Shipped("azure-conv", "azure-conv", 0, 500),
    Shipped("chat-short", "chat-short", 0, 600),
    Shipped("claude-code-agent", "claude-code-agent", 0, 150),
    Shipped("matrix", "matrix", 0, 144),
    Shipped("mooncake-conv", "mooncake-conv", 0, 500),
    Shipped("needle", "needle", 0, 15),
    Shipped("passage-qa", "passage-qa", 0, 200),
    Shipped("qa-checkable", "qa-checkable", 0, 200),
    Shipped("reasoning", "reasoning", 0, 200),
    Shipped("servegen-reasoning", "servegen-reasoning", 0, 1000),
    Shipped("support-assistant", "support-assistant", 0, 200),
    Shipped("tool-calls", "tool-calls", 0, 150),
)

_INDEX = """# Workloads

JSON Lines, one item a line; [item.schema.json](item.schema.json) is the schema, generated from the type. All files
are made by this project's own generators (a recipe and a seed give the same bytes on every machine), and each has a
data card that says how, on which published figures it was shaped, and its sha256. None holds a row or a sentence of
another data set. Long prompts stand as `input_tokens` and prefix blocks; their text is made when a run starts, and
equal block ids share their text to the letter.

Where an answer can be checked, `expect` holds it under one key: `number` (the number alone), `exact` (the text, case
and end punctuation aside) or `call` (name and arguments of the one tool call).

Name one by its name: `-d chat-short`. Your own file works the same way: `-d my.jsonl`. More of the same, or another
seed: `benchlab workload make chat-short --seed 7 -n 5000 -o my.jsonl`; by figures of your own: the recipe `custom`
(`benchlab workload make --help`). `matrix-text` (8 MB) is made, not shipped.

| file | items | what it is | card |
|---|---|---|---|
"""


def shipped_files() -> dict[str, bytes]:
    """File name -> content, of everything in the folder of workloads."""
    files: dict[str, bytes] = {SCHEMA_FILE: item_schema().encode()}
    index = _INDEX
    for one in SHIPPED:
        recipe = recipe_named(one.recipe)
        items = make(recipe, one.seed, one.num_items)
        files[f"{one.name}.jsonl"] = to_bytes(items)
        files[f"{one.name}.card.md"] = card(one.name, recipe, one.seed, items).encode()
        index += f"| [{one.name}]({one.name}.jsonl) | {len(items)} | {recipe.about} | [card]({one.name}.card.md) |\n"
    files["README.md"] = index.encode()
    return files


def write_shipped(folder: Path | None = None) -> list[Path]:
    """Write them all (into the checkout's folder when None) and return the paths."""
    place = folder or shipped_workloads()
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in shipped_files().items():
        (place / name).write_bytes(content)
        written.append(place / name)
    return written


if __name__ == "__main__":
    write_shipped()
