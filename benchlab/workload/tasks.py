"""Tasks whose answers can be checked: extraction, tool calls, questions on a passage, reasoning, a needle in a context.

The one idea: a task is a few facts and a question; what stands around the facts is filler that says nothing about them,
so the same task can be asked at any length and depth. All sentences are the project's own. `expect` has one key:
`number` (the number alone), `exact` (the text, case and end punctuation aside) or `call` (name and arguments of the one
tool call). It must not know how answers are graded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchlab.workload.draw import Draw
from benchlab.workload.tasks_reason import code_question, sum_question
from benchlab.workload.tokens import CHARS_PER_TOKEN

NAMES = ("Ada", "Ben", "Carla", "Dev", "Elif", "Femi", "Greta", "Hugo", "Ines", "Jun", "Kofi", "Lena")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
CITIES = ("Oslo", "Lima", "Accra", "Quito", "Hanoi", "Porto", "Delhi", "Tunis", "Perth", "Turin")
_TRADES = ("baker", "nurse", "driver", "teacher", "printer", "gardener", "plumber", "singer")
_COLOURS = ("red", "green", "blue", "white", "yellow", "grey")
_GOODS = ("lamp", "chair", "kettle", "clock", "ladder", "mirror")
_THINGS = (
    "a clear label",
    "a warm coat",
    "a spare key",
    "fresh bread",
    "good light",
    "a quiet room",
    "a simple plan",
    "clean water",
    "a second opinion",
    "a written list",
    "regular rest",
    "a strong box",
)
_TOPICS = ("a long journey", "homework", "cooking", "gardening", "moving house", "saving money", "sleep", "winter")
_FILLER = (
    "For {topic} many people use {thing}.",
    "It is easy to forget {thing} before {topic}.",
    "Some say that {thing} matters more than {other} for {topic}.",
    "With {thing}, {topic} takes less time than it did.",
    "When {topic} is the subject, somebody always brings up {thing}.",
    "Nobody has shown yet that {thing} does any harm in {topic}.",
    "There is a chapter on {thing} and one on {topic}.",
    "Whoever has {thing} and {other} is ready for {topic}.",
)


@dataclass(frozen=True, slots=True)
class Task:
    """facts: sentences that hold the answer (none where the question has all of it); question: what is asked."""

    name: str
    facts: tuple[str, ...]
    question: str
    expect: dict[str, Any]
    output_tokens: int = 24
    tools: list[dict[str, Any]] | None = None


def filler(draw: Draw) -> str:
    """A sentence that answers no task."""
    thing, other = draw.shuffled(list(_THINGS))[:2]
    return draw.pick(_FILLER).format(thing=thing, other=other, topic=draw.pick(_TOPICS))


def fill(draw: Draw, num_chars: int) -> list[str]:
    """Sentences of filler with about so many characters, a blank after each."""
    sentences: list[str] = []
    left = num_chars
    while left > 30:
        sentences.append(filler(draw))
        left -= len(sentences[-1]) + 1
    return sentences


def at_length(draw: Draw, task: Task, num_tokens: int = 0, depth: float = 0.5, head: str = "") -> str:
    """The prompt of a task with filler about its facts, about `num_tokens` long (four characters a token).

    depth: the share of the filler before the facts. head: text that stands first and counts towards the length. What
    the task needs itself is never cut.
    """
    needed = len(head) + sum(len(fact) + 1 for fact in task.facts) + len(task.question)
    around = fill(draw, int(num_tokens * CHARS_PER_TOKEN) - needed)
    place = round(len(around) * depth)
    return " ".join([*([head] if head else []), *around[:place], *task.facts, *around[place:], task.question])


def extraction(draw: Draw) -> Task:
    """An order: whose, when, which number, what."""
    name, day, number = draw.pick(NAMES), draw.pick(DAYS), draw.between(1000, 9999)
    colour, good = draw.pick(_COLOURS), draw.pick(_GOODS)
    facts = (f"Order {number} is a {colour} {good} for {name}.", f"It will be delivered on {day}.")
    asked, answer = draw.pick(
        (
            ("On which day will the order be delivered", day),
            ("Whose order is it", name),
            ("What is the number of the order", str(number)),
            ("Which colour was ordered", colour),
        )
    )
    return Task("extraction", facts, f"{asked}? Answer with one word.", {"exact": answer})


def passage(draw: Draw) -> Task:
    """People, their towns and their trades; one question in two needs two sentences to answer."""
    people = draw.shuffled(list(NAMES))[:4]
    towns, trades = draw.shuffled(list(CITIES))[:4], draw.shuffled(list(_TRADES))[:4]
    facts = [f"{one} lives in {town}." for one, town in zip(people, towns, strict=True)]
    facts += [f"The {trade} is called {one}." for one, trade in zip(people, trades, strict=True)]
    which = draw.below(4)
    asked, answer = draw.pick(
        (
            (f"In which town does the {trades[which]} live", towns[which]),
            (f"What does the one who lives in {towns[which]} do", trades[which]),
            (f"Where does {people[which]} live", towns[which]),
            (f"What is the {trades[which]} called", people[which]),
        )
    )
    return Task("qa", tuple(draw.shuffled(facts)), f"{asked}? Answer with one word.", {"exact": answer})


def needle(draw: Draw) -> Task:
    """One sentence that has to be found again."""
    number, name = draw.between(10_000, 99_999), draw.pick(NAMES)
    fact = f"The number of {name}'s locker is {number}."
    asked = f"What is the number of {name}'s locker? Answer with the number alone."
    return Task("needle", (fact,), asked, {"number": number}, 16)


def reasoning(draw: Draw) -> Task:
    """Arithmetic in several steps, or what a short function returns."""
    name, question, answer = (sum_question if draw.below(2) else code_question)(draw, draw.pick(NAMES))
    return Task(name, (), f"{question} Give the number alone in the last line.", {"number": answer}, 256)


def _tool(name: str, about: str, **fields: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


_DAY = {"type": "string", "enum": list(DAYS)}
TOOLS = [
    _tool(
        "book_train",
        "Book seats on a train.",
        origin={"type": "string"},
        destination={"type": "string"},
        day=_DAY,
        seats={"type": "integer", "minimum": 1},
    ),
    _tool("get_weather", "The weather of a town on a day.", town={"type": "string"}, day=_DAY),
    _tool(
        "add_to_cart",
        "Put goods into the cart.",
        good={"type": "string", "enum": list(_GOODS)},
        colour={"type": "string", "enum": list(_COLOURS)},
        count={"type": "integer", "minimum": 1},
    ),
]
"""What may be called; each task needs exactly one of them."""


def tool_call(draw: Draw) -> Task:
    """One call of one of three tools, all arguments given in the text."""
    here, there = draw.shuffled(list(CITIES))[:2]
    day, count = draw.pick(DAYS), draw.between(2, 9)
    kind = draw.below(3)
    if kind == 0:
        text = f"Please get {count} seats on the train from {here} to {there} for {day}."
        call: dict[str, Any] = {"origin": here, "destination": there, "day": day, "seats": count}
    elif kind == 1:
        text, call = f"Will it rain in {there} on {day}?", {"town": there, "day": day}
    else:
        good, colour = draw.pick(_GOODS), draw.pick(_COLOURS)
        text = f"I would like to order {count} pieces of the {good}, in {colour}."
        call = {"good": good, "colour": colour, "count": count}
    name = TOOLS[kind]["function"]["name"]
    return Task("tool-call", (), text, {"call": {"name": name, "arguments": call}}, 80, TOOLS)


FAMILIES: dict[str, Callable[[Draw], Task]] = {
    "extraction": extraction,
    "tool-call": tool_call,
    "qa": passage,
    "reasoning": reasoning,
    "needle": needle,
}
