"""Who is next: arrival, aged priority, fair shares; and that the line costs the same however long it is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab_engine.core.heap import KeyedHeap
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.request import FinishReason, Request, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from benchlab_engine.core.shares import OUTPUT_WEIGHT, PROMPT_WEIGHT, Shares
from benchlab_engine.core.waiting import WaitingLine
from tests.engines.core.fakes import SlotRunner


@given(st.lists(st.tuples(st.sampled_from(["add", "discard"]), st.integers(0, 9), st.integers(0, 5)), max_size=200))
def test_a_keyed_heap_is_a_sorted_dict(actions):
    heap, model = KeyedHeap(), {}
    for what, number, key in actions:
        name = str(number)
        if what == "add":
            heap.add(name, key)
            model[name] = key
        else:
            assert heap.discard(name) == (model.pop(name, None) is not None)
        least = min(((key, name) for name, key in model.items()), default=(None, None))
        assert (heap.first_key(), heap.first()) == least
        assert len(heap) == len(model)


def test_a_keyed_heap_forgets_those_who_have_left():
    heap = KeyedHeap()
    heap.add("first", -1)
    for number in range(10_000):
        heap.add(str(number), number)
        heap.discard(str(number))
    assert len(heap._heap) < 200


def test_who_is_next_costs_a_logarithm_of_the_line():
    class Key(int):
        compared = 0

        def __lt__(self, other):
            Key.compared += 1
            return int(self) < int(other)

    heap, number = KeyedHeap(), 1 << 13
    for each in range(number):
        heap.add(str(each), Key(each * 7919 % number))
    order = []
    while (name := heap.first()) is not None:
        order.append(int(name) * 7919 % number)
        heap.discard(name)
    assert order == sorted(order)
    assert Key.compared < number * 13 * 4, Key.compared


class Steps:
    """An engine where a step takes one nanosecond."""

    def __init__(self, **config):
        self.now = 0
        self.scheduler = Scheduler(SchedulerConfig(**{"block_size": 4, "num_blocks": 64, **config}))
        self.engine = Engine(self.scheduler, SlotRunner(self.scheduler), lambda: self.now)
        self.ends: dict[str, FinishReason] = {}
        self.first: list[str] = []  # in order of admission
        self.times: dict[str, RequestTimes] = {}

    def submit(self, name, prompt=1, new=2, **more):
        tokens = tuple(range(prompt)) if isinstance(prompt, int) else prompt
        refusal = self.engine.submit(RequestSpec(name, tokens, new, **more), self.now)
        if refusal is None:
            self.times[name] = self.scheduler.requests[name].times
        return refusal

    def step(self):
        outcome = self.engine.step()
        self.scheduler.audit()
        assert outcome.error is None, outcome.error
        works = outcome.row.works if outcome.row is not None else ()
        self.first += [name for name, *_ in works if name not in self.first]
        self.ends |= {e.request_id: e.finish for e in outcome.emissions if e.finish is not None}
        self.now += 1
        return outcome

    def run(self, most=10_000):
        while self.scheduler.requests:
            self.step()
            assert self.now < most, "somebody starves"


def test_lower_goes_first_and_equals_by_arrival():
    bench = Steps(max_seqs=1)
    for name, priority in [("a", 1), ("b", 0), ("c", 1), ("d", -1), ("e", 0)]:
        bench.submit(name, priority=priority)
    bench.run()
    assert bench.first == ["d", "b", "e", "a", "c"]


@pytest.mark.parametrize("age", [3, 10])
def test_waiting_is_worth_priority_so_nothing_starves(age):
    """A request of priority 4 goes before those of priority 0 that come more than 4 ages after it."""
    bench = Steps(max_seqs=1, age_ns=age)
    bench.submit("patient", priority=4)
    number = 0
    while "patient" not in bench.first:
        bench.submit(f"urgent{number}", new=1)
        number += 1
        bench.step()
    assert 4 * age <= bench.times["patient"].admitted <= 4 * age + 2
    without = Steps(max_seqs=1, age_ns=0, queue_limit=1000)
    without.submit("patient", priority=4)
    for number in range(300):
        without.submit(f"urgent{number}", new=1)
        without.step()
    assert "patient" not in without.first


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 50)), min_size=1, max_size=20), st.integers(1, 9))
def test_the_fixed_key_orders_as_the_aged_priority_does(requests, age):
    """priority - waited / age, at an instant after all arrivals, by definition."""
    line = WaitingLine()
    arrivals = sorted(requests, key=lambda each: each[1])
    for number, (priority, at) in enumerate(arrivals):
        spec = RequestSpec(str(number), (1,), 1, priority=priority)
        line.append(Request(spec, RequestTimes(queued=at), (priority * age + at, number)))
    now = 60
    wanted = sorted(range(len(arrivals)), key=lambda n: (arrivals[n][0] * age - (now - arrivals[n][1]), n))
    order = []
    while (head := line.head()) is not None:
        order.append(int(head.spec.request_id))
        line.remove(head.spec.request_id)
    assert order == wanted
    assert len(line) == 0


def test_tenants_get_equal_tokens_however_many_requests_they_send():
    bench = Steps(max_seqs=2, fair_share=True, queue_limit=500, num_blocks=200)
    for number in range(100):
        bench.submit(f"loud{number}", prompt=4, new=4, tenant="loud")
    for number in range(10):
        bench.submit(f"quiet{number}", prompt=4, new=4, tenant="quiet")
    bench.run()
    last_quiet = bench.first.index("quiet9")
    assert 17 <= last_quiet <= 21, "the two go in turns while both wait"
    fcfs = Steps(max_seqs=2, fair_share=False, queue_limit=500, num_blocks=200)
    for name, times in bench.times.items():
        fcfs.submit(name, prompt=4, new=4, tenant=name[:4])
        assert times.admitted is not None
    fcfs.run()
    assert fcfs.first == sorted(fcfs.first, key=list(fcfs.times).index)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6)), min_size=2, max_size=6), st.integers(1, 4))
def test_tenants_that_both_wait_stay_within_the_papers_bound(kinds, max_seqs):
    """Twice the larger of one prompt's weight and that of a full batch's output, at every instant."""
    bench = Steps(max_seqs=max_seqs, fair_share=True, queue_limit=500, prefix_cache=False, num_blocks=200)
    served = {"a": 0, "b": 0}
    bound = 2 * max(20 * PROMPT_WEIGHT, 6 * max_seqs * OUTPUT_WEIGHT)
    specs = {}
    number = 0
    for _ in range(60):
        waiting = [name[0] for name, each in bench.scheduler.requests.items() if each.times.admitted is None]
        for tenant in "ab":  # both are backlogged all the time
            for _ in range(max_seqs + 1 - waiting.count(tenant)):
                prompt, new = kinds[0 if tenant == "a" else 1 + number % (len(kinds) - 1)]
                specs[f"{tenant}{number}"] = prompt
                bench.submit(f"{tenant}{number}", prompt, new, tenant=tenant)
                number += 1
        before = set(bench.first)
        outcome = bench.step()
        for name in set(bench.first) - before:
            served[name[0]] += PROMPT_WEIGHT * specs[name]
        for emission in outcome.emissions:
            served[emission.request_id[0]] += OUTPUT_WEIGHT * (emission.token is not None)
        assert abs(served["a"] - served["b"]) <= bound


@pytest.mark.parametrize(("long", "short"), [((30, 5), (5, 5)), ((4, 20), (4, 2))])
def test_fair_is_by_tokens_not_by_requests(long, short):
    """Of prompts and of outputs, by their weights."""
    bench = Steps(max_seqs=1, fair_share=True, queue_limit=500, prefix_cache=False)
    for number in range(60):
        bench.submit(f"long{number}", *long, tenant="long")
        bench.submit(f"short{number}", *short, tenant="short")
    for _ in range(250):
        bench.step()
    longs = sum(name.startswith("long") for name in bench.first)
    shorts = len(bench.first) - longs
    weights = [PROMPT_WEIGHT * prompt + OUTPUT_WEIGHT * new for prompt, new in (long, short)]
    assert shorts / longs == pytest.approx(weights[0] / weights[1], rel=0.15)


def test_idle_tenants_bank_no_credit():
    bench = Steps(max_seqs=1, fair_share=True, queue_limit=500)
    bench.submit("early", tenant="away")
    for number in range(40):
        bench.submit(f"busy{number}", tenant="busy")
    while len(bench.first) < 20:
        bench.step()
    for number in range(10):
        bench.submit(f"back{number}", tenant="away")
    start = len(bench.first)
    bench.run()
    names = bench.first[start : start + 10]
    assert 4 <= sum(name.startswith("back") for name in names) <= 6


def test_a_priority_moves_nobody_past_another_tenant():
    bench = Steps(max_seqs=1, fair_share=True)
    for number in range(6):
        bench.submit(f"a{number}", tenant="a", priority=-100)
        bench.submit(f"b{number}", tenant="b")
    bench.run()
    assert all({one[0], two[0]} == {"a", "b"} for one, two in zip(bench.first[::2], bench.first[1::2], strict=True))


def test_shares_forget_tenants_that_have_no_more_than_the_rest():
    shares = Shares()
    for number in range(5_000):
        shares.arrives(str(number), [], None)
        shares.charge(str(number), 1)
        shares.leaves(str(number))
    assert len(shares._served) < 1_100
    assert shares.of("4999") > 4_000  # each came back level with the one before, and was served


def test_a_preempted_request_comes_back_before_its_equals():
    bench = Steps(max_seqs=3, num_blocks=4)
    for name in "abc":
        bench.submit(name, prompt=4, new=8)
    bench.submit("later", prompt=4, new=8)
    bench.run()
    assert bench.times["c"].preempted
    assert bench.times["c"].resumed[0] < bench.times["later"].admitted
    assert not bench.times["a"].preempted


def test_the_least_urgent_is_preempted_whenever_it_came():
    bench = Steps(max_seqs=3, num_blocks=4)
    bench.submit("low", prompt=4, new=8, priority=3)
    bench.step()
    bench.submit("b", prompt=4, new=8)
    bench.submit("c", prompt=4, new=8)
    bench.run()
    assert bench.times["low"].preempted
    assert not bench.times["b"].preempted


def test_under_pressure_everybody_ends_in_a_bounded_number_of_steps():
    """The first in rank is never preempted: at most all positions once for each request that is ahead."""
    bench = Steps(max_seqs=6, num_blocks=8, queue_limit=100)
    requests = [(f"r{n}", 1 + n % 9, 1 + (7 * n) % 20) for n in range(40)]
    for number, (name, prompt, new) in enumerate(requests):
        bench.submit(name, prompt, new, priority=number % 3)
    bench.run(most=sum(prompt + new for _, prompt, new in requests))
    assert bench.scheduler.num_preemptions > 10


def test_queued_past_its_deadline_is_never_started_and_running_past_it_frees_its_blocks_at_once():
    bench = Steps(max_seqs=1)
    bench.submit("runs", new=20, deadline_ns=5)
    bench.submit("waits", new=20, deadline_ns=3)
    bench.submit("budget", new=20, max_wait_ns=4, deadline_ns=100)
    for now in range(7):
        bench.step()
        if now == 5:
            assert bench.scheduler.running
            assert bench.scheduler.pool.num_free < 64
    assert bench.ends == {
        "waits": FinishReason.EXPIRED,
        "budget": FinishReason.EXPIRED,
        "runs": FinishReason.DEADLINE,
    }
    assert bench.times["waits"].admitted is None
    assert bench.times["waits"].released == 4
    assert bench.times["runs"].released == 6
    assert bench.scheduler.pool.num_free == 64


def test_a_deadline_outlives_the_wait_budget_and_a_preempted_request_has_started():
    bench = Steps(max_seqs=2, num_blocks=4)
    bench.submit("a", prompt=4, new=13)
    bench.submit("b", prompt=(6, 5, 6, 5), new=8, max_wait_ns=3, deadline_ns=9)
    while not bench.times["b"].preempted:
        bench.step()
    assert bench.now > 3
    while "b" not in bench.ends:
        bench.step()
    assert bench.ends["b"] is FinishReason.DEADLINE


def test_growth_reserve_is_left_free_unless_nothing_runs():
    bench = Steps(max_seqs=4, num_blocks=10, growth_reserve=6, prefix_cache=False)
    bench.submit("big", prompt=30, new=3)  # leaves 2 of 10: nothing else runs
    bench.step()
    assert list(bench.scheduler.running) == ["big"]
    bench.submit("small", prompt=1, new=1)
    bench.step()
    assert "small" not in bench.scheduler.running
    bench.run()
    bench = Steps(max_seqs=4, num_blocks=10, growth_reserve=6, prefix_cache=False)
    for number in range(4):
        bench.submit(str(number), prompt=8, new=9)
    bench.step()
    assert len(bench.scheduler.running) == 2
    assert bench.scheduler.pool.num_free == 6
    bench.run()
    assert bench.scheduler.num_preemptions == 0


def test_a_head_that_does_not_fit_is_not_overtaken():
    bench = Steps(max_seqs=4, num_blocks=8, prefix_cache=False)
    bench.submit("a", prompt=20, new=4)
    bench.submit("wide", prompt=20, new=4)
    bench.submit("narrow", prompt=1, new=1)
    bench.run()
    assert bench.first == ["a", "wide", "narrow"]
