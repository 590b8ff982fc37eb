"""Questions that take steps to answer: sums in words, and what a short function returns.

The one idea: the answer is computed beside the text from the same numbers, never by running the text. It must not know
how the answer is asked for.
"""

from __future__ import annotations

from benchlab.workload.draw import Draw

_GOODS = ("boxes", "pencils", "apples", "letters", "tickets", "stamps")


def sum_question(draw: Draw, name: str) -> tuple[str, str, int]:
    """Three steps of arithmetic on whole numbers that stay above zero: name, question, answer."""
    goods = draw.pick(_GOODS)
    start, each, times = draw.between(20, 90), draw.between(3, 15), draw.between(2, 9)
    have, parts = start, [f"{name} has {start} {goods}."]
    have += each * times
    parts.append(f"On each of the next {times} days {each} more come in.")
    if draw.below(2):
        gone = draw.between(2, have // 2)
        have -= gone
        parts.append(f"Then {gone} are given away.")
    else:
        shelf = draw.between(2, 6)
        have *= shelf
        parts.append(f"In the week after, the number of {goods} grows to {shelf} times what it was.")
    extra = draw.between(1, 40)
    have += extra
    parts.append(f"At last {extra} are found in a drawer. How many {goods} does {name} have now?")
    return "arithmetic", " ".join(parts), have


def code_question(draw: Draw, name: str) -> tuple[str, str, int]:
    """A Python function of a loop and a condition, and one call of it: name, question, answer."""
    del name
    argument, step, plus, minus = draw.between(5, 14), draw.between(2, 4), draw.between(2, 9), draw.between(1, 5)
    kind = draw.below(3)
    if kind == 0:
        code = (
            "def f(n):\n    total = 0\n    for i in range(1, n + 1):\n"
            f"        if i % {step} == 0:\n            total += {plus} * i\n"
            f"        else:\n            total -= {minus}\n    return total"
        )
        answer = sum(plus * i if i % step == 0 else -minus for i in range(1, argument + 1))
    elif kind == 1:
        code = f"def f(n):\n    a, b = {minus}, {plus}\n    for _ in range(n):\n        a, b = b, a + b\n    return a"
        first, second = minus, plus
        for _ in range(argument):
            first, second = second, first + second
        answer = first
    else:
        code = (
            f"def f(n):\n    count = 0\n    while n < {argument * 20}:\n"
            f"        n = n * {step} + {minus}\n        count += 1\n    return n - count"
        )
        value, count = argument, 0
        while value < argument * 20:
            value, count = value * step + minus, count + 1
        answer = value - count
    return "code", f"Read this Python function.\n\n{code}\n\nWhat does f({argument}) return?", answer
