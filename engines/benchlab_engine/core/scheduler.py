"""Which tokens are computed next.

The one idea: each step lets tokens *computed* catch up with tokens *wanted* under a token budget: decode steps first,
prompt chunks in the rest, in order of arrival, and proposals in what is left then. So speculation never delays a
prompt nor takes a block from anybody: it uses the room that a busy engine does not have. Prefill, chunking, prefix
reuse and recomputation after a preemption are the same arithmetic. It must not know tensors or wire, read a clock or
draw chance: time is handed in.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from benchlab_engine.core.admission import Refusal, RefusalKind, refuse
from benchlab_engine.core.config import POLICIES, SPECULATE, SchedulerConfig
from benchlab_engine.core.deadlines import Deadlines
from benchlab_engine.core.plan import StepPlan, StepResult, TokenLogprobs, Work
from benchlab_engine.core.propose import SpeculationCounts
from benchlab_engine.core.request import FinishReason, Request, RequestSpec, RequestState, RequestTimes
from benchlab_engine.core.room import Room, same_prefix
from benchlab_engine.core.shares import OUTPUT_WEIGHT, PROMPT_WEIGHT, Shares
from benchlab_engine.core.waiting import WaitingLine
from benchlab_engine.core.works import decode_work, guess, prompt_work

__all__ = ["POLICIES", "SPECULATE", "Emission", "Scheduler", "SchedulerConfig"]


@dataclass(frozen=True, slots=True)
class Emission:
    """News of one request: a token, or its end, or both."""

    request_id: str
    at_ns: int
    token: int | None = None
    finish: FinishReason | None = None
    num_cached: int = 0
    logprobs: TokenLogprobs | None = None


class Scheduler:
    """Owns the requests and the pool. plan() decides, settle() takes the result in, _end() is the one way out."""

    def __init__(self, config: SchedulerConfig) -> None:
        config.check()
        self.config = config
        self.room = Room(config)
        self.pool = self.room.pool
        self.running: dict[str, Request] = {}  # in order of admission
        self.waiting = WaitingLine(Shares() if config.fair_share else None)
        self.requests: dict[str, Request] = {}
        self.num_preemptions = 0
        self.speculation = SpeculationCounts(config.num_drafts)
        self._limits = config.limits()
        self._deadlines = Deadlines()
        self._number = 0
        self._arrivals = 0
        self._released: list[str] = []
        self._preempted: list[str] = []
        self._news: list[Emission] = []

    # -- in and out ---------------------------------------------------------------------------------------------

    def submit(self, spec: RequestSpec, now_ns: int, times: RequestTimes | None = None) -> Refusal | None:
        """Join the line, or be told why not. times: where the request's times are to be written."""
        if spec.request_id in self.requests:
            return Refusal(RefusalKind.DUPLICATE, f"a request with the id {spec.request_id!r} is in the engine already")
        refusal = refuse(spec, self._limits, len(self.requests))
        if refusal is not None:
            return refusal
        age = self.config.age_ns
        self._arrivals += 1
        rank = (spec.priority * age + now_ns if age else spec.priority, self._arrivals)
        request = Request(spec, times or RequestTimes(), rank)
        if request.times.accepted is None:
            request.times.accepted = now_ns
        request.times.queued = now_ns
        self.requests[spec.request_id] = request
        self._deadlines.watch(request, now_ns)
        if self._waits_for_parent(spec):
            self.waiting.set_aside(request)
        else:
            self.waiting.append(request)
        return None

    def cancel(self, request_id: str, now_ns: int, reason: FinishReason = FinishReason.CANCELLED) -> bool:
        """End a request wherever it stands; its blocks are free on return. False: it has ended already."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        self._end(request, reason, now_ns)
        self._news.append(Emission(request_id, now_ns, None, reason, request.num_cached))
        return True

    def take_news(self) -> list[Emission]:
        """Ends that no step has reported: cancelled and expired requests. Empties the list."""
        news, self._news = self._news, []
        return news

    def counts(self) -> tuple[int, int, int]:
        """Free blocks, running requests, waiting requests."""
        return self.pool.num_free, len(self.running), len(self.waiting)

    # -- the two halves of a step -------------------------------------------------------------------------------

    def plan(self, now_ns: int) -> StepPlan:
        """Decide the next step. It holds no work, and takes no number, when nothing can run."""
        for name in self._deadlines.due(now_ns):
            started = self.requests[name].times.admitted is not None
            self.cancel(name, now_ns, FinishReason.DEADLINE if started else FinishReason.EXPIRED)
        num_preemptions = self.num_preemptions
        decodes, prompts = self._grow_decodes(now_ns)
        budget = self.config.max_batched_tokens - len(decodes)
        chunks = self._plan_prompts(prompts, budget, now_ns, self.num_preemptions > num_preemptions)
        budget -= sum(count for _, count in chunks)
        if self.config.speculate == "none" or budget < 1:
            works = [decode_work(request) for request in decodes]
        else:
            works = self._speculative_works(decodes, budget)
        for request, count in chunks:
            if request.times.prefill_start is None:
                request.times.prefill_start = now_ns
            works.append(prompt_work(request, count, self.pool.block_size))
        if not works:
            return StepPlan(self._number, ())
        self._number += 1
        released, self._released = tuple(self._released), []
        preempted, self._preempted = tuple(self._preempted), []
        return StepPlan(self._number, tuple(works), released, preempted, self.room.take_copies())

    def settle(self, plan: StepPlan, result: StepResult, now_ns: int) -> list[Emission]:
        """Take a step's result in: counters move, tokens come out, ended requests leave."""
        out: list[Emission] = []
        for work in plan.works:
            request = self.requests.get(work.request_id)
            if request is None or request.state is not RequestState.RUNNING:
                continue  # cancelled while the step ran
            if work.samples:
                self._settle_tokens(request, work, result, now_ns, out)
            else:
                request.computed = work.start + len(work.token_ids)
                self.room.publish(request)
        return out

    def fail(self, plan: StepPlan, now_ns: int, names: Container[str] | None = None) -> None:
        """The step could not be carried out: its requests end with an error, the others go on.

        names: only these end, and the rest is planned again; None: all. The plan's copies count as made (their sources
        may be gone by then), its positions as not computed.
        """
        for work in plan.works:
            if names is None or work.request_id in names:
                self.cancel(work.request_id, now_ns, FinishReason.ERROR)
            elif (request := self.running.get(work.request_id)) is not None:
                self.room.crop(request)

    def audit(self, plan: StepPlan | None = None) -> None:
        """Raise AuditError unless blocks and counters agree with the requests, and the plan that is on with both."""
        self.pool.audit([request.blocks for request in self.requests.values()])
        for request in self.requests.values():
            name, held = request.spec.request_id, len(request.blocks)
            assert request.computed <= request.wanted, name
            assert held * self.config.block_size >= request.computed, name
            assert plan is not None or held <= self.pool.blocks_for(request.wanted), name
            assert (request.state is RequestState.RUNNING) == (name in self.running), name
        assert len(self.running) + len(self.waiting) == len(self.requests)
        if plan is not None:
            self.room.audit_plan(plan)

    # -- decode steps -------------------------------------------------------------------------------------------

    def _grow_decodes(self, now_ns: int) -> tuple[list[Request], list[Request]]:
        """Those that decode, each with a place for its newest token, and those whose prompt is not computed yet."""
        decodes: list[Request] = []
        prompts: list[Request] = []
        grow = self.room.grow
        for request in list(self.running.values()):
            wanted = len(request.spec.prompt) + len(request.output)
            if not request.output or request.computed != wanted - 1:
                prompts.append(request)
                continue
            while request.state is RequestState.RUNNING and not grow(request, wanted):
                # The least urgent makes room, which may be this one; what was planned for it is dropped below.
                self._preempt(max(self.running.values(), key=lambda each: each.rank), now_ns)
            decodes.append(request)
        if len(self.running) < len(decodes) + len(prompts):  # somebody had to make room
            decodes = [request for request in decodes if request.state is RequestState.RUNNING]
            prompts = [request for request in prompts if request.state is RequestState.RUNNING]
        return decodes, prompts

    def _preempt(self, request: Request, now_ns: int) -> None:
        self.room.release(request)
        request.state = RequestState.WAITING
        request.times.preempted.append(now_ns)
        name = request.spec.request_id
        del self.running[name]
        self.waiting.append(request)
        self.waiting.call_back(name)  # its children need not wait for its prompt any more
        self._preempted.append(name)
        self.num_preemptions += 1

    def _speculative_works(self, decodes: list[Request], budget: int) -> list[Work]:
        """Decode steps with proposals, as far as tokens and free blocks go."""
        by_runner, num_drafts = self.config.speculate == "runner", self.config.num_drafts
        works: list[Work] = []
        for request in decodes:
            spec, done = request.spec, len(request.output)
            most = min(num_drafts, spec.max_new_tokens - done - 1, budget)
            drafts: tuple[int, ...] = ()
            if done < spec.min_new_tokens:
                most = min(most, spec.min_new_tokens - done - 1)  # what is banned is banned for the whole work
            if most > 0 and not by_runner:
                drafts = guess(request, most)
                most = len(drafts)
            if most > 0:
                most = self.room.room_for_drafts(request, most)
                budget -= most
            works.append(decode_work(request, drafts[:most], most if by_runner and most > 0 else 0))
        return works

    # -- prompts ------------------------------------------------------------------------------------------------

    def _plan_prompts(
        self, prompts: list[Request], budget: int, now_ns: int, is_tight: bool
    ) -> list[tuple[Request, int]]:
        """(request, positions) of the step's prompt chunks: those begun, then those let in.

        is_tight: somebody has just been preempted, so nobody is let in.
        """
        config = self.config
        budget = min(budget, config.max_prefill_tokens or budget)
        if config.policy != "continuous" and self._may_admit(now_ns):
            # Static and dynamic batches are whole before any of their prompts is computed.
            while len(self.running) < config.max_seqs and (admitted := self._admit_next(now_ns)):
                prompts.append(admitted)
        chunks: list[tuple[Request, int]] = []
        for request in prompts:
            count = min(request.wanted - request.computed, budget)
            if count:
                chunks.append((request, count))
                budget -= count
        if is_tight or config.policy != "continuous":
            return chunks
        while budget and len(self.running) < config.max_seqs and (admitted := self._admit_next(now_ns)):
            count = min(admitted.wanted - admitted.computed, budget)
            chunks.append((admitted, count))
            budget -= count
        return chunks

    def _may_admit(self, now_ns: int) -> bool:
        head = self.waiting.head()
        if self.running or head is None:
            return False
        queued = head.times.queued
        waited = 0 if queued is None else now_ns - queued
        full = len(self.waiting) >= self.config.max_seqs
        return self.config.policy == "static" or full or waited >= self.config.batch_wait_ns

    def _admit_next(self, now_ns: int) -> Request | None:
        """Give the first in line its blocks and move it to the running ones; None if there is nobody, or no room."""
        request = self.waiting.head()
        if request is None:
            return None
        spare = self.config.growth_reserve if self.running else 0
        parent = None if request.output else self._computed_parent(request.spec)
        if parent is not None:
            admitted = self.room.admit_beside(request, parent, spare)
        else:
            admitted = self.room.admit(request, spare)
        if not admitted:
            return None
        name = request.spec.request_id
        self.waiting.remove(name)
        self.running[name] = request
        request.state = RequestState.RUNNING
        if request.times.admitted is None:
            request.times.admitted = now_ns
            self._deadlines.started(request)
            self.waiting.served(request.spec.tenant, PROMPT_WEIGHT * (request.wanted - request.computed))
        else:
            request.times.resumed.append(now_ns)
        return request

    def _waits_for_parent(self, spec: RequestSpec) -> bool:
        """A parent that is still to compute the same prompt. A whole batch at once leaves nothing to wait for."""
        parent = self.requests.get(spec.parent) if spec.parent else None
        if parent is None or self.config.policy != "continuous" or not same_prefix(parent.spec, spec):
            return False
        return parent.times.prefill_end is None and not parent.times.preempted

    def _computed_parent(self, spec: RequestSpec) -> Request | None:
        parent = self.running.get(spec.parent) if spec.parent else None
        if parent is None or parent.computed < len(spec.prompt) or not same_prefix(parent.spec, spec):
            return None
        return parent

    # -- results ------------------------------------------------------------------------------------------------

    def _settle_tokens(
        self, request: Request, work: Work, result: StepResult, now_ns: int, out: list[Emission]
    ) -> None:
        """The tokens of one work: proposals that came true and one more, cut at the end of the answer."""
        spec, name = request.spec, work.request_id
        tokens = result.tokens.get(name, ())
        num_proposed = work.num_drafts + work.num_to_draft
        if not 1 <= len(tokens) <= num_proposed + 1:  # the runner broke its word: nothing after this can be right
            self.cancel(name, now_ns, FinishReason.ERROR)
            return
        if num_proposed:
            self.speculation.count(num_proposed, len(tokens) - 1)
        if request.times.prefill_end is None:
            request.times.prefill_end = now_ns
            self.waiting.call_back(name)
        logprobs = result.logprobs.get(name, ()) if result.logprobs else ()
        finish: FinishReason | None = None
        count = 0
        for token in tokens:
            request.output.append(token)
            request.times.token_ready.append(now_ns)
            finish = request.finish_after(token)
            said = logprobs[count] if count < len(logprobs) else None
            out.append(Emission(name, now_ns, token, finish, request.num_cached, said))
            count += 1
            if finish is not None:
                break
        # After a rejection the cache holds one position less than there are tokens: the newest is still to be computed.
        computed = work.start + len(work.token_ids) - work.num_drafts + len(tokens) - 1
        request.computed = min(computed, len(spec.prompt) + len(request.output))
        self.room.publish(request)
        if self.config.fair_share:
            self.waiting.served(spec.tenant, OUTPUT_WEIGHT * count)
        if finish is not None:
            self._end(request, finish, now_ns)
        elif num_proposed:
            self.room.crop(request)

    def _end(self, request: Request, reason: FinishReason, now_ns: int) -> None:
        """The one place where a request leaves and its blocks go back."""
        name = request.spec.request_id
        computed = request.computed
        self.room.release(request)
        request.computed = computed  # how far it came, for whoever asks afterwards
        request.state, request.finish = RequestState.FINISHED, reason
        request.times.released = now_ns
        self.running.pop(name, None)
        self.waiting.remove(name)
        self.waiting.call_back(name)
        self._deadlines.forget(name)
        del self.requests[name]
        self._released.append(name)
