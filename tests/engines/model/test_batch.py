"""Plans as flat rows: every position has its slot, every row its group, and proposals their rows of logits."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="extra 'engine' is not installed")
pytestmark = pytest.mark.torch

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from benchlab_engine.core.plan import Work  # noqa: E402
from benchlab_engine.model.batch import make_batch  # noqa: E402

SIZE = 4


def work(name, count, start, blocks, samples=True, num_drafts=0, to_draft=0):
    need = -(-(start + count + to_draft) // SIZE)
    return Work(
        name, tuple(range(100, 100 + count)), start, tuple(blocks[:need]), samples, False,
        num_drafts=num_drafts, num_to_draft=to_draft,
    )  # fmt: skip


def test_decodes_come_first_and_share_a_group():
    batch = make_batch(
        [work("chunk", 20, 3, range(50, 60)), work("a", 1, 9, (7, 3, 1)), work("b", 1, 2, (5,))],
        SIZE,
    )
    assert [each.request_id for each in batch.sampling] == ["b", "a", "chunk"]
    assert batch.positions.tolist() == [2, 9, *range(3, 23)]
    assert batch.slots.tolist()[:3] == [5 * 4 + 2, 1 * 4 + 1, 50 * 4 + 3]
    assert batch.last.tolist() == [0, 1, 21]
    first, second = batch.groups
    assert (first.start, first.end, first.num_queries, first.lengths.tolist()) == (0, 2, 1, [3, 10])
    assert first.blocks.tolist() == [[5, 0, 0], [7, 3, 1]]
    assert (second.start, second.end, second.num_queries, second.lengths.tolist()) == (2, 22, 20, [23])
    assert not batch.is_decode


def test_a_work_with_proposals_has_a_row_of_logits_for_each_and_one_more():
    batch = make_batch(
        [
            work("three", 4, 8, range(9), num_drafts=3),
            work("none", 1, 5, range(20, 29)),
            work("prompt", 6, 0, range(30, 39), samples=False),
            work("other three", 4, 2, range(40, 49), num_drafts=3),
        ],
        SIZE,
    )
    assert [each.request_id for each in batch.sampling] == ["none", "other three", "three"]
    assert batch.num_rows == (1, 4, 4)
    assert batch.last.tolist() == list(range(9))
    assert [group.num_queries for group in batch.groups] == [1, 4, 6]


def test_room_for_the_runners_own_proposals_is_in_the_table_only():
    batch = make_batch([work("a", 1, 3, (8, 9, 10), to_draft=6)], SIZE)
    assert batch.slots.tolist() == [8 * 4 + 3]
    assert batch.groups[0].blocks.tolist() == [[8]]
    assert batch.num_rows == (1,)


def test_nothing_wanted_is_no_rows():
    batch = make_batch([work("a", 5, 0, (1, 2), samples=False)], SIZE)
    assert batch.last.tolist() == []
    assert batch.num_rows == ()


def test_much_padding_makes_a_group_of_its_own_and_little_does_not():
    near = [work(str(n), 1, 30 + n, range(20 * n, 20 * n + 20)) for n in range(8)]
    assert len(make_batch(near, SIZE).groups) == 1
    far = [*near, work("far", 1, 1000, range(200, 500))]
    groups = make_batch(far, SIZE).groups
    assert [len(group.lengths) for group in groups] == [8, 1]
    assert groups[0].blocks.shape[1] == 10


shares = st.tuples(
    st.integers(1, 20), st.integers(0, 300), st.booleans(), st.permutations(list(range(90))), st.integers(0, 4)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(shares, min_size=1, max_size=8))
def test_every_row_is_where_its_table_says(drawn):
    works = [
        work(str(n), count, start, table, samples, min(drafts, count - 1) if samples else 0)
        for n, (count, start, samples, table, drafts) in enumerate(drawn)
    ]
    batch = make_batch(works, SIZE)
    wanted = {
        (each.request_id, each.start + k): each.block_table[(each.start + k) // SIZE] * SIZE + (each.start + k) % SIZE
        for each in works
        for k in range(len(each.token_ids))
    }
    assert sorted(batch.slots.tolist()) == sorted(wanted.values())
    ends = [0]
    for group in batch.groups:
        assert group.start == ends[-1]
        ends.append(group.end)
        assert group.end - group.start == group.num_queries * len(group.lengths)
        for row in range(group.start, group.end):
            place, query = divmod(row - group.start, group.num_queries)
            position = int(batch.positions[row])
            assert position == group.lengths[place] - group.num_queries + query
            assert batch.slots[row] == group.blocks[place][position // SIZE] * SIZE + position % SIZE
            assert batch.tokens[row] == 100 + query
    assert ends[-1] == len(batch.tokens)
    assert sum(batch.num_rows) == len(batch.last)
    row = 0
    for each, rows in zip(batch.sampling, batch.num_rows, strict=True):
        assert rows == 1 + each.num_drafts
        own = batch.last[row : row + rows].tolist()
        end = each.start + len(each.token_ids)
        assert batch.positions[own].tolist() == list(range(end - rows, end))
        assert batch.slots[own].tolist() == [wanted[each.request_id, at] for at in range(end - rows, end)]
        row += rows
