"""`benchlab workload make`: a recipe and a seed to a file, and how near it comes to the figures it was fitted on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from benchlab.workload.item import WorkloadItem
    from benchlab.workload.recipe import Recipe

_LENGTHS = (
    "N, or uniform:A:B, normal:MEAN:SD, lognormal:MEDIAN:SIGMA, gamma:MEAN:CV, quantiles:S=N,..., empirical:FILE."
)


def make(
    recipe: Annotated[str, typer.Argument(help="Recipe name; a wrong one lists them; custom takes the figures below.")],
    seed: Annotated[int, typer.Option("--seed", help="The same recipe and seed give the same bytes.")] = 0,
    number: Annotated[int | None, typer.Option("-n", min=1, max=5_000_000, help="So many items.")] = None,
    isl: Annotated[str | None, typer.Option("--isl", help=f"Input tokens, for fixed and custom: {_LENGTHS}")] = None,
    osl: Annotated[str | None, typer.Option("--osl", help="Output tokens, likewise.")] = None,
    correlation: Annotated[float | None, typer.Option("--correlation", help="Of the two, -1 to 1.")] = None,
    reuse: Annotated[float | None, typer.Option("--reuse", help="Share of a prompt that is a shared prefix.")] = None,
    tree: Annotated[str | None, typer.Option("--prefix-tree", help="Prefixes a level, for example 1x4x16.")] = None,
    zipf: Annotated[float | None, typer.Option("--zipf", help="Slant of their popularity (default: 1).")] = None,
    turns: Annotated[str | None, typer.Option("--turns", help="Items a session, as --isl; each adds --isl.")] = None,
    wait_ms: Annotated[str | None, typer.Option("--wait-ms", help="Pause before a later turn, as --isl.")] = None,
    tenants: Annotated[int | None, typer.Option("--tenants", help="So many tenants, by Zipf's law.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Arrivals a second (default: no times).")] = None,
    cv: Annotated[float | None, typer.Option("--cv", help="CV of the gaps (default: 1, Poisson).")] = None,
    block: Annotated[int | None, typer.Option("--block-tokens", help="Tokens of a prefix block (16).")] = None,
    text: Annotated[bool, typer.Option("--text", help="Write the prompts' text instead of their lengths.")] = False,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="With --text, exact: tokenizer.json, its folder, or a GGUF file.")
    ] = None,
    api: Annotated[
        str, typer.Option("--api", help="With --tokenizer: exact after the template of chat, or for completions.")
    ] = "chat",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write (default: stdout).")] = None,
) -> int:
    """Write a synthetic workload: a recipe and a seed."""
    from benchlab.errors import StorageError, UsageError
    from benchlab.workload.make import make as make_items
    from benchlab.workload.make import to_bytes

    if out is not None and out.exists():
        raise UsageError("exists, and nothing is ever overwritten", where=str(out), hint="give another -o/--out")
    figures = {
        "--correlation": correlation,
        "--reuse": reuse,
        "--prefix-tree": tree,
        "--zipf": zipf,
        "--turns": turns,
        "--wait-ms": wait_ms,
        "--tenants": tenants,
        "--rate": rate,
        "--cv": cv,
        "--block-tokens": block,
    }
    chosen = _recipe(recipe, isl, osl, {flag: value for flag, value in figures.items() if value is not None})
    items = make_items(chosen, seed, number)
    notes = _nearness(chosen, items)
    if text:
        items, note = _with_text(items, f"{chosen.name}:{seed}", tokenizer, api)
        notes.append(note)
    elif tokenizer is not None:
        raise UsageError("lengths need no tokenizer", where="--tokenizer", hint="add --text, or leave it out")
    data = to_bytes(items)
    if out is None:
        sys.stdout.buffer.write(data)
    else:
        try:
            out.write_bytes(data)
        except OSError as error:
            raise StorageError(
                f"cannot be written: {error.strerror}", where=str(out), hint="name a file in a folder that is there"
            ) from error
        notes.append(f"wrote {out}: {len(items):,} items, {len(data):,} bytes")
    print("\n".join(notes), file=sys.stderr)
    return 0


def _recipe(name: str, isl: str | None, osl: str | None, figures: dict[str, Any]) -> Recipe:
    from benchlab.errors import UsageError
    from benchlab.workload.fit_lengths import parse_lengths
    from benchlab.workload.make import recipe_named
    from benchlab.workload.recipes import fixed
    from benchlab.workload.recipes_custom import Custom, custom, parse_tree

    if figures and name != "custom":
        flag = next(iter(figures))
        raise UsageError(f"the recipe {name} has its own figures", where=flag, hint="only the recipe custom takes it")
    if name not in ("fixed", "custom"):
        known = recipe_named(name)
        if isl is not None or osl is not None:
            raise UsageError(
                f"the recipe {name} has its own lengths", where="--isl, --osl", hint="only fixed and custom take them"
            )
        return known
    if isl is None or osl is None:
        raise UsageError(f"the recipe {name} needs two lengths", where="--isl, --osl", hint="write --isl 512 --osl 128")
    inputs, outputs = parse_lengths(isl, where="--isl"), parse_lengths(osl, where="--osl")
    if name == "fixed":
        if inputs.fixed is None or outputs.fixed is None:
            raise UsageError("the recipe fixed takes numbers", where="--isl, --osl", hint="use the recipe custom")
        return fixed(inputs.fixed, outputs.fixed)
    names = {
        "--correlation": "correlation",
        "--reuse": "reuse",
        "--zipf": "slant",
        "--tenants": "tenants",
        "--rate": "rate",
        "--cv": "cv",
        "--block-tokens": "block",
    }
    given: dict[str, Any] = {names[flag]: value for flag, value in figures.items() if flag in names}
    if "--prefix-tree" in figures:
        given["tree"] = parse_tree(figures["--prefix-tree"])
    for flag, field in (("--turns", "turns"), ("--wait-ms", "wait_ms")):
        if flag in figures:
            given[field] = parse_lengths(figures[flag], where=flag)
    return custom(Custom(inputs, outputs, **given))


def _nearness(recipe: Recipe, items: list[WorkloadItem]) -> list[str]:
    from benchlab.workload.fit import as_lines, nearness

    lines = as_lines(nearness(recipe, items), "asked" if recipe.name in ("fixed", "custom") else "published")
    if lines and len(items) < recipe.shown_at:
        lines.append(f"the published figures show from {recipe.shown_at:,} items on; here are {len(items):,}")
    return lines


def _with_text(items: list[WorkloadItem], key: str, tokenizer: str | None, api: str) -> tuple[list[WorkloadItem], str]:
    from benchlab.errors import UsageError
    from benchlab.workload.text import make_texts
    from benchlab.workload.tokens import counter_named

    if api not in ("chat", "completions"):
        raise UsageError(f"no API '{api[:40]}' here", where="--api", hint="use chat or completions")
    counter = None if tokenizer is None else counter_named(tokenizer)
    if counter is None or not counter.exact:
        made = make_texts(items, key=key, count=counter)
        return made.items, made.note()
    whole = counter.as_sent(api)
    made = make_texts(items, key=key, count=counter, whole=whole)
    missing = "" if whole is not None else "; it has no chat template, so the text alone is counted"
    return made.items, f"{made.note()} ({counter.source}{missing})"
