"""Proposals in the schedule: worked example 10's positions, the room they may use, and where an answer is cut."""

from __future__ import annotations

import pytest

from benchlab_engine.core.plan import Sampling, StepResult, TokenLogprobs
from benchlab_engine.core.request import FinishReason, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig


class Bench:
    """A scheduler whose results are written by hand."""

    def __init__(self, spec, **config):
        settings = {"block_size": 4, "num_blocks": 16, "speculate": "ngram", "num_drafts": 4, "prefix_cache": False}
        self.scheduler = Scheduler(SchedulerConfig(**settings | config))
        self.times = RequestTimes()
        assert self.scheduler.submit(spec, 0, self.times) is None
        self.request = self.scheduler.requests[spec.request_id]

    def plan(self):
        plan = self.scheduler.plan(0)
        self.scheduler.audit(plan)
        self.works = plan.works
        self.the_plan = plan
        return plan.works[0]

    def settle(self, *tokens, logprobs=()):
        name = self.request.spec.request_id
        out = self.scheduler.settle(self.the_plan, StepResult({name: tokens}, 0, {name: logprobs}), 5)
        self.scheduler.audit()
        return out


def spec(prompt=(1, 2, 3, 4, 5, 1, 2), new=20, **more):
    return RequestSpec("r", prompt, new, **more)


def decoding(spec, **config):
    """The prompt is computed and has given a 3, so that the text guesses 4, 5, 1, 2."""
    bench = Bench(spec, **config)
    bench.plan()
    bench.settle(3)
    return bench


@pytest.mark.parametrize("accepted", [0, 1, 2, 3, 4])
def test_worked_example_10_the_cache_holds_committed_minus_one(accepted):
    bench = decoding(spec())
    work = bench.plan()
    assert (work.token_ids, work.start, work.num_drafts, work.is_decode) == ((3, 4, 5, 1, 2), 7, 4, True)
    assert len(work.block_table) == 3  # positions 7 .. 11
    out = bench.settle(*(4, 5, 1, 2)[:accepted], 6)
    committed = 8 + accepted + 1
    assert bench.request.wanted == committed
    assert bench.request.computed == committed - 1
    assert [each.token for each in out] == [*(4, 5, 1, 2)[:accepted], 6]
    assert {each.at_ns for each in out} == {5}
    assert len(bench.request.blocks) <= -(-committed // 4), "none is held for what was rejected"
    assert bench.scheduler.speculation.num_proposed == [1, 1, 1, 1]
    assert bench.scheduler.speculation.num_accepted == [1] * accepted + [0] * (4 - accepted)
    following = bench.plan()
    assert following.start == committed - 1
    assert following.token_ids[0] == 6
    assert following.output_index == accepted + 2


def test_the_runner_may_propose_instead():
    bench = decoding(spec(), speculate="runner", num_drafts=3)
    work = bench.plan()
    assert (work.token_ids, work.num_drafts, work.num_to_draft) == ((3,), 0, 3)
    assert len(work.block_table) == 3  # positions 7 .. 10
    bench.settle(6, 6, 0)
    assert (bench.request.computed, bench.request.wanted) == (10, 11)
    assert bench.scheduler.speculation.num_accepted == [1, 1, 0]


@pytest.mark.parametrize(("new", "proposed"), [(20, 4), (6, 4), (5, 3), (3, 1), (2, 0)])
def test_no_more_is_proposed_than_may_still_come(new, proposed):
    bench = decoding(spec(new=new))
    assert bench.plan().num_drafts == proposed


def test_an_end_token_among_accepted_ones_is_the_last():
    bench = decoding(spec(end_tokens=frozenset({5})))
    bench.plan()
    out = bench.settle(4, 5, 1, 2, 6)
    assert [(each.token, each.finish) for each in out] == [(4, None), (5, FinishReason.STOP)]
    assert bench.times.token_ready == [5, 5, 5]
    assert bench.request.output == [3, 4, 5]
    assert bench.scheduler.speculation.num_accepted == [1, 1, 1, 1]
    assert bench.scheduler.pool.num_free == 16


def test_the_length_limit_cuts_too():
    bench = decoding(spec(new=4), speculate="runner", num_drafts=9)
    assert bench.plan().num_to_draft == 2
    out = bench.settle(4, 5, 1)
    assert [each.finish for each in out] == [None, None, FinishReason.LENGTH]


def test_logprobs_go_with_their_tokens():
    bench = decoding(spec(sampling=Sampling(logprobs=0)))
    bench.plan()
    out = bench.settle(4, 6, logprobs=(TokenLogprobs(-1.0), TokenLogprobs(-2.0)))
    assert [each.logprobs.chosen for each in out] == [-1.0, -2.0]


def test_proposals_use_only_the_budget_and_the_blocks_that_nobody_else_wants():
    bench = decoding(spec(), max_seqs=2, max_batched_tokens=8)
    bench.plan()
    bench.settle(4, 5, 1, 2, 3)
    assert bench.plan().num_drafts == 4
    bench.settle(4, 5, 1, 6)
    bench.plan()
    bench.settle(4)
    other = RequestSpec("other", (9,) * 40, 1)
    assert bench.scheduler.submit(other, 0) is None
    assert bench.plan().num_drafts == 0, "a prompt wants the rest of the step"
    assert len(bench.works[1].token_ids) == 7
    full = decoding(spec(), num_blocks=8)
    full.scheduler.pool.take(6)
    assert full.scheduler.plan(0).works[0].num_drafts == 0, (
        "the block in hand has one place left, which is the newest token's"
    )
    roomy = decoding(spec(prompt=(1, 2, 3, 1, 2)), num_blocks=8)
    roomy.scheduler.pool.take(6)
    assert roomy.scheduler.plan(0).works[0].num_drafts == 2


def test_proposals_preempt_nobody():
    scheduler = Scheduler(
        SchedulerConfig(block_size=4, num_blocks=6, speculate="ngram", num_drafts=4, prefix_cache=False)
    )
    for name in "ab":
        scheduler.submit(RequestSpec(name, (1, 2, 3, 4, 1, 2, 3), 5), 0)
    while scheduler.requests:
        plan = scheduler.plan(0)
        scheduler.audit(plan)
        scheduler.settle(plan, StepResult({work.request_id: (4,) for work in plan.works}), 0)
        scheduler.audit()
    assert scheduler.num_preemptions == 0
    assert sum(scheduler.speculation.num_proposed) > 0


def test_banned_tokens_and_history_are_in_the_work():
    ends = frozenset({4, 6})
    bench = decoding(spec(end_tokens=ends, min_new_tokens=3, sampling=Sampling(presence_penalty=1.0)))
    work = bench.plan()
    assert work.banned == ends
    assert work.num_drafts == 0, "what is guessed first, 4, must not be drawn yet"
    assert work.history == ((1, 2, 3, 4, 5, 1, 2), (3,))
    bench.settle(0)
    bench.plan()
    assert bench.works[0].banned == ends
    bench.settle(0)
    assert bench.plan().banned == frozenset()
    assert decoding(spec()).plan().history is None
    first = Bench(spec(min_new_tokens=1, end_tokens=ends))
    assert first.plan().banned == ends
    first.settle(3)
    assert first.plan().banned == frozenset()


def test_proposals_stay_on_one_side_of_the_least_length():
    bench = decoding(spec(end_tokens=frozenset({6}), min_new_tokens=4))
    work = bench.plan()
    assert (work.num_drafts, work.banned) == (2, frozenset({6}))  # outputs 1, 2 and 3, of which none may be a 6


@pytest.mark.parametrize("tokens", [(), (4, 5, 1, 2, 6, 6)])
def test_a_runner_that_breaks_its_word_ends_that_request_alone(tokens):
    bench = decoding(spec())
    bench.scheduler.submit(RequestSpec("b", (9,), 2), 0)
    bench.plan()
    assert bench.settle(*tokens) == []
    news = {each.request_id: each.finish for each in bench.scheduler.take_news()}
    assert news["r"] is FinishReason.ERROR
    assert "r" not in bench.scheduler.requests
