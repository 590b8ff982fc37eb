"""Prompts in plain prose from templates: short chat, and questions whose answers can be checked.

All sentences are the project's own. Lengths here are estimates (four characters a token), since the target's
tokenizer is not known when a file is made.
"""

from __future__ import annotations

from benchlab.workload.draw import Draw, lognormal
from benchlab.workload.item import WorkloadItem
from benchlab.workload.tasks import DAYS, NAMES
from benchlab.workload.tokens import CHARS_PER_TOKEN

_TENANTS = ("shop", "travel", "school", "home")
_TENANT_WEIGHTS = (0.55, 0.25, 0.13, 0.07)
_SYSTEM = {
    "shop": "You are the assistant of a small shop. Answer in short, plain sentences.",
    "travel": "You help people plan journeys by train. Be brief and friendly.",
    "school": "You explain things to pupils in simple words.",
    "home": "",
}
_TASKS = ("explain", "list", "rewrite", "classify", "summarize")
_TASK_WEIGHTS = (0.32, 0.22, 0.16, 0.12, 0.18)
_ASK = {
    "explain": ("Why does {thing} matter for {topic}?", "How does {thing} help with {topic}?", "What is {thing}?"),
    "list": ("Name three things to check about {thing}.", "List two reasons to think about {thing} in {topic}."),
    "rewrite": ("Say this more politely: we need {thing} before {day}.", "Make this shorter: {thing} is late again."),
    "classify": ("Is this message a complaint or a question about {topic}? Answer with one word.",),
    "summarize": ("Put this into one sentence.", "What is the main point of this note on {topic}?"),
}
_THINGS = (
    "a clear label",
    "a warm coat",
    "a return ticket",
    "a spare key",
    "fresh bread",
    "good light",
    "a quiet room",
    "a simple plan",
    "clean water",
    "a second opinion",
    "a written list",
    "regular rest",
    "an early start",
    "a strong box",
    "a short break",
    "an honest price",
)
_TOPICS = ("delivery", "a long journey", "homework", "cooking", "gardening", "moving house", "saving money", "sleep")
_NOTES = (
    "{name} wrote on {day} that {thing} had not come.",
    "The order was number {number} and the shelf was empty.",
    "We asked about {topic} twice, and nobody could say.",
    "On {day} the office is open until {hour} o'clock.",
    "{name} thinks that {thing} would be enough for {topic}.",
    "There were {number} people before us, so it took a while.",
    "Last year {thing} cost {number} coins less.",
    "Please keep in mind that {name} leaves on {day}.",
    "It rained from {hour} o'clock until the evening.",
    "For {topic} we have always used {thing}.",
)


def _fill(draw: Draw, template: str) -> str:
    return template.format(
        thing=draw.pick(_THINGS),
        topic=draw.pick(_TOPICS),
        day=draw.pick(DAYS),
        name=draw.pick(NAMES),
        number=draw.between(12, 980),
        hour=draw.between(1, 12),
    )


def chat_short(seed: int, num_items: int) -> list[WorkloadItem]:
    """About 20 to 120 tokens in and 8 to 40 out, both long-tailed; four tenants, three with a shared system message."""
    draw = Draw(seed, "chat-short")
    asked, answered = draw.strata(num_items), draw.strata(num_items)
    items: list[WorkloadItem] = []
    seen: set[str] = set()
    for place in range(num_items):
        tenant = draw.pick(_TENANTS, _TENANT_WEIGHTS)
        task = draw.pick(_TASKS, _TASK_WEIGHTS)
        wanted = lognormal(asked[place], 42, 0.5, 20, 112) * CHARS_PER_TOKEN
        system = _SYSTEM[tenant]
        question = _fill(draw, draw.pick(_ASK[task]))
        notes: list[str] = []
        while len(system) + len(question) + sum(len(note) + 1 for note in notes) < wanted - 20:
            notes.append(_fill(draw, draw.pick(_NOTES)))
        while (text := " ".join([*notes, question])) in seen:  # no prompt twice, or a cache would answer for it
            notes.append(_fill(draw, draw.pick(_NOTES)))
        seen.add(text)
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        items.append(
            WorkloadItem(
                id=f"chat-{place + 1:04d}",
                messages=messages,
                output_tokens=lognormal(answered[place], 17, 0.45, 8, 40),
                tenant=tenant,
                tags=[task],
            )
        )
    return items


def _arithmetic(draw: Draw) -> tuple[str, dict[str, object]]:
    first, second, third = draw.between(3, 40), draw.between(2, 30), draw.between(2, 9)
    name, other = draw.pick(NAMES), draw.pick(("boxes", "pencils", "apples", "letters", "tickets"))
    kind = draw.below(3)
    if kind == 0:
        text, answer = f"{name} has {first} {other} and gets {second} more.", first + second
    elif kind == 1:
        text, answer = f"{name} has {first + second} {other} and gives {second} away.", first
    else:
        text, answer = f"{name} fills {third} shelves with {second} {other} each.", third * second
    return f"{text} How many {other} are there now? Answer with the number alone.", {"number": answer}


def _extraction(draw: Draw) -> tuple[str, dict[str, object]]:
    name, day, number = draw.pick(NAMES), draw.pick(DAYS), draw.between(1000, 9999)
    notes = [_fill(draw, "For {topic} we have always used {thing}.") for _ in range(draw.between(1, 4))]
    facts = [f"Order {number} belongs to {name}.", f"It will be delivered on {day}."]
    passage = " ".join(draw.shuffled([*notes, " ".join(facts)]))
    asked, answer = draw.pick(
        (
            ("On which day will the order be delivered", day),
            ("Whose order is it", name),
            ("What is the number of the order", str(number)),
        )
    )
    return f"{passage} {asked}? Answer with one word.", {"exact": answer}


def qa_checkable(seed: int, num_items: int) -> list[WorkloadItem]:
    """Arithmetic (expect: {"number": n}) and extraction (expect: {"exact": text}), in turn."""
    draw = Draw(seed, "qa-checkable")
    items: list[WorkloadItem] = []
    seen: set[str] = set()
    for place in range(num_items):
        task = ("arithmetic", "extraction")[place % 2]
        prompt, expect = (_arithmetic if task == "arithmetic" else _extraction)(draw)
        while prompt in seen:  # no prompt twice
            prompt = f"{_fill(draw, draw.pick(_NOTES[-1:]))} {prompt}"
        seen.add(prompt)
        items.append(
            WorkloadItem(
                id=f"qa-{place + 1:04d}",
                messages=[{"role": "user", "content": prompt}],
                output_tokens=24,
                sampling={"temperature": 0},
                expect=expect,
                tags=[task],
            )
        )
    return items
