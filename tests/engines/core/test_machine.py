"""Any requests in any order under any settings: every slot holds what it should and every answer is the right one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from benchlab_engine.core.journal import Journal, read_lines, write_line
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Sampling
from benchlab_engine.core.replay import replay
from benchlab_engine.core.request import FinishReason, RequestSpec
from benchlab_engine.core.scheduler import Scheduler, SchedulerConfig
from tests.engines.core.fakes import NamedError, SlotRunner, answer

MAX_PROMPT, MAX_NEW = 24, 12

configs = st.builds(
    SchedulerConfig,
    max_seqs=st.integers(1, 5),
    max_batched_tokens=st.integers(5, 40),
    max_prefill_tokens=st.sampled_from([0, 0, 1, 3, 8]),
    block_size=st.sampled_from([1, 2, 4]),
    num_blocks=st.integers(20, 70),  # positions here; divided by the block size below, and tight enough to preempt
    queue_limit=st.just(40),
    policy=st.sampled_from(["continuous", "continuous", "continuous", "static", "dynamic"]),
    prefix_cache=st.booleans(),
    batch_wait_ns=st.integers(0, 5),
    growth_reserve=st.integers(0, 4),
    age_ns=st.sampled_from([0, 1, 7]),
    fair_share=st.booleans(),
    speculate=st.sampled_from(["none", "ngram", "runner"]),
    num_drafts=st.integers(1, 4),
)
# A few prompts that begin alike, so that prefixes are shared, over few tokens, so that guesses come true.
prompts = st.builds(
    lambda head, length, tail: (tuple(head) * 24)[:length] + tuple(tail),
    st.sampled_from([(1, 2, 3), (0,), (4, 1, 4, 2)]),
    st.integers(1, MAX_PROMPT - 4),
    st.lists(st.integers(0, 6), max_size=4),
)


class Requests(RuleBasedStateMachine):
    @initialize(config=configs, backwards=st.booleans())
    def start(self, config, backwards):
        config = replace(config, num_blocks=-(-config.num_blocks // config.block_size))
        self.now = 0
        self.config = config
        self.entries = []
        self.scheduler = Scheduler(config)
        self.runner = SlotRunner(self.scheduler, backwards)
        self.engine = Engine(self.scheduler, self.runner, lambda: self.now, Journal(sink=self.entries.append))
        self.specs: dict[str, RequestSpec] = {}
        self.times = {}
        self.tokens: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}
        self.failed: set[str] = set()
        self.plain = True  # nothing but the order of arrival decides

    @rule(
        prompt=prompts,
        new=st.integers(1, MAX_NEW),
        seed=st.integers(0, 2),
        end=st.sampled_from([frozenset(), frozenset({6}), frozenset({3, 6})]),
        least=st.sampled_from([0, 0, 3]),
        salt=st.sampled_from(["", "", "b"]),
        adapter=st.sampled_from(["", "", "lora"]),
        priority=st.sampled_from([0, 0, 0, -1, 2]),
        tenant=st.sampled_from(["", "x", "y"]),
        max_wait=st.sampled_from([0, 0, 0, 20]),
        deadline=st.sampled_from([0, 0, 0, 9]),
        penalty=st.booleans(),
        in_step=st.booleans(),
    )
    def submit(
        self, prompt, new, seed, end, least, salt, adapter, priority, tenant, max_wait, deadline, penalty, in_step
    ):
        name = str(len(self.tokens))
        spec = RequestSpec(
            request_id=name,
            prompt=prompt,
            max_new_tokens=new,
            sampling=Sampling(seed=seed, presence_penalty=float(penalty)),
            end_tokens=end,
            min_new_tokens=min(least, new),
            salt=salt,
            adapter=adapter,
            priority=priority,
            tenant=tenant,
            max_wait_ns=max_wait,
            deadline_ns=deadline and self.now + deadline,
        )
        self.plain = self.plain and not (priority or self.config.fair_share)
        self._send(spec, in_step)

    @precondition(lambda self: self.specs)
    @rule(data=st.data(), count=st.integers(1, 3), in_step=st.booleans())
    def submit_children(self, data, count, in_step):
        parent = self.specs[
            data.draw(st.sampled_from(sorted(set(self.scheduler.requests) & set(self.specs) or self.specs)))
        ]
        for number in range(count):
            self.plain = False  # who stands aside for a parent is overtaken
            values = {f: getattr(parent, f) for f in parent.__slots__}
            sampling = Sampling(seed=parent.sampling.seed + 1 + number)
            name = str(len(self.tokens))
            self._send(
                RequestSpec(**values | {"request_id": name, "parent": parent.request_id, "sampling": sampling}), in_step
            )

    @precondition(lambda self: self.scheduler.requests)
    @rule(data=st.data(), in_step=st.booleans())
    def cancel(self, data, in_step):
        name = data.draw(st.sampled_from(sorted(self.scheduler.requests)))

        def do(_=None):
            if name in self.scheduler.requests:
                alone = [b for b in self.scheduler.requests[name].blocks if not self.scheduler.pool.is_shared(b)]
                free = self.scheduler.pool.num_free
                assert self.engine.cancel(name, self.now)
                assert self.scheduler.pool.num_free == free + len(alone)

        self._now_or_in_step(do, in_step)

    @rule()
    def fail(self):
        """The next step breaks in the middle."""

        def broken(_):
            raise RuntimeError("planned")

        if self.scheduler.running and self.runner.during is None:
            self.runner.during = broken
            self._step(lambda: "RuntimeError: planned")
            self.runner.during = None  # nothing was left to run

    @rule(data=st.data())
    def fail_some(self, data):
        """The next step breaks at its end, for some of its requests: the others lose the step and nothing else."""
        blamed = set()

        def broken(plan):
            names = [work.request_id for work in plan.works if work.request_id in self.scheduler.requests]
            if names:  # else all of it was cancelled in the step
                blamed.update(data.draw(st.sets(st.sampled_from(names), min_size=1)))
                raise NamedError((*blamed, "nobody"))

        if self.scheduler.running:
            self.runner.after = broken
            before = set(self.failed)
            self._step(lambda: "NamedError: named" if blamed else None)
            self.runner.after = None  # nothing was left to run
            assert self.failed - before == blamed

    @rule(count=st.integers(1, 6))
    def steps(self, count):
        for _ in range(count):
            self._step()

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        if self.runner.during is not None:  # no step came for it to happen in
            during, self.runner.during = self.runner.during, None
            during(None)
        live = self.scheduler.requests.values()
        positions = sum(len(each.spec.prompt) + each.spec.max_new_tokens for each in live)
        bound = (len(live) + 1) * (positions + self.config.batch_wait_ns + 1)
        taken = 0
        while self.scheduler.requests:
            self._step()
            taken += 1
            assert taken <= bound, "somebody starves"
        self._step()  # ends that are still to be told
        assert self.scheduler.pool.num_free == self.config.num_blocks
        for name, spec in self.specs.items():
            whole, got, end = answer(spec), self.tokens[name], self.ends[name]
            if end in (FinishReason.STOP, FinishReason.LENGTH):
                assert got == whole
                assert (end is FinishReason.STOP) == (got[-1] in spec.end_tokens)
            else:
                assert got == whole[: len(got)]
                assert end is not FinishReason.ERROR or name in self.failed
        entries = list(read_lines(write_line(entry) for entry in self.entries))
        plans = []
        replayed = replay(None, entries, plans.append)
        assert replayed.equal, replayed.difference
        assert plans == self.runner.plans

    def _send(self, spec, in_step):
        self.specs[spec.request_id] = spec
        self.tokens[spec.request_id] = []

        def do(_=None):
            if not self.engine.submit(spec, self.now):
                self.times[spec.request_id] = self.scheduler.requests[spec.request_id].times
            else:
                del self.specs[spec.request_id]

        self._now_or_in_step(do, in_step)

    def _now_or_in_step(self, do, in_step):
        if in_step and self.runner.during is None and self.scheduler.running:
            self.runner.during = do
        else:
            do()

    def _step(self, error=lambda: None):
        number = len(self.runner.plans)
        outcome = self.engine.step()
        assert outcome.error == (error() if len(self.runner.plans) > number else None)
        self.failed |= {each.request_id for each in outcome.emissions if each.finish is FinishReason.ERROR}
        self.scheduler.audit()
        for emission in outcome.emissions:
            assert emission.request_id not in self.ends, "news after the end"
            if emission.token is not None:
                self.tokens[emission.request_id].append(emission.token)
            if emission.finish is not None:
                self.ends[emission.request_id] = emission.finish
                self._check_times(emission.request_id)
        row = outcome.row
        if row is not None:
            assert sum(work[2] for work in row.works) <= self.config.max_batched_tokens
            assert not self.config.max_prefill_tokens or row.num_prefill_tokens <= self.config.max_prefill_tokens
        if self.plain and not self.scheduler.num_preemptions:
            order = {name: number for number, name in enumerate(self.times)}  # as they came
            admitted = [order[name] for name, times in self.times.items() if times.admitted is not None]
            waiting = [order[n] for n, r in self.scheduler.requests.items() if r.times.admitted is None]
            assert not admitted or not waiting or max(admitted) < min(waiting), "not first come, first served"
        self.now += 1

    def _check_times(self, name):
        times, spec = self.times[name], self.specs[name]
        stages = [times.accepted, times.queued, times.admitted, times.prefill_start, times.prefill_end]
        reached = [each for each in (*stages, *times.token_ready, times.released) if each is not None]
        assert reached == sorted(reached)
        assert len(times.token_ready) == len(self.tokens[name])
        assert times.prefill_end == (times.token_ready[0] if times.token_ready else None)
        if self.ends[name] is FinishReason.EXPIRED:
            assert times.admitted is None
        if times.token_ready and spec.deadline_ns:
            assert times.token_ready[-1] <= spec.deadline_ns


HEALTH = list(HealthCheck)


class TestRequests(Requests.TestCase):
    settings = settings(
        max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=HEALTH, derandomize=True
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestManyRequests(Requests.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=40, deadline=None, suppress_health_check=HEALTH)
