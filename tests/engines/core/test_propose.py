"""Prompt lookup: the longest and newest agreement, checked against the definition, at a cost that stays bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.core.propose import NgramIndex, SpeculationCounts

texts = st.lists(st.integers(0, 2), max_size=15)


def by_definition(tokens, count):
    best, best_length = -1, 1
    for at in range(len(tokens) - 2, 0, -1):
        length = 0
        while length < 8 and length <= at and tokens[at - length] == tokens[len(tokens) - 1 - length]:
            length += 1
        if length > best_length:
            best, best_length = at, length
    if best < 0:
        return ()
    text = list(tokens)
    for source in range(best + 1, best + 1 + count):
        text.append(text[source])
    return tuple(text[len(tokens) :])


@given(texts, texts, st.integers(1, 6))
def test_the_longest_then_the_newest(first, second, count):
    index = NgramIndex()
    index.extend(first)
    index.propose(count)
    index.extend(second)
    assert len(index) == len(first) + len(second)
    assert index.propose(count) == by_definition(first + second, count)


@pytest.mark.parametrize(
    ("text", "count", "guess"),
    [
        ([1, 2, 3, 4, 1, 2], 3, (3, 4, 1)),
        ([1, 2, 3, 9, 2, 3, 5, 1, 2, 3], 2, (9, 2)),  # three agree there, two where the newest stood
        ([7, 8, 7, 8], 5, (7, 8, 7, 8, 7)),  # goes on with itself
        ([1, 2, 3], 3, ()),
        ([5, 5], 2, ()),
        ([5, 5, 5], 2, (5, 5)),
        ([5], 2, ()),
        ([], 2, ()),
        ([1, 2, 1, 2], 0, ()),
    ],
)
def test_guesses(text, count, guess):
    index = NgramIndex()
    index.extend(text)
    assert index.propose(count) == guess


def test_looks_are_bounded_however_often_a_pair_occurs():
    class Counted(list):
        reads = 0

        def __getitem__(self, at):
            Counted.reads += 1
            return super().__getitem__(at)

    index = NgramIndex()
    for number in range(5_000):
        index.extend((1, 2, number + 10))
    index.extend((1, 2))
    index._tokens = Counted(index._tokens)
    assert index.propose(3) == (5_009, 1, 2)
    assert Counted.reads < 300


def test_counts_by_position():
    counts = SpeculationCounts(3)
    counts.count(3, 1)
    counts.count(2, 2)
    assert (counts.num_proposed, counts.num_accepted) == ([2, 2, 1], [2, 1, 0])
