"""Token ids without a tokenizer: counts by the stated rule, identity where prompts share, and the same everywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchlab.workload.ids import token_ids
from benchlab.workload.item import WorkloadItem
from benchlab.workload.text import words


def chat(*texts, **more):
    return WorkloadItem(messages=[{"role": "user", "content": text} for text in texts], **more)


def shared(a, b):
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_the_rule_for_text():
    assert len(token_ids(WorkloadItem(prompt="Hello there, all."))) == 5
    assert len(token_ids(WorkloadItem(prompt="antidisestablishment"))) == 3  # nine, nine, two letters
    assert len(token_ids(WorkloadItem(prompt=" "))) == 1
    assert len(token_ids(chat("one two", "three"))) == 2 + 2 + 1 + 2 + 1


def test_made_text_has_its_declared_length():
    assert len(token_ids(WorkloadItem(prompt=words(500, "a key")))) == 500


def test_ids_are_the_same_on_every_machine():
    assert token_ids(WorkloadItem(prompt="Hello, hello")) == (1610463856, 1264751601, 394939024)


def test_equal_beginnings_share_their_ids():
    a, b = token_ids(chat("a long system text", "first")), token_ids(chat("a long system text", "second"))
    assert shared(a, b) == 1 + 4 + 1 + 1
    assert token_ids(chat("x")) != token_ids(WorkloadItem(messages=[{"role": "system", "content": "x"}]))


def test_parts_and_tools_count():
    parts = WorkloadItem(
        messages=[{"role": "user", "content": [{"type": "text", "text": "one two"}, {"type": "image"}]}]
    )
    assert len(token_ids(parts)) > 5
    assert len(token_ids(chat("x", tools=[{"name": "search"}]))) > len(token_ids(chat("x")))


def test_prefix_blocks_are_shared_to_their_end():
    def item(name, blocks, tokens=100):
        return WorkloadItem(id=name, input_tokens=tokens, prefix_blocks=blocks, block_tokens=16)

    a, b = token_ids(item("a", [1, 2, 3])), token_ids(item("b", [1, 2, 4]))
    assert len(a) == len(b) == 100
    assert shared(a, b) == 32
    assert shared(token_ids(item("a", [1, 2])), token_ids(item("b", [1, 2]))) == 32
    whole = token_ids(item("a", [1, 2, 3, 4], tokens=50))  # the last block in part: equal for all who have it
    assert whole == token_ids(item("b", [1, 2, 3, 4], tokens=50))


@given(st.integers(1, 5000), st.lists(st.integers(0, 2**40), max_size=9), st.integers(1, 600), st.text(max_size=5))
def test_a_given_length_is_exact_and_ids_fit(tokens, blocks, size, name):
    ids = token_ids(WorkloadItem(id=name, input_tokens=tokens, prefix_blocks=blocks or None, block_tokens=size))
    assert len(ids) == tokens
    assert 0 <= min(ids) <= max(ids) < 2**32


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_any_chat_has_ids(texts):
    ids = token_ids(chat(*texts))
    assert ids == token_ids(chat(*texts))
    assert len(ids) >= 1 + 2 * len(texts)
