"""Sessions and agent graphs: each item of a begun session is due once or dropped with its reason, never before what
it waits for has been answered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.loadgen.plan import Dropped, Due
from benchlab.loadgen.session_graph import SessionGraph, find_needs, has_sessions, in_sessions
from benchlab.loadgen.sessions import Sessions
from benchlab.records.event import Outcome
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem

OUTCOMES = [Outcome.OK] * 5 + [Outcome.TIMEOUT, Outcome.ERROR_CONNECT, Outcome.CANCELLED]


def item(name: str, *after: str, **more) -> WorkloadItem:
    return WorkloadItem(id=name, prompt="x", depends_on=list(after) or None, **more)


def chat(session: str, turns: int, wait_s: float | None = None) -> list[WorkloadItem]:
    return [
        WorkloadItem(id=f"{session}{n}", prompt="x", session=session, turn=n, wait_s=wait_s if n > 1 else None)
        for n in range(1, turns + 1)
    ]


DIAMOND = [item("plan"), item("left", "plan", wait_s=1.0), item("right", "plan"), item("join", "left", "right")]


@st.composite
def workloads(draw: st.DrawFn) -> list[WorkloadItem]:
    """Items in which each may wait for some of those before it, in any order in the file."""
    count = draw(st.integers(1, 14))
    items = []
    for n in range(count):
        before = draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True)) if n else []
        wait = draw(st.none() | st.integers(0, 3))
        items.append(item(f"i{n}", *(f"i{m}" for m in before), wait_s=wait))
    return in_sessions(draw(st.permutations(items)))


def walk(
    plan: Sessions, took: list[int], fates: list[Outcome], stop_ns: int | None = None
) -> tuple[list[tuple[Due, int, Outcome]], list[Dropped]]:
    """Run a plan to its end, event by event: request k takes took[k] and ends in fates[k]. (due, end, outcome)."""
    under_way: list[tuple[int, int, Due]] = []
    done: list[tuple[Due, int, Outcome]] = []
    dropped: list[Dropped] = []
    now = sent = 0
    while True:
        dropped += plan.dropped()
        next_due = plan.next_due_ns()
        instants = [ns for ns in (next_due, min(under_way)[0] if under_way else None) if ns is not None]
        if not instants:
            return done, dropped
        now = max(now, min(instants))
        if stop_ns is not None and now >= stop_ns:
            plan.stop(stop_ns)
        for entry in sorted(under_way):
            if entry[0] <= now:
                under_way.remove(entry)
                outcome = fates[len(done) % len(fates)]
                done.append((entry[2], now, outcome))
                plan.ended(entry[2], now, outcome)
        for due in plan.take(now):
            assert due.at_ns <= now
            under_way.append((now + 1 + took[sent % len(took)], due.sequence, due))
            sent += 1


def check(
    items: list[WorkloadItem], graph: SessionGraph, plan: Sessions, done: list[tuple[Due, int, Outcome]],
    dropped: list[Dropped],
) -> None:  # fmt: skip
    """Each item of each begun session once; none before what it waits for was answered, and its pause over."""
    ends = {due.sequence: (end, outcome) for due, end, outcome in done}
    all_sequences = [due.sequence for due, _, _ in done] + [each.due.sequence for each in dropped]
    assert len(all_sequences) == len(set(all_sequences))
    rounds: dict[int, int] = {}
    for sequence in all_sequences:
        session = graph.session_at(sequence)
        session -= graph.position(session) != sequence
        rounds[session] = rounds.get(session, 0) + 1
    assert len(rounds) == plan.begun
    assert all(count == len(graph.places(session)) for session, count in rounds.items())
    for due, _, _ in done:
        base = due.sequence - due.item
        for other in graph.needs[due.item]:
            end, outcome = ends[base + other]
            assert outcome is Outcome.OK
            assert due.at_ns >= end + round((items[due.item].wait_s or 0) * NS_PER_S)
    for each in dropped:
        if each.kind == "session":
            base = each.due.sequence - each.due.item
            bad = {base + other for other in graph.needs[each.due.item]}
            gone = {other.due.sequence for other in dropped}
            assert any(name in gone or ends[name][1] is not Outcome.OK for name in bad)


@settings(deadline=None)
@given(
    items=workloads(),
    starts=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    took=st.lists(st.integers(0, 4 * NS_PER_S), min_size=1, max_size=5),
    fates=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=9),
    until_s=st.none() | st.integers(1, 20),
    stop_s=st.none() | st.integers(0, 12),
)
def test_every_item_of_a_begun_session_is_due_once_or_accounted_for(
    items: list[WorkloadItem], starts: list[int], took: list[int], fates: list[Outcome], until_s: int | None,
    stop_s: int | None,
) -> None:  # fmt: skip
    graph = SessionGraph(items)
    until = None if until_s is None else until_s * NS_PER_S
    at_ns = sorted(second * NS_PER_S for second in starts if until_s is None or second < until_s)
    plan = Sessions(graph, at_ns=at_ns, numbers=range(len(at_ns)), until_ns=until)

    done, dropped = walk(plan, took, fates, None if stop_s is None else stop_s * NS_PER_S)

    check(items, graph, plan, done, dropped)
    limit = min(ns for ns in (until, None if stop_s is None else stop_s * NS_PER_S, 2**62) if ns is not None)
    assert all(due.at_ns < limit for due, _, _ in done)
    if until is None and stop_s is None:
        assert plan.begun == len(at_ns) and not [each for each in dropped if each.kind == "cut"]
        if set(fates) == {Outcome.OK}:
            assert not dropped


@settings(deadline=None)
@given(
    items=workloads(),
    users=st.integers(1, 4),
    count=st.integers(1, 9),
    took=st.lists(st.integers(0, 4 * NS_PER_S), min_size=1, max_size=5),
    fates=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=9),
)
def test_closed_loops_keep_so_many_sessions(
    items: list[WorkloadItem], users: int, count: int, took: list[int], fates: list[Outcome]
) -> None:
    graph = SessionGraph(items)
    plan = Sessions(graph, users=range(users), count=count)

    done, dropped = walk(plan, took, fates)

    check(items, graph, plan, done, dropped)
    assert plan.begun == count
    spans: dict[int, list[tuple[int, int]]] = {}
    for due, end, _ in done:
        session = graph.session_at(due.sequence)
        session -= graph.position(session) != due.sequence
        spans.setdefault(session, []).append((due.at_ns, end))
    edges = sorted(
        edge
        for times in spans.values()
        for edge in ((min(at for at, _ in times), 1), (max(end for _, end in times), -1))
    )
    level = peak = 0
    for _, step in sorted(edges, key=lambda edge: (edge[0], edge[1])):
        level += step
        peak = max(peak, level)
    assert peak <= users


def test_a_later_turn_is_due_when_the_answer_has_ended_and_the_pause_is_over() -> None:
    graph = SessionGraph(chat("a", 3, wait_s=2.0))
    plan = Sessions(graph, at_ns=[5], numbers=[0])

    done, dropped = walk(plan, [NS_PER_S - 1], [Outcome.OK])

    assert [due.at_ns for due, _, _ in done] == [5, 5 + 3 * NS_PER_S, 5 + 6 * NS_PER_S] and not dropped


def test_a_fan_out_joins_when_all_have_ended() -> None:
    graph = SessionGraph(DIAMOND)
    plan = Sessions(graph, at_ns=[0], numbers=[0])

    done, _ = walk(plan, [NS_PER_S - 1], [Outcome.OK])

    assert {due.sequence: due.at_ns // NS_PER_S for due, _, _ in done} == {0: 0, 1: 2, 2: 1, 3: 3}


def test_c26_a_failed_turn_ends_its_session_and_the_user_begins_another() -> None:
    graph = SessionGraph(chat("a", 5) + chat("b", 2))
    plan = Sessions(graph, users=[0], count=2)

    done, dropped = walk(plan, [9], [Outcome.TIMEOUT, Outcome.OK])

    assert [due.sequence for due, _, _ in done] == [0, 5, 6]
    assert [each.due.sequence for each in dropped] == [1, 2, 3, 4]
    assert all(each.kind == "session" and "timeout" in each.why for each in dropped)


def test_turns_of_one_number_go_out_together_and_the_next_waits_for_all() -> None:
    items = [WorkloadItem(id=f"x{n}", prompt="x", session="s", turn=turn) for n, turn in enumerate([1, 2, 2, 3])]

    assert find_needs(items) == [(), (0,), (0,), (1, 2)]


def test_a_trace_of_single_requests_has_no_sessions_though_they_are_named() -> None:
    items = [WorkloadItem(id=str(n), prompt="x", session="s", arrival_s=float(n)) for n in range(3)]

    assert not has_sessions(items)


def test_interleaved_sessions_are_put_together_in_their_order() -> None:
    a, b = chat("a", 2), chat("b", 2)

    items = in_sessions([a[0], b[0], b[1], a[1]])

    assert [each.id for each in items] == ["a1", "a2", "b1", "b2"]
    assert SessionGraph(items).starts == [0, 2]


@settings(deadline=None)
@given(items=workloads(), rounds=st.integers(0, 3))
def test_positions_and_sessions_name_each_other(items: list[WorkloadItem], rounds: int) -> None:
    graph = SessionGraph(items)

    for session in range(rounds * graph.num_sessions, (rounds + 1) * graph.num_sessions):
        position = graph.position(session)
        assert session == graph.session_at(position)
        assert position % len(items) == graph.places(session)[0]
        assert all(graph.session_at(position + n) == session + 1 for n in range(1, len(graph.places(session))))


def test_what_can_never_be_due_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="no item of the workload"):
        find_needs([item("a", "z")])
    with pytest.raises(UsageError, match="wait for one another"):
        find_needs([item("a", "b"), item("b", "a"), item("c")])
    with pytest.raises(UsageError, match="wait for one another"):
        find_needs([item("a", "a")])


def test_turns_of_a_trace_keep_their_own_times_where_they_have_any() -> None:
    items = [item("a", arrival_s=10.0), item("b", "a", arrival_s=14.0), item("c", "b", arrival_s=14.5)]
    plan = Sessions(SessionGraph(items), at_ns=[0], numbers=[0], keep_times=True)

    done, _ = walk(plan, [NS_PER_S - 1], [Outcome.OK])

    assert [due.at_ns / NS_PER_S for due, _, _ in done] == [0, 4, 5]
