"""The scheduler against worked examples 4 and 5, and against random workloads with an audit after every step."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab_engine.core.admission import RefusalKind
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import StepResult
from benchlab_engine.core.request import FinishReason, RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.sim.costs import TEACHING, StepCosts
from benchlab_engine.sim.runner import PacedRunner

MS = 1_000_000


class Bench:
    """An engine in virtual time: arrivals are handed in when their instant has come, between iterations."""

    def __init__(self, costs, **config):
        self.now = 0
        self.scheduler = Scheduler(SchedulerConfig(prefix_cache=False, **config))
        self.engine = Engine(self.scheduler, PacedRunner(costs, (7,), self._advance), lambda: self.now)
        self.tokens: dict[str, list[int]] = {}
        self.times = {}

    def _advance(self, duration):
        self.now += duration

    def submit(self, name, prompt, output):
        refusal = self.scheduler.submit(RequestSpec(name, tuple(range(prompt)), output), self.now)
        assert refusal is None
        self.tokens[name] = []
        self.times[name] = self.scheduler.requests[name].times

    def step(self):
        outcome = self.engine.step()
        self.scheduler.audit()
        for emission in outcome.emissions:
            if emission.token is not None:
                self.tokens[emission.request_id].append(emission.at_ns)
        return outcome

    def run(self, arrivals=()):
        pending = list(arrivals)
        while pending or self.scheduler.requests:
            while pending and pending[0][0] <= self.now:
                self.submit(*pending.pop(0)[1:])
            self.step()


@pytest.mark.parametrize(
    ("budget", "ends", "first_c", "largest_gap", "reread"),
    [
        (12, [3, 12, 16, 20, 23], 10, 9, 0),
        (4, [3, 8, 12.4, 17.2, 21.2, 24.2, 26.2], 15.2, 5, 12),
    ],
)
def test_worked_example_4(budget, ends, first_c, largest_gap, reread):
    bench = Bench(TEACHING, max_seqs=3, max_batched_tokens=15, max_prefill_tokens=budget)
    bench.submit("A", 1, 6)
    bench.submit("B", 1, 3)
    bench.step()  # both have their first token and now decode
    bench.engine.journal.rows.clear()
    origin = bench.now
    bench.tokens["A"], bench.tokens["B"] = [origin], [origin]
    bench.run([(origin + 2 * MS, "C", 12, 3), (origin + 2 * MS, "D", 2, 3)])
    rows = list(bench.engine.journal.rows)
    assert [(row.end_ns - origin) / MS for row in rows] == ends
    assert (bench.tokens["C"][0] - origin) / MS - 2 == pytest.approx(first_c)
    gaps = [b - a for name in "AB" for a, b in zip(bench.tokens[name], bench.tokens[name][1:], strict=False)]
    assert max(gaps) == largest_gap * MS
    assert sum(row.num_prefill_tokens for row in rows) == 14
    assert sum(row.num_decodes for row in rows) == 11
    assert sum(row.num_reread for row in rows) == reread


@pytest.mark.parametrize(("policy", "end_of_d"), [("static", 12), ("continuous", 7), ("dynamic", 12)])
def test_worked_example_5(policy, end_of_d):
    bench = Bench(StepCosts(step=1), max_seqs=3, policy=policy, batch_wait_ns=3)
    bench.run([(0, "A", 1, 6), (0, "B", 1, 3), (0, "C", 1, 8), (2, "D", 1, 4)])
    assert bench.tokens["D"][-1] == end_of_d


def test_the_last_token_is_never_fed_back():
    bench = Bench(StepCosts(), num_blocks=200, max_batched_tokens=4096)
    bench.submit("A", 2000, 300)
    request = bench.scheduler.requests["A"]
    bench.run()
    assert request.computed == 2299
    assert len(request.output) == 300


def test_preemption_takes_the_youngest_and_everything_still_ends():
    bench = Bench(StepCosts(step=1), num_blocks=4, block_size=4, max_seqs=3)
    for name in "ABC":
        bench.submit(name, 4, 8)
    bench.run()
    assert bench.scheduler.num_preemptions > 0
    assert not bench.times["A"].preempted
    assert all(len(tokens) == 8 for tokens in bench.tokens.values())
    assert len(bench.times["C"].resumed) == len(bench.times["C"].preempted)
    assert bench.scheduler.pool.num_free == 4


def test_a_prefix_is_computed_once_and_not_shared_between_tenants():
    scheduler = Scheduler(SchedulerConfig(block_size=4, num_blocks=32))
    engine = Engine(scheduler, PacedRunner(StepCosts(), (7,), lambda _: None), lambda: 0)

    def cached(name, prompt, salt=""):
        assert scheduler.submit(RequestSpec(name, prompt, 2, salt=salt), 0) is None
        found = [emission.num_cached for _ in range(2) for emission in engine.step().emissions]
        scheduler.audit()
        return found[-1]

    prompt = tuple(range(16))
    assert cached("cold", prompt) == 0
    assert cached("warm", prompt) == 12  # the last block is computed again: its logits are needed
    assert cached("longer", (*prompt, 99)) == 16
    assert cached("other tenant", prompt, "b") == 0
    assert scheduler.pool.hit_tokens == 28


def test_refusals_come_at_once_with_their_numbers():
    scheduler = Scheduler(SchedulerConfig(max_seqs=1, queue_limit=1, num_blocks=4, block_size=4, max_model_len=64))

    def refused(name, prompt, output):
        refusal = scheduler.submit(RequestSpec(name, tuple(range(prompt)), output), 0)
        return refusal and refusal.kind

    assert refused("a", 0, 1) is RefusalKind.EMPTY
    assert refused("a", 60, 5) is RefusalKind.TOO_LONG
    assert refused("a", 16, 2) is RefusalKind.NEVER_FITS
    assert refused("a", 16, 1) is None
    assert refused("a", 1, 1) is RefusalKind.DUPLICATE
    assert refused("b", 1, 1) is None
    assert refused("c", 1, 1) is RefusalKind.QUEUE_FULL


@pytest.mark.parametrize(
    ("prompt", "new", "kind", "asked", "limit"),
    [
        (9, 1, RefusalKind.PROMPT_LIMIT, 9, 8),
        (8, 6, RefusalKind.OUTPUT_LIMIT, 6, 5),
        (1, 0, RefusalKind.EMPTY, 0, 1),
    ],
)
def test_limits_of_one_request(prompt, new, kind, asked, limit):
    scheduler = Scheduler(SchedulerConfig(max_prompt_tokens=8, max_new_tokens=5))
    assert scheduler.submit(RequestSpec("fits", (1,) * 8, 5), 0) is None
    refusal = scheduler.submit(RequestSpec("a", (1,) * prompt, new), 0)
    assert (refusal.kind, refusal.asked, refusal.limit) == (kind, asked, limit)
    assert kind is RefusalKind.EMPTY or (str(asked) in refusal.message and str(limit) in refusal.message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "random"}, "policy 'random' is not one of continuous, static, dynamic"),
        ({"speculate": "psychic"}, "speculate 'psychic' is not one of none, ngram, runner"),
        ({"speculate": "ngram"}, "needs num_drafts of at least 1"),
        ({"max_seqs": 0}, "at least one sequence"),
        ({"max_batched_tokens": 8}, "below max_seqs 16"),
        ({"growth_reserve": -1}, "growth_reserve -1 is below zero"),
        ({"age_ns": -1}, "age_ns -1 is below zero"),
        ({"num_blocks": 0}, "at least one block"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        Scheduler(SchedulerConfig(**settings))


def test_who_waits_too_long_is_refused_and_never_started():
    scheduler = Scheduler(SchedulerConfig(max_seqs=1))
    scheduler.submit(RequestSpec("runs", (1,), 9), 0)
    scheduler.submit(RequestSpec("waits", (1,), 9, max_wait_ns=5), 0)
    for now in (0, 5, 6):
        plan = scheduler.plan(now)
        scheduler.settle(plan, StepResult({work.request_id: (7,) for work in plan.works}), now)
    (news,) = scheduler.take_news()
    assert (news.request_id, news.finish) == ("waits", FinishReason.EXPIRED)


@pytest.mark.parametrize(("least", "length"), [(0, 1), (1, 2), (2, 3), (9, 9)])
def test_an_end_token_ends_nothing_before_the_least_length(least, length):
    """Also under a runner that draws it although it is banned. The least length is without the end token itself."""
    scheduler = Scheduler(SchedulerConfig())
    scheduler.submit(RequestSpec("a", (1,), 9, end_tokens=frozenset({7}), min_new_tokens=least), 0)
    out = []
    while scheduler.requests:
        plan = scheduler.plan(0)
        out += scheduler.settle(plan, StepResult({"a": (7,)}), 0)
    assert len(out) == length
    assert out[-1].finish is (FinishReason.LENGTH if least == 9 else FinishReason.STOP)


@pytest.mark.parametrize("policy", ["continuous", "static"])
def test_prefill_starts_when_its_first_chunk_is_planned(policy):
    bench = Bench(StepCosts(step=10), max_seqs=3, max_batched_tokens=4, policy=policy)
    bench.submit("A", 8, 2)
    bench.submit("B", 3, 2)
    bench.run()
    a, b = bench.times["A"], bench.times["B"]
    assert (a.accepted, a.queued, a.admitted, a.prefill_start, a.prefill_end) == (0, 0, 0, 0, 20)
    assert a.token_ready == [20, 30]
    assert a.released == 30
    assert b.admitted == (0 if policy == "static" else 20)  # a whole batch is let in at once
    assert (b.prefill_start, b.prefill_end) == (20, 30)


@pytest.mark.parametrize("name", ["decodes", "computes", "waits", "parent"])
def test_cancelling_frees_blocks_at_once_also_while_a_step_runs(name):
    """The step's result is for nobody then: neither the one that has gone nor whoever has its blocks and its name."""
    scheduler = Scheduler(SchedulerConfig(max_seqs=3, max_batched_tokens=6, block_size=4, num_blocks=20))
    scheduler.submit(RequestSpec("decodes", (1, 2), 9), 0)
    plan = scheduler.plan(0)
    scheduler.settle(plan, StepResult({"decodes": (7,)}), 0)
    scheduler.submit(RequestSpec("parent", (3, 4), 9), 0)
    scheduler.submit(RequestSpec("computes", tuple(range(30)), 9), 0)
    scheduler.submit(RequestSpec("waits", (3, 4), 9, parent="parent"), 0)
    plan = scheduler.plan(0)
    assert [work.request_id for work in plan.works] == ["decodes", "parent", "computes"]
    held, free = len(scheduler.requests[name].blocks), scheduler.pool.num_free
    assert scheduler.cancel(name, 1)
    assert scheduler.pool.num_free == free + held
    scheduler.audit()
    assert not scheduler.cancel(name, 1)
    assert scheduler.submit(RequestSpec(name, (5,) * 9, 3), 1) is None  # the same name again, before the result
    out = scheduler.settle(plan, StepResult({"decodes": (7,), "parent": (7,)}), 2)
    assert {each.request_id for each in out} == {"decodes", "parent"} - {name}
    assert scheduler.requests[name].output == []
    assert scheduler.requests[name].computed == 0
    scheduler.audit()
    assert [each.finish for each in scheduler.take_news()] == [FinishReason.CANCELLED]
    assert name in scheduler.plan(3).released


def test_steps_without_work_take_no_number_and_lose_no_news_of_the_ended():
    scheduler = Scheduler(SchedulerConfig())
    scheduler.submit(RequestSpec("a", (1,), 1), 0)
    scheduler.cancel("a", 0)
    assert (scheduler.plan(0).works, scheduler.plan(0).released) == ((), ())
    scheduler.submit(RequestSpec("b", (1,), 1), 0)
    plan = scheduler.plan(0)
    assert (plan.number, plan.released) == (1, ("a",))


def test_a_failed_step_ends_its_own_requests_only():
    class Broken:
        def execute(self, plan):
            raise RuntimeError("out of memory")

    scheduler = Scheduler(SchedulerConfig(max_seqs=1))
    engine = Engine(scheduler, Broken(), lambda: 0)
    scheduler.submit(RequestSpec("a", (1,), 9), 0)
    scheduler.submit(RequestSpec("b", (1,), 9), 0)
    outcome = engine.step()
    assert outcome.error == "RuntimeError: out of memory"
    assert [(each.request_id, each.finish) for each in outcome.emissions] == [("a", FinishReason.ERROR)]
    assert list(scheduler.requests) == ["b"]
    scheduler.audit()


arrivals = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 40), st.integers(1, 12), st.one_of(st.none(), st.integers(0, 9))),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(
    arrivals,
    st.sampled_from(["continuous", "static"]),
    st.booleans(),
    st.integers(14, 40),
    st.integers(4, 32),
    st.integers(0, 9),
)
def test_random_workloads(arrivals, policy, prefix_cache, num_blocks, budget, prompt_budget):
    """No block lost, computed never above wanted, everybody ends, first come first served without preemption."""
    config = SchedulerConfig(
        max_seqs=4,
        max_batched_tokens=budget,
        max_prefill_tokens=prompt_budget,
        block_size=4,
        num_blocks=num_blocks,
        policy=policy,
        prefix_cache=prefix_cache,
    )
    scheduler = Scheduler(config)
    now = 0
    engine = Engine(scheduler, PacedRunner(StepCosts(), (7,), lambda _: None), lambda: now)
    pending = [
        (gap, RequestSpec(str(index), tuple(range(prompt)), output), cancel_at)
        for index, (gap, prompt, output, cancel_at) in enumerate(arrivals)
    ]
    cancels: dict[str, int] = {}
    ends: dict[str, FinishReason] = {}
    counts: dict[str, int] = {}
    admitted: list[str] = []
    while pending or scheduler.requests:
        while pending and pending[0][0] <= now:
            _, spec, cancel_at = pending.pop(0)
            assert scheduler.submit(spec, now) is None
            if cancel_at is not None:
                cancels[spec.request_id] = now + cancel_at
        for name, at in cancels.items():
            if at == now and name in scheduler.requests:
                held = list(scheduler.requests[name].blocks)
                free = scheduler.pool.num_free
                assert scheduler.cancel(name, now)
                assert scheduler.pool.num_free >= free
                assert prefix_cache or scheduler.pool.num_free == free + len(held)
        before = set(scheduler.running)
        outcome = engine.step()
        scheduler.audit()
        if outcome.row is not None:
            assert outcome.row.num_decodes + outcome.row.num_prefill_tokens <= budget
            assert not prompt_budget or outcome.row.num_prefill_tokens <= prompt_budget
            admitted += [work[0] for work in outcome.row.works if work[0] not in before and work[0] not in admitted]
        for emission in outcome.emissions:
            counts[emission.request_id] = counts.get(emission.request_id, 0) + (emission.token is not None)
            if emission.finish:
                ends[emission.request_id] = emission.finish
        now += 1
        assert now < 5_000, "somebody starves"
    assert len(ends) == len(arrivals)
    for index, (_, _, output, _) in enumerate(arrivals):
        if ends[str(index)] is FinishReason.LENGTH:
            assert counts[str(index)] == output
    if not scheduler.num_preemptions:
        assert admitted == sorted(admitted, key=int)
    assert scheduler.pool.num_free == num_blocks


def test_core_is_standard_library_only():
    code = (
        "import sys, benchlab_engine.core.loop, benchlab_engine.core.scheduler\n"
        "print([m for m in ('torch', 'numpy', 'aiohttp', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("named", "ended"),
    [(("a",), {"a"}), (["b", "x"], {"b"}), (("x",), {"a", "b"}), ((), {"a", "b"}), ("ab", {"a", "b"}), (7, {"a", "b"})],
)
def test_a_failed_step_ends_those_that_the_error_names_or_all_if_it_names_none_of_them(named, ended):
    class Breaks:
        def execute(self, plan):
            if plan.number == 2:
                error = RuntimeError("planned")
                error.request_ids = named
                raise error
            return StepResult({work.request_id: (7,) for work in plan.works if work.samples})

    engine = Engine(Scheduler(SchedulerConfig()), Breaks(), lambda: 0)
    for name in ("a", "b"):
        engine.submit(RequestSpec(name, (1, 2), 3), 0)
    engine.step()
    outcome = engine.step()
    assert outcome.error == "RuntimeError: planned"
    assert {each.request_id: each.finish for each in outcome.emissions} == dict.fromkeys(ended, FinishReason.ERROR)
    engine.scheduler.audit()
    told = [engine.step().emissions for _ in range(3)]
    assert [len(each) for each in told] == [2 - len(ended)] * 2 + [0]
    assert not engine.scheduler.requests
