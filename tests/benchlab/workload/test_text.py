"""Made text: the same for the same key, shared where blocks are, exact where a tokenizer counts."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import make
from benchlab.workload.recipes import fixed
from benchlab.workload.text import lead_words, make_texts, salted, words
from benchlab.workload.words import BODY, LEAD


def asked(num: int, name: str = "a", blocks: list[int] | None = None) -> WorkloadItem:
    return WorkloadItem(id=name, input_tokens=num, prefix_blocks=blocks, block_tokens=16 if blocks else None)


def by_words(text: str) -> int:
    return len(text.replace(".", " .").split())


def test_C41_the_length_is_exact_by_a_loop() -> None:
    def stub(text: str) -> int:  # 1,000 words re-encode to 1,026 tokens
        return round(by_words(text) * 1.026)

    made = make_texts([asked(1000)], key="k", count=stub)
    assert (made.asked, made.realised) == ([1000], [1000])
    assert stub(made.items[0].prompt or "") == 1000
    assert "exact" in made.note()


def test_C41_what_cannot_be_exact_is_reported() -> None:
    made = make_texts([asked(101)], key="k", count=lambda text: 2 * by_words(text))
    assert abs(made.realised[0] - 101) == 1
    assert "1 of 1 prompts differ" in made.note()


def test_C43_one_token_is_one_token() -> None:
    made = make_texts([asked(1, str(n)) for n in range(3)], key="k", count=by_words)
    assert made.realised == [1, 1, 1]
    assert all(item.prompt for item in made.items)


def test_C43_a_length_below_the_least_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="the shortest has 2"):
        make_texts([asked(1)], key="k", count=lambda text: by_words(text) + 1)


def test_C64_shared_blocks_share_their_text() -> None:
    made = make_texts([asked(40, "a", [1, 2, 3]), asked(32, "b", [1, 2])], key="k", count=by_words)
    first, second = (item.prompt or "" for item in made.items)
    assert made.realised == [40, 32]
    assert first.startswith(second)
    assert make_texts([asked(40, "z", [1, 2, 3])], key="k").items[0].prompt == first  # the partial block too
    assert make_texts([asked(40, "z", [1, 2, 3])], key="other").items[0].prompt != first


def test_blocks_rounded_down_have_tails_of_their_own() -> None:
    made = make_texts([asked(40, "a", [1, 2]), asked(40, "b", [1, 2])], key="k", count=by_words)
    first, second = (item.prompt or "" for item in made.items)
    assert made.realised == [40, 40]
    assert first != second
    pairs = list(zip(first.split(), second.split(), strict=False))
    shared = next(place for place, (one, two) in enumerate(pairs) if one != two)
    assert by_words(" ".join(first.split()[:shared])) >= 32


def test_C65_prompts_of_a_run_differ_and_a_salt_changes_the_first_block_alone() -> None:
    items = make(fixed(256, 8), 0, 20)
    plain = make_texts(items, key="k")
    cold, again = make_texts(items, key="k", salt="run-1"), make_texts(items, key="k", salt="run-2")
    texts = [[item.prompt or "" for item in made.items] for made in (plain, cold, again)]
    assert all(len(set(of_run)) == 20 for of_run in texts)
    for one, two, three in zip(*texts, strict=True):
        assert by_words(one) == by_words(two) == by_words(three)
        assert len({text.split()[0:8].__str__() for text in (one, two, three)}) == 3
        assert one.split()[8:] == two.split()[8:] == three.split()[8:]
    assert [item.prompt for item in make_texts(items, key="k", salt="run-1").items] == texts[1]


@pytest.mark.parametrize("recipe", ["chat-short", "qa-checkable"])
def test_C65_no_prompt_stands_twice_in_a_recipe(recipe: str) -> None:
    items = make(recipe, 0, 2000)
    assert len({str(item.messages) for item in items}) == 2000


def test_a_salted_round_keeps_lengths_and_sharing() -> None:
    made = make_texts([asked(40, "a", [1, 2, 3]), asked(32, "b", [1, 2])], key="k", salt="s").items
    round_two = [salted(item, "s-1") for item in made]
    first, second = (item.prompt or "" for item in round_two)
    assert first.startswith(second)
    assert [by_words(item.prompt or "") for item in round_two] == [40, 32]
    assert first != made[0].prompt


def test_a_salt_in_front_of_written_text_is_of_one_length_and_replaced_by_the_next() -> None:
    item = WorkloadItem(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    once = salted(item, "s")
    twice = salted(once, "s-1")
    contents = [(each.messages or [])[0]["content"] for each in (item, once, twice)]
    assert [len(content.split()) for content in contents] == [2, 10, 10]
    assert contents[1] != contents[2]
    assert all(content.endswith("Be brief.") for content in contents)
    assert (twice.messages or [])[1] == {"role": "user", "content": "Hi"}
    assert (item.messages or [])[0]["content"] == "Be brief."  # the item handed in is as it was


def test_a_salt_goes_into_parts_and_into_a_plain_prompt() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "What is it?"}]
    changed = salted(WorkloadItem(messages=[{"role": "user", "content": parts}]), "s")
    content = (changed.messages or [])[0]["content"]
    assert content[0] == parts[0]
    assert content[1]["text"].endswith(" What is it?")
    image = salted(WorkloadItem(messages=[{"role": "user", "content": parts[:1]}]), "s")
    assert (image.messages or [])[0]["content"][1:] == parts[:1]
    assert (salted(WorkloadItem(prompt="Why?"), "s").prompt or "").endswith(" Why?")
    assert salted(asked(3), "s") == asked(3)


def test_the_same_text_in_another_process_with_another_hash_seed() -> None:
    code = (
        "from benchlab.workload.text import words, lead_words;"
        "import hashlib; print(hashlib.sha256((words(5000,'k','é')+lead_words(8,'s')).encode()).hexdigest())"
    )
    here = hashlib.sha256((words(5000, "k", "é") + lead_words(8, "s")).encode()).hexdigest()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        assert done.stdout.strip() == here
    # These bytes are an interface: runs of different machines must meet the same prompts.
    assert here == "620397e7eaf03fd40412d521aacc4bf306e7bfada4c8576990b6b4f2c9ac1d14"


def test_the_lists_of_words() -> None:
    assert (len(BODY), len(set(BODY)), len(LEAD), len(set(LEAD))) == (256, 256, 64, 64)
    assert not set(BODY) & set(LEAD)
    assert {len(word) for word in LEAD} == {4}


@given(st.integers(1, 600), st.lists(st.integers(0, 5), max_size=6), st.none() | st.text(max_size=5))
@settings(max_examples=100, deadline=None)
def test_any_length_is_met_and_never_empty(num: int, blocks: list[int], salt: str | None) -> None:
    blocks = blocks[: -(-num // 16)]
    made = make_texts([asked(num, "a", blocks or None)], key="k", salt=salt, count=by_words)
    assert made.realised == [num]
    assert by_words(made.items[0].prompt or "") == num
    assert by_words(make_texts([asked(num, "a", blocks or None)], key="k", salt=salt).items[0].prompt or "") == num


def test_more_text_than_memory_holds_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="2,147,483,648 tokens together"):
        make_texts([asked(2**30, "a"), asked(2**30, "b")], key="k")
