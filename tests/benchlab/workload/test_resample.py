"""Resampling keeps sessions whole, is the same for the same seed, and changes what it says and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.loadgen.session_graph import find_needs, in_sessions
from benchlab.workload import resample
from benchlab.workload.item import WorkloadItem


def sessions(number: int, turns: int = 3) -> list[WorkloadItem]:
    """Sessions that begin a second apart, their turns waiting for one another."""
    return [
        WorkloadItem(
            id=f"{session}.{turn}",
            input_tokens=100 * (turn + 1),
            output_tokens=5,
            prefix_blocks=[session * 10 + place for place in range(turn + 1)],
            block_tokens=100,
            session=f"s{session}",
            turn=turn,
            arrival_s=None if turn else float(session),
            wait_s=float(turn * 50) if turn else None,
        )
        for session in range(number)
        for turn in range(turns)
    ]


@given(st.integers(0, 9), st.floats(0.05, 1))
def test_thinning_keeps_whole_sessions_and_its_seed(seed: int, share: float) -> None:
    items = sessions(20)
    try:
        kept, _ = resample.thin(items, share, seed)
    except UsageError as fault:
        assert "nothing is left" in str(fault)
        return
    assert kept == resample.thin(items, share, seed)[0]
    assert all(sum(item.session == one.session for item in kept) == 3 for one in kept)
    assert [item for item in items if item in kept] == kept


def test_thinning_leaves_about_its_share() -> None:
    kept, said = resample.thin(sessions(2000, 1), 0.3, 1)
    assert 500 < len(kept) < 700
    assert said == f"thinned to 0.3: {len(kept)} of 2,000 sessions or single items"


def test_a_slice_takes_what_begins_in_it_with_all_its_turns() -> None:
    kept, _ = resample.cut(sessions(10), 2, 4)
    assert [item.id for item in kept] == ["2.0", "2.1", "2.2", "3.0", "3.1", "3.2"]
    assert [item.arrival_s for item in kept if item.arrival_s is not None] == [0.0, 1.0]
    assert any(find_needs(in_sessions(kept)))
    with pytest.raises(UsageError, match="nothing arrives in that span"):
        resample.cut(sessions(10), 20, 30)
    with pytest.raises(UsageError, match="no arrival times"):
        resample.cut([WorkloadItem(id="a", input_tokens=3)], 0, 1)


def test_another_rate_moves_arrivals_and_leaves_pauses() -> None:
    changed, _ = resample.scale_rate(sessions(3), 2)
    assert [item.arrival_s for item in changed if item.arrival_s is not None] == [0.0, 0.5, 1.0]
    assert [item.wait_s for item in changed] == [item.wait_s for item in sessions(3)]
    with pytest.raises(UsageError, match="above 0"):
        resample.scale_rate(sessions(3), 0)


def test_a_bootstrap_draws_sessions_with_names_of_their_own() -> None:
    items = [msgspec_depends(item) for item in sessions(4)]
    drawn, said = resample.bootstrap(items, 30, 3)
    assert len(drawn) == 90
    assert len({item.id for item in drawn}) == 90
    assert len({item.session for item in drawn}) == 30
    assert drawn == resample.bootstrap(items, 30, 3)[0] != resample.bootstrap(items, 30, 4)[0]
    assert said == "30 of 4 sessions or single items drawn with replacement"
    assert sum(map(bool, find_needs(in_sessions(drawn)))) == 60


def msgspec_depends(item: WorkloadItem) -> WorkloadItem:
    import msgspec

    if not item.turn:
        return item
    return msgspec.structs.replace(item, depends_on=[f"{item.id[:-1]}{item.turn - 1}"], session=item.session)


def test_merged_workloads_are_tenants_that_share_nothing() -> None:
    merged, said = resample.merge([("a", sessions(2)), ("b", sessions(2))])
    assert said == "2 workloads merged as tenants: a, b"
    assert {item.tenant for item in merged} == {"a", "b"}
    assert len({item.id for item in merged}) == 12
    blocks = {
        name: {block for item in merged if item.tenant == name for block in item.prefix_blocks or ()} for name in "ab"
    }
    assert not blocks["a"] & blocks["b"]
    assert [item.arrival_s for item in merged if item.arrival_s is not None] == [0.0, 0.0, 1.0, 1.0]
    with pytest.raises(UsageError, match="others have none"):
        resample.merge([("a", sessions(1)), ("b", [WorkloadItem(id="x", prompt="y")])])


def test_caps_on_lengths_and_pauses() -> None:
    items = sessions(2)
    cut, said = resample.cap(items, 250, 4, drop=False)
    assert said == "6 items cut to input 250 and output 4 tokens"
    assert [(item.input_tokens, item.output_tokens, len(item.prefix_blocks or ())) for item in cut[:3]] == [
        (100, 4, 1), (200, 4, 2), (250, 4, 2),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="raise the cap"):
        resample.cap(items, 250, None, drop=True)  # every session has a longer turn, and goes as a whole
    short, said = resample.cap_waits(items, 60)
    assert [item.wait_s for item in short[:3]] == [None, 50.0, 60.0]
    assert said == "2 pauses cut to 60 s"
    text = WorkloadItem(id="t", prompt="long")
    assert "the text of 1 items is not cut" in resample.cap([text], 5, None, drop=False)[1]
