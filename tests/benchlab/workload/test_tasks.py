"""Tasks: the answer is in the prompt or follows from it, checked by other means than those that made it."""

from __future__ import annotations

import json
import re

import pytest

from benchlab.workload.draw import Draw
from benchlab.workload.make import make
from benchlab.workload.recipes_tasks import CELLS
from benchlab.workload.tasks import FAMILIES, at_length, fill
from benchlab.workload.tasks_reason import code_question, sum_question


def prompt(item: object) -> str:
    text = item.messages[0]["content"]  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("seed", range(3))
def test_code_returns_what_is_expected(seed: int) -> None:
    draw = Draw(seed, "code")
    for _ in range(40):
        _, question, answer = code_question(draw, "Ada")
        code, call = question.split("\n\n")[1], re.findall(r"f\(\d+\)", question)[0]
        space: dict[str, object] = {}
        exec(code, space)
        assert eval(call, space) == answer
        assert isinstance(answer, int)


def test_sums_come_out_as_the_words_say() -> None:
    draw = Draw(0, "sums")
    for _ in range(100):
        _, text, answer = sum_question(draw, "Ada")
        start, days, each = (int(number) for number in re.findall(r"\d+", text)[:3])
        have = start + days * each
        if gone := re.search(r"(\d+) are given away", text):
            have -= int(gone[1])
        if times := re.search(r"grows to (\d+) times", text):
            have *= int(times[1])
        have += int(re.search(r"last (\d+) are found", text)[1])  # type: ignore[index]
        assert have == answer
        assert answer > 0


def test_a_call_fits_one_of_the_tools_and_its_arguments_stand_in_the_text() -> None:
    for item in make("tool-calls", 0, 150):
        call = item.expect["call"]
        tool = next(tool["function"] for tool in item.tools or [] if tool["function"]["name"] == call["name"])
        assert call["arguments"].keys() == tool["parameters"]["properties"].keys()
        for name, value in call["arguments"].items():
            assert str(value) in prompt(item)
            field = tool["parameters"]["properties"][name]
            assert isinstance(value, {"string": str, "integer": int}[field["type"]])
            assert value in field.get("enum", [value])


def test_a_passage_answers_its_question() -> None:
    for item in make("passage-qa", 0, 200):
        lives = dict(re.findall(r"(\w+) lives in (\w+)\.", prompt(item)))
        trades = {
            trade: one for one, trade in ((o, t) for t, o in re.findall(r"The (\w+) is called (\w+)\.", prompt(item)))
        }
        question = prompt(item).rsplit(". ", 1)[1]
        answer = item.expect["exact"]
        if found := re.search(r"which town does the (\w+) live", question):
            assert answer == lives[trades[found[1]]]
        elif found := re.search(r"who lives in (\w+) do", question):
            assert lives[trades[answer]] == found[1]
        elif found := re.search(r"Where does (\w+) live", question):
            assert answer == lives[found[1]]
        else:
            assert answer == trades[re.search(r"What is the (\w+) called", question)[1]]  # type: ignore[index]


def test_a_needle_stands_once_at_its_depth() -> None:
    for item in make("needle", 0, 15):
        number, text = str(item.expect["number"]), prompt(item)
        tags = dict(tag.split("-") for tag in item.tags[1:])
        assert text.count(number) == 1
        assert text.index(number) / len(text) == pytest.approx(int(tags["depth"]) / 100, abs=0.05)
        assert len(text) / 4 == pytest.approx(int(tags["in"]), rel=0.03)


def test_filler_says_nothing_that_a_task_asks() -> None:
    text = " ".join(fill(Draw(0, "f"), 200_000))
    assert not re.search(r"\d|lives|called|order|locker|day\b|red|green|blue", text.replace("ordered", ""))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens", [0, 500, 3000])
def test_a_task_at_a_length_holds_all_of_itself(family: str, tokens: int) -> None:
    draw = Draw(1, "length")
    for depth in (0.0, 0.5, 1.0):
        task = FAMILIES[family](draw)
        text = at_length(draw, task, tokens, depth, "Be brief.")
        assert text.startswith("Be brief.")
        assert text.endswith(task.question)
        assert all(fact in text for fact in task.facts)
        assert len(json.dumps(task.expect)) > 10
        if tokens:
            assert len(text) / 4 == pytest.approx(tokens, abs=40)


def test_the_matrix_has_each_cell_once() -> None:
    items = make("matrix", 0, 144)
    assert len(CELLS) == len({tuple(item.tags) for item in items}) == 144
    for item in items:
        tokens, most, reuse = (int(tag.split("-")[1]) for tag in item.tags[:3])
        assert (item.input_tokens, item.output_tokens) == (tokens, most)
        shared = len(item.prefix_blocks or []) * (item.block_tokens or 0) / tokens
        assert shared == pytest.approx(reuse / 100, abs=0.03)
    groups = {tuple(item.tags[0::2][:2]): tuple(item.prefix_blocks or ()) for item in items}
    assert all(groups[tuple(item.tags[0::2][:2])] == tuple(item.prefix_blocks or ()) for item in items)
    other = make("matrix", 1, 144)
    assert [item.tags for item in other] != [item.tags for item in items]


def test_the_matrix_with_text_has_the_same_cells_and_shares_as_much() -> None:
    items = make("matrix-text", 0, 144)
    assert [item.tags for item in items] == [item.tags for item in make("matrix", 0, 144)]
    heads: dict[tuple[str, str], list[str]] = {}
    for item in items:
        tokens = int(item.tags[0].split("-")[1])
        assert item.expect
        if tokens > 128:  # a task may need more than that itself
            assert len(prompt(item)) / 4 == pytest.approx(tokens, rel=0.05)
        heads.setdefault((item.tags[0], item.tags[2]), []).append(prompt(item))
    for (size, reuse), texts in heads.items():
        share = int(reuse.split("-")[1]) / 100
        length = len(os_common(texts)) / 4 / int(size.split("-")[1])
        assert length == pytest.approx(share, abs=0.12), (size, reuse)
    assert len({prompt(item) for item in items}) == 144


def os_common(texts: list[str]) -> str:
    low, high = min(texts), max(texts)
    return low[: next((place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]


@pytest.mark.parametrize("recipe", ["tool-calls", "passage-qa", "reasoning", "needle"])
def test_no_prompt_stands_twice(recipe: str) -> None:
    items = make(recipe, 0, 30 if recipe == "needle" else 1500)
    assert len({prompt(item) for item in items}) == len(items)
