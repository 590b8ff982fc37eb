"""A workload by its figures: what was asked for is what is there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.loadgen.session_graph import in_sessions
from benchlab.workload.fit import nearness
from benchlab.workload.fit_lengths import parse_lengths
from benchlab.workload.inspect import facts
from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import make, to_bytes
from benchlab.workload.recipes_custom import Custom, custom, parse_tree
from benchlab.workload.rows import to_item


def made(num: int = 2000, isl: str = "1024", osl: str = "100", seed: int = 0, **figures: Any) -> list[WorkloadItem]:
    for name in ("turns", "wait_ms"):
        if name in figures:
            figures[name] = parse_lengths(figures[name], where=name)
    asked = Custom(parse_lengths(isl, where="--isl"), parse_lengths(osl, where="--osl"), **figures)
    return make(custom(asked), seed, num)


def chained(items: list[WorkloadItem]) -> bool:
    """Whether each block has one block before it, so that an id stands for all that is before it too."""
    before: dict[int, int] = {}
    return all(
        before.setdefault(two, one) == one for item in items for one, two in pairwise([-1, *(item.prefix_blocks or [])])
    )


@pytest.mark.parametrize("reuse", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("isl", "off"), [("1024", 0.02), ("lognormal:1000:0.8", 0.03)])
def test_reuse_is_met_and_an_infinite_cache_sees_it(reuse: float, isl: str, off: float) -> None:
    items = made(isl=isl, reuse=reuse)
    shared = sum(len(item.prefix_blocks or []) * 16 for item in items) / sum(item.input_tokens or 0 for item in items)
    assert shared == pytest.approx(reuse, abs=off)
    found = facts(items)["prefix"]
    assert (found is None) == (reuse == 0)
    if found is not None:
        assert found["token_hit_ratio"] == pytest.approx(reuse, abs=0.03)
    assert chained(items)


def test_a_tree_shares_its_root_with_all_and_its_leaves_with_few() -> None:
    items = made(isl="uniform:200:2000", reuse=0.6, tree=(1, 4, 16), slant=1.0)
    assert chained(items)
    chains = [tuple(item.prefix_blocks or ()) for item in items]
    longest = max(map(len, chains))
    whole = [chain for chain in chains if len(chain) == longest]
    assert len({chain[0] for chain in chains}) == 1
    assert len({chain[longest // 2] for chain in whole}) == 4
    leaves = {chain[-1]: 0 for chain in whole}
    for chain in whole:
        leaves[chain[-1]] += 1
    assert 16 < len(leaves) <= 64
    assert max(leaves.values()) > 4 * np.median(list(leaves.values()))


def test_lengths_are_correlated_as_asked() -> None:
    items = made(5000, "lognormal:800:0.7", "gamma:200:0.8", correlation=0.7)
    logs = [np.log([getattr(item, name) for item in items]) for name in ("input_tokens", "output_tokens")]
    assert np.corrcoef(*logs)[0, 1] == pytest.approx(0.67, abs=0.05)
    recipe = custom(Custom(parse_lengths("lognormal:800:0.7", where=""), parse_lengths("gamma:200:0.8", where="")))
    assert all(abs(row["off"]) < 0.03 for row in nearness(recipe, items))


def test_sessions_grow_wait_and_keep_their_tenant() -> None:
    items = made(
        400, "100", "50", turns="uniform:2:6", wait_ms="lognormal:2000:0.5", tenants=3, rate=2.0, cv=1.5, reuse=0.5
    )
    assert in_sessions(items) == items
    assert chained(items)
    for one, two in pairwise(items):
        if one.session == two.session:
            assert two.input_tokens == (one.input_tokens or 0) + 50 + 100
            assert (two.prefix_blocks or [])[: len(one.prefix_blocks or [])] == one.prefix_blocks
            assert (two.arrival_s, two.tenant, two.turn) == (None, one.tenant, (one.turn or 0) + 1)
            assert 0.1 < (two.wait_s or 0) < 20
        else:
            assert (two.turn, two.wait_s) == (1, None)
            assert two.arrival_s is not None
    found = facts(items)
    assert found["sessions"]["items_per_session"]["min"] >= 2
    assert found["sessions"]["items_per_session"]["max"] <= 6
    assert list(found["tenants"]) == ["tenant-1", "tenant-2", "tenant-3"]
    assert found["arrivals"]["rate_rps"] == pytest.approx(2, rel=0.05)
    assert found["arrivals"]["cv"] == pytest.approx(1.5, rel=0.1)


def test_what_is_not_asked_for_is_not_there() -> None:
    item = made(1)[0]
    assert msgspec.to_builtins(item).keys() == {"id", "input_tokens", "output_tokens"}


@pytest.mark.parametrize(
    ("figures", "flag"),
    [
        ({"correlation": 1.1}, "--correlation"),
        ({"correlation": float("nan")}, "--correlation"),
        ({"reuse": -0.1}, "--reuse"),
        ({"slant": 11}, "--zipf"),
        ({"tenants": -1}, "--tenants"),
        ({"rate": 0.0}, "--rate"),
        ({"cv": 9.0}, "--cv"),
        ({"block": 0}, "--block-tokens"),
        ({"tree": ()}, "--prefix-tree"),
        ({"tree": (1, 0)}, "--prefix-tree"),
    ],
)
def test_figures_that_make_no_workload_are_refused_by_flag(figures: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError, match=flag):
        made(1, **figures)


def test_a_tree_by_its_word() -> None:
    assert parse_tree("1x8x32") == (1, 8, 32)
    for word in ("", "axb", "1x", "1 x y"):
        with pytest.raises(UsageError, match="--prefix-tree"):
            parse_tree(word)


@given(
    st.integers(1, 60),
    st.sampled_from(["1", "7", "uniform:1:90", "lognormal:60:1"]),
    st.floats(0, 1),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.none() | st.sampled_from(["1", "uniform:1:4"]),
    st.integers(1, 40),
)
@settings(max_examples=60, deadline=None)
def test_any_figures_make_items_that_the_reader_takes(
    num: int, isl: str, reuse: float, tree: list[int], turns: str | None, block: int
) -> None:
    more = {} if turns is None else {"turns": turns}
    items = made(num, isl, "5", reuse=reuse, tree=tuple(tree), block=block, **more)
    assert len(items) == num
    assert len({item.id for item in items}) == num
    assert [to_item(msgspec.to_builtins(item)) for item in items] == items
    assert chained(items)
    assert to_bytes(items) == to_bytes(made(num, isl, "5", reuse=reuse, tree=tuple(tree), block=block, **more))


def test_more_ids_than_memory_holds_are_refused_at_once() -> None:
    for figures in ({"reuse": 0.9, "isl": "2147483647"}, {"turns": "500", "isl": "2000000"}):
        with pytest.raises(UsageError, match="--block-tokens"):
            made(500, osl="5", block=1, **figures)
