"""Several answers from one prompt: computed once, its blocks shared, copied before anybody writes into them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchlab_engine.core.blocks import AuditError, chain_hash, root_hash
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Sampling, StepPlan
from benchlab_engine.core.request import FinishReason, Request, RequestSpec, RequestTimes
from benchlab_engine.core.room import Room
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from tests.engines.core.fakes import SlotRunner, answer


class Bench:
    def __init__(self, **config):
        self.scheduler = Scheduler(SchedulerConfig(**{"block_size": 4, "num_blocks": 40, "max_seqs": 8, **config}))
        self.runner = SlotRunner(self.scheduler)
        self.engine = Engine(self.scheduler, self.runner, lambda: 0)
        self.tokens: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}

    def submit(self, *specs):
        for spec in specs:
            assert self.engine.submit(spec, 0) is None
            self.tokens[spec.request_id] = []

    def step(self):
        outcome = self.engine.step()
        assert outcome.error is None, outcome.error
        self.scheduler.audit()
        for emission in outcome.emissions:
            if emission.token is not None:
                self.tokens[emission.request_id].append(emission.token)
            if emission.finish is not None:
                self.ends[emission.request_id] = emission.finish
        return self.runner.plans[-1]

    def run(self):
        for _ in range(100):
            if self.scheduler.requests:
                self.step()
        assert not self.scheduler.requests, "somebody starves"
        self.engine.step()


def family(count, length=10, **more):
    first = RequestSpec("r", tuple(n % 7 for n in range(length)), 6, **more)
    children = [replace(first, request_id=f"r#{n}", parent="r", sampling=Sampling(seed=n)) for n in range(1, count)]
    return [first, *children]


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("length", [1, 4, 10, 12])
def test_the_prompt_is_computed_once_and_each_answer_is_drawn_for_itself(cache, length):
    bench = Bench(prefix_cache=cache)
    specs = family(4, length)
    bench.submit(*specs)
    first = bench.step()
    assert [work.request_id for work in first.works] == ["r"]
    second = bench.step()
    assert [(work.request_id, work.start, len(work.token_ids)) for work in second.works] == [
        ("r", length, 1),
        ("r#1", length - 1, 1),
        ("r#2", length - 1, 1),
        ("r#3", length - 1, 1),
    ]
    last = first.works[0].block_table[-1]
    assert [source for source, _ in second.copies] == [last] * 3
    full = (length - 1) // 4
    assert all(work.block_table[:full] == first.works[0].block_table[:full] for work in second.works)
    assert all(work.block_table[full] != last for work in second.works[1:])
    bench.run()
    assert bench.tokens == {spec.request_id: answer(spec) for spec in specs}
    assert len({tuple(tokens) for tokens in bench.tokens.values()}) > 1
    assert bench.scheduler.pool.num_free == 40
    assert not any(plan.copies for plan in bench.runner.plans[2:])


def test_a_child_stands_in_line_without_holding_up_the_others():
    bench = Bench(max_seqs=8, max_batched_tokens=8, max_prefill_tokens=4)
    specs = family(2, 12)
    bench.submit(*specs, RequestSpec("other", (1, 2), 4))
    seen = [[work.request_id for work in bench.step().works] for _ in range(5)]
    # Three chunks of the parent, then the child that came before "other", then "other".
    assert seen[:3] == [["r"]] * 3
    assert seen[3] == ["r", "r#1", "other"]
    bench = Bench(max_seqs=8, max_batched_tokens=64)
    bench.submit(*specs, RequestSpec("other", (1, 2), 4))
    assert [work.request_id for work in bench.step().works] == ["r", "other"]


@pytest.mark.parametrize("how", ["cancelled while it waits", "cancelled in its prompt", "preempted", "ended before"])
def test_a_child_whose_parent_is_gone_is_like_any_other(how):
    bench = Bench(max_batched_tokens=8, max_prefill_tokens=4)
    specs = family(2, 12)
    if how == "ended before":
        bench.submit(specs[0])
        bench.run()
        bench.submit(specs[1])
    else:
        bench.submit(*specs)
        if how != "cancelled while it waits":
            bench.step()
        if how == "preempted":
            bench.scheduler._preempt(bench.scheduler.requests["r"], 0)
        else:
            bench.engine.cancel("r", 0)
        bench.scheduler.audit()
    bench.run()
    assert bench.tokens["r#1"] == answer(specs[1])
    # A preempted parent may have its prompt computed again before the child's turn comes: then it is shared after all.
    assert how == "preempted" or not any(plan.copies for plan in bench.runner.plans)


def test_a_preempted_parent_sends_its_children_into_the_line():
    bench = Bench(max_batched_tokens=8, max_prefill_tokens=4)
    bench.submit(*family(2, 12))
    bench.step()
    line = bench.scheduler.waiting
    assert line.head() is None
    bench.scheduler._preempt(bench.scheduler.requests["r"], 0)
    assert line.head().spec.request_id == "r"
    line.remove("r")
    assert line.head().spec.request_id == "r#1"


def test_a_failed_parent_leaves_its_child_in_line():
    bench = Bench()
    specs = family(2)
    bench.submit(*specs)

    def broken(_):
        raise RuntimeError("no luck")

    bench.runner.during = broken
    assert bench.engine.step().error == "RuntimeError: no luck"
    bench.run()
    assert bench.tokens["r#1"] == answer(specs[1])


@pytest.mark.parametrize("change", [{"salt": "b"}, {"adapter": "lora"}, {"prompt": (1,) * 10}])
def test_only_the_very_same_prompt_is_shared(change):
    bench = Bench()
    first, child = family(2)
    child = replace(child, **change)
    bench.submit(first, child)
    plan = bench.step()
    assert [len(work.token_ids) for work in plan.works] == [10, 10], "not made to wait for nothing"
    assert not set(plan.works[0].block_table) & set(plan.works[1].block_table)
    bench.run()
    assert bench.tokens["r#1"] == answer(child)


@pytest.mark.parametrize("policy", ["static", "dynamic"])
def test_whole_batches_do_not_wait_for_a_parent(policy):
    bench = Bench(policy=policy, batch_wait_ns=0, max_seqs=4)
    specs = family(4)
    bench.submit(*specs)
    assert len(bench.step().works) == 4
    bench.run()
    assert bench.tokens == {spec.request_id: answer(spec) for spec in specs}


def test_a_child_waits_for_the_block_its_copy_needs():
    bench = Bench(num_blocks=4, prefix_cache=False)
    first, child = family(2, 10)
    bench.submit(first, child)
    bench.step()
    plan = bench.step()  # 3 of 4 blocks are the parent's; the copy takes the last
    assert len(plan.copies) == 1
    bench.run()
    assert {name: len(tokens) for name, tokens in bench.tokens.items()} == {"r": 6, "r#1": 6}


def test_whoever_writes_first_into_a_shared_block_takes_the_copy():
    """Also the one whose block it was: by hand, since the scheduler has the child copy as it comes in."""
    room = Room(SchedulerConfig(block_size=4, num_blocks=6))
    one = Request(RequestSpec("one", (1,) * 6, 8), RequestTimes())
    other = Request(RequestSpec("other", (1,) * 6, 8), RequestTimes())
    assert room.admit(one, 0)
    one.computed, one.output = 6, [3]
    other.blocks, other.computed = one.blocks, 6
    room.pool.share(one.blocks)
    kept = one.blocks[1]
    assert room.grow(one, 7)
    assert other.blocks[1] == kept
    assert one.blocks[0] == other.blocks[0]
    assert room.take_copies() == ((kept, one.blocks[1]),)
    room.pool.audit([one.blocks, other.blocks])
    assert room.grow(other, 7), "the last to refer to it may write"
    assert room.take_copies() == ()
    room.pool.take(room.pool.num_free)
    room.pool.share(other.blocks)
    assert not room.grow(other, 7), "no block is left for the copy"


def test_the_audit_of_a_plan_notices_writes_into_shared_and_published_blocks():
    bench = Bench()
    bench.submit(*family(2))
    bench.step()
    plan = bench.scheduler.plan(0)
    bench.scheduler.audit(plan)
    work = plan.works[1]
    shared = replace(work, start=0, token_ids=(0,) * 10)
    with pytest.raises(AuditError, match="r#1 writes into block"):
        bench.scheduler.audit(StepPlan(9, (shared,)))
    with pytest.raises(AuditError, match="writes where another work writes"):
        bench.scheduler.audit(StepPlan(9, (work, replace(work, request_id="x"))))
    with pytest.raises(AuditError, match="depend on their order"):
        bench.scheduler.audit(StepPlan(9, (work,), copies=((1, 2), (2, 3))))
    with pytest.raises(AuditError, match="blocks for"):
        bench.scheduler.audit(StepPlan(9, (replace(work, block_table=work.block_table[:1]),)))
    mine = work.block_table[-1]
    bench.scheduler.pool.publish(mine, chain_hash(root_hash("x"), (1,)))
    with pytest.raises(AuditError, match="shared or known"):
        bench.scheduler.audit(plan)


def test_adapters_kv_formats_and_tenants_have_prefixes_of_their_own():
    def found(config, **more):
        room = Room(SchedulerConfig(block_size=4, num_blocks=8, **config))
        request = Request(RequestSpec("r", (1,) * 9, 1, **more), RequestTimes())
        assert room.admit(request, 0)
        return tuple(request.hashes)

    kinds = [
        found({}),
        found({"model_id": "m"}),
        found({"kv_format": "int8"}),
        found({"kv_format": "fp8"}),
        found({}, adapter="a"),
        found({}, salt="a"),
    ]
    assert len(set(kinds)) == len(kinds)
    assert found({}) == kinds[0]
