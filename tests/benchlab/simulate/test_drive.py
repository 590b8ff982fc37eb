"""The virtual-time driver: plans of the real core, instants of the client, and every way a request can end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.loadgen.think import ThinkTime
from benchlab.records.event import Kind, Outcome
from benchlab.workload.ids import token_ids
from benchlab.workload.item import WorkloadItem
from benchlab_engine.core.journal import Journal
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Sampling
from benchlab_engine.core.replay import replay
from benchlab_engine.core.request import RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.sim.costs import TEACHING
from benchlab_engine.sim.runner import PacedRunner
from tests.benchlab.simulate.loads import MS, S, closed_stage, items, open_stage, settings, simulated

# -- worked example 4: the schedule with and without chunked prefill -----------------------------------------------


def chunked(budget):
    """A and B come first with a prompt of one token each: 2 ms, the example's time zero; C and D 2 ms after it."""
    four = items((1, 6), (1, 3), (12, 3), (2, 3))
    engine = settings(max_seqs=3, max_batched_tokens=15, max_prefill_tokens=budget, prefix_cache=False)
    return simulated(engine, four, open_stage([0, 0, 4, 4], until_ms=5))


@pytest.mark.parametrize(
    ("budget", "first_ms", "gap_ms", "end_ms", "iterations", "reread"),
    [(12, 10, 9, 23, 5, 0), (4, 15.2, 5, 26.2, 7, 12)],
)
def test_the_worked_schedule(budget, first_ms, gap_ms, end_ms, iterations, reread):
    found = chunked(budget)
    a, b, c, _ = (found.records[f"s0-{n}"].visible_ns() for n in range(4))
    assert a[0] == b[0] == 2 * MS  # the example's zero
    assert c[0] - 4 * MS == first_ms * MS
    gaps = [later - earlier for each in (a, b) for earlier, later in itertools.pairwise(each)]
    assert max(gaps) == gap_ms * MS
    assert max(record.end_ns for record in found.records.values()) - 2 * MS == end_ms * MS
    steps = found.steps[1:]
    assert len(steps) == iterations
    assert sum(step["num_prefill_tokens"] for step in steps) == 14
    assert sum(step["num_decodes"] for step in steps) == 11
    assert sum(step["num_reread"] for step in steps) == reread


# -- worked example 8: queueing, overload, Little's law ------------------------------------------------------------

COSTS = "prompt=80us,decode=625us"  # 2,000 prompt tokens 0.16 s, 1,600 output tokens a second
LONG = {"max_model_len": 4096, "num_blocks": 100_000, "max_batched_tokens": 4096, "queue_limit": 10_000}


def at_capacity(item, **core):
    """Requests a second of 32 users who never leave the accelerator idle."""
    engine = settings(COSTS, max_seqs=32, **LONG, **core)
    found = simulated(engine, item, closed_stage(32, count=160), journal=False)
    return 160 / (found.ends[0].end_ns / S)


def test_capacity_without_and_with_reuse():
    assert at_capacity(items(*[(2000, 300)] * 999)) == pytest.approx(2.88, rel=0.02)
    shared = items(*[(2000, 300)] * 999, prefix_blocks=list(range(75)), block_tokens=16)
    assert at_capacity(shared) == pytest.approx(3.98, rel=0.02)
    assert at_capacity(shared, prefix_cache=False) == pytest.approx(2.88, rel=0.02)


def test_below_capacity_little_holds():
    at = range(0, 100_000, 400)  # 2.5 /s
    found = simulated(
        settings(COSTS, max_seqs=64, **LONG),
        items(*[(2000, 300)] * 250),
        open_stage(at, until_ms=100_000),
        journal=False,
    )
    stays = [(r.end_ns - r.sent_ns) / S for r in found.records.values() if 30 * S <= r.sent_ns < 90 * S]
    inside = sum(max(0, min(r.end_ns, 90 * S) - max(r.sent_ns, 30 * S)) / S for r in found.records.values()) / 60
    assert inside == pytest.approx(2.5 * sum(stays) / len(stays), rel=0.02)


def test_above_capacity_the_backlog_grows_and_the_last_wait_longest():
    at = range(0, 60_000, 250)  # 4 /s
    found = simulated(
        settings(COSTS, max_seqs=32, **LONG),
        items(*[(2000, 300)] * 240),
        open_stage(at, until_ms=60_000),
        journal=False,
    )
    # Work that has come and is not done: 1.12 requests a second, 67 after a minute, 23 s of it.
    left_s = found.ends[0].end_ns / S - 60
    assert left_s == pytest.approx(67 / 2.88, abs=0.5)
    assert left_s == pytest.approx(23, abs=0.7)


def test_a_wait_budget_sheds_what_is_too_much():
    at = range(0, 150_000, 250)
    engine = settings(COSTS, max_wait_ns=2 * S, max_seqs=32, **LONG)
    found = simulated(engine, items(*[(2000, 300)] * 600), open_stage(at, until_ms=150_000))
    late = [r for r in found.records.values() if r.sent_ns > 60 * S]
    shed = [r for r in late if r.error_kind == "shed"]
    assert {(r.http_status, r.outcome) for r in shed} == {(503, Outcome.ERROR_HTTP)}
    assert len(shed) / len(late) == pytest.approx(0.28, abs=0.03)
    waiting = [step["num_waiting"] for step in found.steps if step["start_ns"] > 60 * S]
    assert max(waiting) <= 9
    assert sum(waiting) / len(waiting) < 8.5


# -- the same plans as the engine driven by hand -------------------------------------------------------------------


def by_hand(arrivals, config):
    """An engine with requests put in between its steps, as a mailbox would; the rows of its journal."""
    now, entries = [0], []
    runner = PacedRunner(TEACHING, range(256), lambda ns: now.__setitem__(0, now[0] + ns))
    engine = Engine(Scheduler(config), runner, lambda: now[0], Journal(1, entries.append))
    coming = list(enumerate(arrivals))
    while coming or engine.scheduler.requests:
        while coming and coming[0][1][0] <= now[0]:
            number, (_, item) = coming.pop(0)
            engine.submit(
                RequestSpec(f"s0-{number}", token_ids(item), item.output_tokens, Sampling(seed=number)), now[0]
            )
        if not engine.scheduler.requests:
            now[0] = coming[0][1][0]
            continue
        engine.step()
    return [entry for entry in entries if entry["kind"] == "step"]


lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=12)


@hypothesis(max_examples=40, deadline=None)
@given(lengths, st.data(), st.sampled_from([0, 6]), st.sampled_from([8, 60]), st.booleans())
def test_plans_are_those_of_the_engine_step_for_step(lengths, data, prefill, blocks, cache):
    work = items(*lengths)
    gaps = data.draw(st.lists(st.integers(0, 40 * MS), min_size=len(work), max_size=len(work)))
    at = [sum(gaps[: n + 1]) for n in range(len(work))]
    core = {
        "max_seqs": 4, "max_batched_tokens": 16, "max_prefill_tokens": prefill, "num_blocks": blocks, "block_size": 8,
        "prefix_cache": cache, "max_model_len": 64,
    }  # fmt: skip
    found = simulated(settings(**core), work, open_stage([ns / MS for ns in at], until_ms=at[-1] / MS + 1))
    expected = by_hand(list(zip(at, work, strict=True)), SchedulerConfig(**core))
    assert found.steps == expected
    again = replay(None, found.journal)
    assert again.equal, again.difference
    assert again.num_steps == len(found.steps)


@hypothesis(max_examples=40, deadline=None)
@given(
    st.integers(1, 6), lengths, st.sampled_from(["continuous", "static", "dynamic"]), st.integers(0, 60),
    st.sampled_from([None, 1, 2]), st.integers(0, 30), st.sampled_from([0, 15 * MS]), st.sampled_from([0, 3]),
)  # fmt: skip
def test_every_request_ends_once_whatever_the_load(users, lengths, policy, drain, cap, timeout, wait, drafts):
    speculate = {"speculate": "runner", "num_drafts": drafts} if drafts else {}
    engine = settings(
        "teaching,accept=0.6", wait, max_seqs=3, max_batched_tokens=16, num_blocks=8, block_size=8, max_model_len=48,
        queue_limit=1, policy=policy, **speculate,
    )  # fmt: skip
    more = {"until_ms": 80, "drain_ms": drain, "max_inflight": cap, "held_in_drain": timeout % 2 == 1}
    at = [7 * n % 80 for n in range(4 * users)]
    job = closed_stage(users, **more) if wait or timeout < 15 else open_stage(sorted(at), **more)
    patience = {"total": timeout * MS or None, "gap": 9 * MS if timeout == 7 else None}
    found = simulated(engine, items(*lengths), job, timeouts_ns=patience)
    assert len(found.records) >= users
    for record in found.records.values():
        assert record.outcome is not Outcome.OK or record.output_tokens == len(record.visible_ns())
        assert record.intended_ns < 80 * MS


# -- the client ----------------------------------------------------------------------------------------------------


def one(engine, job, prompt=2, output=4, **more):
    found = simulated(engine, items((prompt, output)), job, **more)
    return found.records["s0-0"]


def test_a_record_of_an_ideal_client():
    record = one(settings(), open_stage([1.5], until_ms=10))
    assert record.outcome is Outcome.OK
    assert (record.intended_ns, record.dispatched_ns, record.sent_ns) == (1_500_000,) * 3
    assert record.headers_ns == record.chunk_ns[0] == 3_500_000  # 1 + 2 x 0.5 ms
    assert list(record.chunk_ns) == [3_500_000, 5_500_000, 7_500_000, 9_500_000, 9_500_000]
    assert record.chunk_kind[-2:] == [Kind.CONTENT, Kind.FINISH]
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (2, 4, 0)
    assert (record.tokens_source, record.finish_reason, record.stamp_source) == ("usage", "length", "simulated")
    assert record.end_ns == 9_500_000


def test_a_prompt_that_comes_again_is_found_in_the_cache_unless_it_is_cold():
    work = items((64, 1))
    for salt, cached in ((None, 48), ("cold", 0)):
        found = simulated(settings(), work, open_stage([0, 100], until_ms=101), salt=salt)
        assert found.records["s0-1"].cached_tokens == cached


def test_patience_ends_a_request_at_its_instant():
    total = one(settings(), open_stage([0], until_ms=1), output=9, timeouts_ns={"total": 5 * MS})
    assert (total.outcome, total.error_kind, total.end_ns) == (Outcome.TIMEOUT, "total", 5 * MS)
    assert len(total.visible_ns()) == 2  # at 2 and 4 ms
    first = one(settings(), open_stage([0], until_ms=1), prompt=100, timeouts_ns={"first_content": 20 * MS})
    assert (first.outcome, first.error_kind, first.end_ns) == (Outcome.TIMEOUT, "first_content", 20 * MS)
    gap = one(settings("ttft=1ms,itl=8ms"), open_stage([0], until_ms=1), timeouts_ns={"gap": 5 * MS})
    assert (gap.outcome, gap.error_kind, gap.end_ns) == (Outcome.TIMEOUT, "gap", gap.chunk_ns[0] + 5 * MS)
    fine = one(settings(), open_stage([0], until_ms=1), timeouts_ns={"gap": 5 * MS, "total": None})
    assert fine.outcome is Outcome.OK


def test_the_drain_cuts_what_is_still_in_flight():
    record = one(settings(), open_stage([0], until_ms=5, drain_ms=10), output=100)
    assert (record.outcome, record.end_ns, record.error_kind) == (Outcome.UNFINISHED, 15 * MS, "drain")
    assert len(record.visible_ns()) == 7


def test_the_cap_holds_back_and_says_so():
    work = items((2, 4), (2, 4), (2, 100))
    held = simulated(settings(), work, open_stage([0, 0, 0], until_ms=20, max_inflight=1))
    second, third = held.records["s0-1"], held.records["s0-2"]
    assert second.outcome is Outcome.OK
    assert second.held_ns == held.records["s0-0"].end_ns == second.sent_ns
    assert third.outcome is Outcome.OK  # sent before the end, it may finish in the drain
    assert held.ends[0].held == 2
    assert held.ends[0].peak_inflight == 1
    never = simulated(settings(), items((2, 100)), open_stage([0, 0], until_ms=20, max_inflight=1))
    assert (never.records["s0-1"].outcome, never.records["s0-1"].end_ns) == (Outcome.NOT_SENT, 20 * MS)
    later = simulated(settings(), items((2, 100)), open_stage([0, 0], until_ms=20, max_inflight=1, held_in_drain=True))
    assert later.records["s0-1"].outcome is Outcome.OK


def test_refusals_have_the_status_a_server_gives():
    full = simulated(settings(max_seqs=1, queue_limit=0), items((2, 4)), open_stage([0, 0], until_ms=1))
    shed = full.records["s0-1"]
    assert (shed.outcome, shed.http_status, shed.error_kind, shed.end_ns) == (Outcome.ERROR_HTTP, 503, "shed", MS)
    long = one(settings(max_model_len=10), open_stage([0], until_ms=1), prompt=9, output=9)
    assert (long.outcome, long.http_status, long.error_kind) == (Outcome.ERROR_HTTP, 400, None)
    assert "9 prompt tokens" in long.error


def test_refused_users_who_ask_again_at_once_do_not_stop_the_clock():
    found = simulated(settings(max_seqs=1, queue_limit=0), items((2, 4)), closed_stage(3, until_ms=50))
    assert 80 < len(found.records) < 120  # two users are refused once a millisecond


def test_a_closed_loop_thinks_and_ends_by_count_or_by_time():
    found = simulated(settings(), items((2, 4)), closed_stage(1, count=3, think=ThinkTime(first=7 * MS)))
    # The same prompt again has no full block to find: each takes 2 + 3 x 2 ms.
    assert [r.sent_ns for r in found.records.values()] == [0, 15 * MS, 30 * MS]
    assert found.ends[0].end_ns == 38 * MS
    timed = simulated(settings(), items((2, 4)), closed_stage(1, until_ms=20))
    assert [r.sent_ns for r in timed.records.values()] == [0, 8 * MS, 16 * MS]


def test_stages_follow_each_other_on_one_engine():
    first, second = open_stage([0], until_ms=30), open_stage([0], until_ms=30, stage=1, start_ns=100 * MS)
    found = simulated(settings(), items((64, 2)), first, second)
    assert [end.end_ns for end in found.ends] == [35 * MS, 130 * MS]
    assert found.records["s1-0"].intended_ns == 100 * MS
    assert found.records["s1-0"].cached_tokens == 48


def test_a_batch_that_waits_to_fill_starts_when_its_wait_is_over():
    record = one(settings(policy="dynamic", batch_wait_ns=50 * MS), open_stage([0], until_ms=1))
    assert record.chunk_ns[0] == 52 * MS


def test_an_item_that_does_not_say_how_much_gets_the_stated_length():
    found = simulated(settings(), [WorkloadItem(id="x", prompt="hello there")], open_stage([0], until_ms=1))
    assert found.records["s0-0"].output_tokens == 128
    assert found.records["s0-0"].prompt_tokens == 2


@pytest.mark.parametrize("profile", ["null", "ttft=5ms", "prompt=1ms"])
def test_steps_that_take_no_time_are_refused(profile):
    with pytest.raises(UsageError, match="takes no time"):
        simulated(settings(profile), items((2, 4)), closed_stage(1, until_ms=10))
