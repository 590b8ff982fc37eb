"""Recipes: a seed gives the same bytes, and the lengths come near the published ones."""

from __future__ import annotations

import hashlib

import pytest

from benchlab.errors import UsageError
from benchlab.workload.draw import Draw, at
from benchlab.workload.inspect import facts
from benchlab.workload.make import card, make, recipe_named, to_bytes
from benchlab.workload.recipes import RECIPES, fixed
from benchlab.workload.rows import to_item


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_and_a_seed_give_the_same_bytes(name: str) -> None:
    zero, again, one = (to_bytes(make(name, seed, 12)) for seed in (0, 0, 1))
    assert zero == again
    assert zero != one


@pytest.mark.parametrize("name", RECIPES)
def test_made_items_pass_the_reader(name: str) -> None:
    import msgspec

    for item in make(name, 3, 40):
        assert to_item(msgspec.to_builtins(item)) == item


def test_the_stream_of_chance_is_an_interface() -> None:
    draw = Draw(0, "a")
    told = [draw.below(1000) for _ in range(6)] + [draw.between(1, 3), draw.pick("abc", (1, 1, 8))]
    assert told == [95, 235, 960, 631, 666, 778, 2, "c"]
    assert sorted(draw.shuffled(list(range(9)))) == list(range(9))


def test_chat_short_is_small_long_tailed_and_shared() -> None:
    items = make("chat-short", 0, 1000)
    told = facts(items)
    assert told["input_tokens_estimated"]["min"] >= 12
    assert told["input_tokens_estimated"]["max"] <= 130
    assert 8 <= told["output_tokens"]["min"] < told["output_tokens"]["max"] <= 40
    assert told["output_tokens"]["mean"] > told["output_tokens"]["p50"]
    assert len(told["tenants"]) == 4
    assert len({(item.messages or [])[0]["content"] for item in items if len(item.messages or []) == 2}) == 3


def test_support_assistant_is_the_stated_case() -> None:
    item = make("support-assistant", 0, 2)[1]
    assert (item.input_tokens, item.output_tokens) == (2000, 300)
    assert len(item.prefix_blocks or []) * (item.block_tokens or 0) == 1200


def test_answers_are_right() -> None:
    for item in make("qa-checkable", 0, 300):
        text = (item.messages or [])[0]["content"]
        if item.tags == ["extraction"]:
            assert item.expect["exact"] in text
        else:
            numbers = [int(word) for word in text.replace(".", "").split() if word.isdigit()]
            first, second = numbers[-2:]
            by = {"more": first + second, "away": first - second, "each": first * second}
            assert item.expect["number"] == next(value for word, value in by.items() if f" {word}." in text)


def test_fixed_lengths_and_their_refusals() -> None:
    items = make(fixed(512, 64), 0, 3)
    assert {(item.input_tokens, item.output_tokens) for item in items} == {(512, 64)}
    with pytest.raises(UsageError, match="--isl"):
        fixed(0, 3)
    with pytest.raises(UsageError, match="did you mean 'chat-short'"):
        make("chat-shrot")
    with pytest.raises(UsageError, match="-n"):
        make("chat-short", 0, 0)


def test_quantiles_meet_the_known_points() -> None:
    table = ((0, 10), (0.5, 100), (1, 1000))
    assert [at(table, share) for share in (0, 0.25, 0.5, 0.75, 1)] == [10, 32, 100, 316, 1000]


def test_a_card_holds_the_hash_of_the_file_and_the_command() -> None:
    items = make("azure-conv", 5, 50)
    text = card("mine", recipe_named("azure-conv"), 5, items)
    assert hashlib.sha256(to_bytes(items)).hexdigest() in text
    assert "`benchlab workload make azure-conv --seed 5 -n 50 -o workloads/mine.jsonl`" in text
