"""Recipes of tasks with checkable answers, and the matrix of lengths, reuse and tasks.

The one idea: text where the task needs it, lengths and prefix blocks where a file of text would be too long; the same
cells either way. It must not know how answers are graded.
"""

from __future__ import annotations

from collections.abc import Callable

from benchlab.workload.draw import Draw
from benchlab.workload.item import WorkloadItem
from benchlab.workload.recipe import Make
from benchlab.workload.tasks import FAMILIES, Task, at_length, fill, needle, passage, reasoning, tool_call
from benchlab.workload.tokens import CHARS_PER_TOKEN

# The strata of the workload matrix: input tokens, output tokens, share of the input that is shared, task.
INPUTS, OUTPUTS, REUSE = (128, 2048, 8192, 32768), (32, 256, 1024), (0, 50, 90)
MATRIX_TASKS = ("extraction", "tool-call", "qa", "reasoning")
CELLS = tuple((i, o, r, t) for i in INPUTS for o in OUTPUTS for r in REUSE for t in MATRIX_TASKS)
_DEPTHS, _NEEDLE_TOKENS = (0.1, 0.3, 0.5, 0.7, 0.9), (1024, 2048, 4096)


def matrix(seed: int, num_items: int) -> list[WorkloadItem]:
    """Each of the 144 cells in turn, in a drawn order: its lengths, and its shared part as prefix blocks.

    Cells of one input length and one share of reuse have the same shared part, whatever their output and task.
    """
    items = []
    for place, (asked, most, reuse, task) in enumerate(_cells(seed, num_items)):
        size = max(16, asked // 128)
        num_blocks = asked * reuse // 100 // size
        start = 1000 * (INPUTS.index(asked) * len(REUSE) + REUSE.index(reuse))
        items.append(
            WorkloadItem(
                id=f"matrix-s{seed}-{place + 1:05d}",
                input_tokens=asked,
                prefix_blocks=list(range(start, start + num_blocks)) if num_blocks else None,
                block_tokens=size if num_blocks else None,
                output_tokens=most,
                tags=_cell_tags(asked, most, reuse, task),
            )
        )
    return items


def matrix_text(seed: int, num_items: int) -> list[WorkloadItem]:
    """The cells of `matrix` with text and answers, 8 MB in 144 items; four characters count as a token."""
    heads = {
        (asked, reuse): " ".join(fill(Draw(seed, f"head {asked} {reuse}"), int(asked * reuse / 100 * CHARS_PER_TOKEN)))
        for asked in INPUTS
        for reuse in REUSE
    }
    draw = Draw(seed, "matrix-text")
    items = []
    for place, (asked, most, reuse, name) in enumerate(_cells(seed, num_items)):
        task = FAMILIES[name](draw)
        text = at_length(draw, task, asked, 0.5, heads[asked, reuse])
        items.append(_item(f"matrix-s{seed}-{place + 1:05d}", task, text, _cell_tags(asked, most, reuse, name), most))
    return items


def _cells(seed: int, num_items: int) -> list[tuple[int, int, int, str]]:
    draw = Draw(seed, "matrix")
    cells: list[tuple[int, int, int, str]] = []
    while len(cells) < num_items:
        cells += draw.shuffled(list(CELLS))
    return cells[:num_items]


def _cell_tags(asked: int, most: int, reuse: int, task: str) -> list[str]:
    return [f"in-{asked}", f"out-{most}", f"reuse-{reuse}", task]


def _item(name: str, task: Task, text: str, tags: list[str], most: int | None = None) -> WorkloadItem:
    return WorkloadItem(
        id=name,
        messages=[{"role": "user", "content": text}],
        output_tokens=most or task.output_tokens,
        sampling={"temperature": 0},
        tools=task.tools,
        expect=task.expect,
        tags=tags,
    )


def _of(name: str, family: Callable[[Draw], Task], context: int = 0) -> Make:
    def make(seed: int, num_items: int) -> list[WorkloadItem]:
        draw = Draw(seed, name)
        seen: set[str] = set()
        items = []
        for place in range(num_items):
            task = family(draw)
            text = at_length(draw, task, context)
            tries = 0
            while text in seen:  # no prompt twice, or a cache would answer for it
                tries += 1
                task = family(draw)
                text = at_length(draw, task, context + 20 * (tries // 20))
            seen.add(text)
            items.append(_item(f"{name}-{place + 1:04d}", task, text, [task.name]))
        return items

    return make


def needles(seed: int, num_items: int) -> list[WorkloadItem]:
    """A sentence at five depths of contexts of 1K, 2K and 4K tokens (estimated), in turn."""
    draw = Draw(seed, "needle")
    items = []
    for place in range(num_items):
        depth, tokens = _DEPTHS[place % 5], _NEEDLE_TOKENS[place // 5 % 3]
        task = needle(draw)
        tags = ["needle", f"in-{tokens}", f"depth-{round(depth * 100)}"]
        items.append(_item(f"needle-{place + 1:04d}", task, at_length(draw, task, tokens, depth), tags))
    return items


MAKES: dict[str, Make] = {
    "matrix": matrix,
    "matrix-text": matrix_text,
    "tool-calls": _of("tool-calls", tool_call),
    "passage-qa": _of("passage-qa", passage, 160),
    "reasoning": _of("reasoning", reasoning),
    "needle": needles,
}
