"""The block pool: worked example 6's block numbers, sharing, eviction order, and an audit that notices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.core.blocks import AuditError, BlockPool, chain_hash, root_hash


@pytest.mark.parametrize(
    ("size", "lengths", "blocks", "slots", "idle"),
    [(16, (2300,), 144, 2304, 4), (16, (17, 33, 65), 10, 160, 45), (4, (17, 33, 65), 31, 124, 9)],
)
def test_worked_example_6(size, lengths, blocks, slots, idle):
    pool = BlockPool(200, size)
    used = sum(pool.blocks_for(length) for length in lengths)
    assert (used, used * size, used * size - sum(lengths)) == (blocks, slots, idle)


def test_hashes_chain_over_all_tokens_before_and_keep_tenants_apart():
    one, other = root_hash("model", "a"), root_hash("model", "b")
    assert one != other
    assert root_hash("ab", "c") != root_hash("a", "bc")
    assert chain_hash(one, (1, 2)) != chain_hash(other, (1, 2))
    assert chain_hash(chain_hash(one, (1,)), (2,)) != chain_hash(chain_hash(one, (9,)), (2,))


def test_a_released_prefix_can_be_taken_back_until_it_is_reused():
    pool = BlockPool(3, 4)
    hashes = [chain_hash(root_hash(), (index,)) for index in range(2)]
    blocks = pool.take(2)
    for block, each in zip(blocks, hashes, strict=True):
        pool.publish(block, each)
    pool.release(blocks)
    assert pool.num_free == 3
    assert pool.find(hashes) == blocks
    pool.share(pool.find(hashes))
    assert pool.num_free == 1
    pool.audit([blocks])
    pool.release(blocks)
    taken = pool.take(2)  # the blank block first, then the tail of the prefix
    assert blocks[0] not in taken
    assert pool.find(hashes) == [blocks[0]]
    pool.audit([taken])


def test_least_recently_released_goes_first():
    pool = BlockPool(2, 1)
    first, second = pool.take(1), pool.take(1)
    pool.publish(first[0], b"first")
    pool.publish(second[0], b"second")
    pool.release(second)
    pool.release(first)
    assert pool.take(1) == second


def test_audit_notices_a_lost_block_and_one_shared_without_a_count():
    pool = BlockPool(4, 1)
    blocks = pool.take(2)
    with pytest.raises(AuditError):
        pool.audit([])
    with pytest.raises(AuditError):
        pool.audit([blocks, blocks])
    pool.audit([blocks])


def test_more_than_free_is_refused():
    with pytest.raises(ValueError, match="3 blocks asked for, 2 free"):
        BlockPool(2, 1).take(3)


@given(st.lists(st.tuples(st.sampled_from(["take", "release", "share", "publish"]), st.integers(0, 9)), max_size=60))
def test_no_block_is_lost_or_shared_without_a_count(actions):
    pool = BlockPool(8, 2)
    held: list[list[int]] = []
    for name, number in actions:
        if name == "take" and number % 4 <= pool.num_free:
            held.append(pool.take(number % 4))
        elif name == "release" and held:
            pool.release(held.pop(number % len(held)))
        elif name == "publish" and held:
            for index, block in enumerate(held[number % len(held)]):
                pool.publish(block, bytes([number, index]))
        elif name == "share":
            found = pool.find([bytes([number, index]) for index in range(3)])
            pool.share(found)
            held.append(found)
        pool.audit(held)
    for blocks in held:
        pool.release(blocks)
    assert pool.num_free == 8
