"""Which tokens are computed next.

The one idea: each step lets tokens *computed* catch up with tokens *wanted* under a token budget: decode steps first,
prompt chunks in the rest, in order of arrival. Prefill, chunking, prefix reuse and recomputation after a preemption
are the same arithmetic. It must not know tensors or wire, read a clock or draw chance: time is handed in.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchlab_engine.core.admission import Limits, Refusal, RefusalKind, refuse
from benchlab_engine.core.blocks import BlockPool, chain_hash, root_hash
from benchlab_engine.core.plan import StepPlan, StepResult, TokenLogprobs, Work
from benchlab_engine.core.request import FinishReason, Request, RequestSpec, RequestState, RequestTimes
from benchlab_engine.core.waiting import WaitingLine

POLICIES = ("continuous", "static", "dynamic")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """max_batched_tokens: of one step. max_prefill_tokens: of those, at most so many of prompts (0: no own limit).

    policy: continuous admits whenever there is a slot; static only into an empty batch; dynamic the same, once the
    batch can be filled or its oldest has waited batch_wait_ns. model_id: keeps prefixes of unlike models apart.
    """

    max_seqs: int = 16
    max_batched_tokens: int = 512
    max_prefill_tokens: int = 0
    block_size: int = 16
    num_blocks: int = 1024
    max_model_len: int = 8192
    queue_limit: int = 256
    policy: str = "continuous"
    prefix_cache: bool = True
    batch_wait_ns: int = 50_000_000
    model_id: str = ""

    def limits(self) -> Limits:
        """What admission needs to know of this."""
        return Limits(self.max_model_len, self.max_seqs, self.num_blocks, self.block_size, self.queue_limit)


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
        if config.policy not in POLICIES:
            raise ValueError(f"policy {config.policy!r} is not one of {', '.join(POLICIES)}")
        if config.max_batched_tokens < config.max_seqs:
            raise ValueError(
                f"max_batched_tokens {config.max_batched_tokens} is below max_seqs {config.max_seqs}: "
                "a step could not hold one token of each running request"
            )
        self.config = config
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.running: dict[str, Request] = {}  # in order of admission
        self.waiting = WaitingLine()
        self.requests: dict[str, Request] = {}
        self.num_preemptions = 0
        self._number = 0
        self._released: list[str] = []
        self._preempted: list[str] = []
        self._news: list[Emission] = []

    # -- in and out ---------------------------------------------------------------------------------------------

    def submit(self, spec: RequestSpec, now_ns: int, times: RequestTimes | None = None) -> Refusal | None:
        """Join the line, or be told why not. times: where the request's times are to be written."""
        if spec.request_id in self.requests:
            return Refusal(RefusalKind.DUPLICATE, f"a request with the id {spec.request_id!r} is in the engine already")
        refusal = refuse(spec, self.config.limits(), len(self.requests))
        if refusal is not None:
            return refusal
        request = Request(spec, times or RequestTimes())
        if request.times.accepted is None:
            request.times.accepted = now_ns
        request.times.queued = now_ns
        self.requests[spec.request_id] = request
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

    # -- the two halves of a step -------------------------------------------------------------------------------

    def plan(self, now_ns: int) -> StepPlan:
        """Decide the next step. It holds no work when nothing can run."""
        for request in self.waiting.overdue(now_ns):
            self.cancel(request.spec.request_id, now_ns, FinishReason.EXPIRED)
        works: dict[str, Work] = {}
        budget = self.config.max_batched_tokens
        for request in list(self.running.values()):
            if budget and request.is_decoding and self._grow(request, now_ns):
                works[request.spec.request_id] = self._work(request, 1)
                budget -= 1
        self._plan_prompts(works, budget, now_ns)
        self._number += 1
        released, self._released = tuple(self._released), []
        preempted, self._preempted = tuple(self._preempted), []
        return StepPlan(self._number, tuple(works.values()), released, preempted)

    def settle(self, plan: StepPlan, result: StepResult, now_ns: int) -> list[Emission]:
        """Take a step's result in: counters move, tokens come out, ended requests leave."""
        out: list[Emission] = []
        for work in plan.works:
            request = self.requests.get(work.request_id)
            if request is None or request.state is not RequestState.RUNNING:
                continue  # cancelled while the step ran
            request.computed = work.start + len(work.token_ids)
            self._publish(request)
            if not work.samples:
                continue
            (token,) = result.tokens[work.request_id]
            if request.times.prefill_end is None:
                request.times.prefill_end = now_ns
            request.output.append(token)
            request.times.token_ready.append(now_ns)
            finish = self._finish_of(request, token)
            if finish is not None:
                self._end(request, finish, now_ns)
            out.append(Emission(work.request_id, now_ns, token, finish, request.num_cached))
        return out

    def fail(self, plan: StepPlan, now_ns: int) -> None:
        """The step could not be carried out: its requests end with an error, the others go on."""
        for work in plan.works:
            self.cancel(work.request_id, now_ns, FinishReason.ERROR)

    def audit(self) -> None:
        """Raise AuditError unless blocks and counters agree with the running requests."""
        self.pool.audit([request.blocks for request in self.requests.values()])
        for request in self.requests.values():
            assert request.computed <= request.wanted, request.spec.request_id
            assert len(request.blocks) * self.config.block_size >= request.computed, request.spec.request_id

    # -- parts ---------------------------------------------------------------------------------------------------

    def _plan_prompts(self, works: dict[str, Work], budget: int, now_ns: int) -> None:
        prompt_budget = min(budget, self.config.max_prefill_tokens or budget)
        if self.config.policy != "continuous" and self._may_admit(now_ns):
            self._admit_batch(now_ns)
        for request in self.running.values():
            missing = request.wanted - request.computed
            if prompt_budget and request.spec.request_id not in works and not request.is_decoding:
                count = min(missing, prompt_budget)
                works[request.spec.request_id] = self._work(request, count)
                prompt_budget -= count
        if self._preempted or self.config.policy != "continuous":
            return
        while prompt_budget and len(self.running) < self.config.max_seqs:
            request_or_none = self.waiting.head()
            if request_or_none is None or not self._admit(request_or_none, now_ns):
                return
            count = min(request_or_none.wanted - request_or_none.computed, prompt_budget)
            works[request_or_none.spec.request_id] = self._work(request_or_none, count)
            prompt_budget -= count

    def _admit_batch(self, now_ns: int) -> None:
        """Static and dynamic batches are whole before any of their prompts is computed."""
        while len(self.running) < self.config.max_seqs:
            head = self.waiting.head()
            if head is None or not self._admit(head, now_ns):
                return

    def _may_admit(self, now_ns: int) -> bool:
        head = self.waiting.head()
        if self.running or head is None:
            return False
        waited = now_ns - (head.times.queued or now_ns)
        full = len(self.waiting) >= self.config.max_seqs
        return self.config.policy == "static" or full or waited >= self.config.batch_wait_ns

    def _admit(self, request: Request, now_ns: int) -> bool:
        """Give a waiting request its blocks and move it to the running ones; False if they are not there."""
        pool, wanted = self.pool, request.wanted
        hits: list[int] = []
        if self.config.prefix_cache:
            # The last token is always computed: its logits are needed.
            self._hash_blocks(request, (wanted - 1) // pool.block_size)
            hits = pool.find(request.hashes[: (wanted - 1) // pool.block_size])
        fresh = pool.blocks_for(wanted) - len(hits)
        if fresh + pool.count_free(hits) > pool.num_free:
            return False
        pool.share(hits)
        request.blocks = hits + pool.take(fresh)
        request.computed = len(hits) * pool.block_size
        request.num_published = len(hits)
        self.waiting.remove(request.spec.request_id)
        self.running[request.spec.request_id] = request
        request.state = RequestState.RUNNING
        if request.times.admitted is None:
            request.times.admitted = request.times.prefill_start = now_ns
            request.num_cached = request.computed
            if self.config.prefix_cache:
                pool.queried_tokens += wanted
                pool.hit_tokens += request.computed
        else:
            request.times.resumed.append(now_ns)
        return True

    def _grow(self, request: Request, now_ns: int) -> bool:
        """Make sure the newest token has a place, at the cost of the youngest; False if that was this one."""
        if request.spec.request_id not in self.running:
            return False
        while len(request.blocks) * self.pool.block_size < request.wanted:
            if self.pool.num_free:
                request.blocks += self.pool.take(1)
                return True
            youngest = next(reversed(self.running.values()))
            self._preempt(youngest, now_ns)
            if youngest is request:
                return False
        return True

    def _preempt(self, request: Request, now_ns: int) -> None:
        self.pool.release(request.blocks)
        request.blocks, request.computed, request.num_published = [], 0, 0
        request.state = RequestState.WAITING
        request.times.preempted.append(now_ns)
        del self.running[request.spec.request_id]
        self.waiting.put_back(request)
        self._preempted.append(request.spec.request_id)
        self.num_preemptions += 1

    def _work(self, request: Request, count: int) -> Work:
        start, end = request.computed, request.computed + count
        return Work(
            request_id=request.spec.request_id,
            token_ids=request.tokens(start, end),
            start=start,
            block_table=tuple(request.blocks[: self.pool.blocks_for(end)]),
            samples=end == request.wanted,
            is_decode=request.is_decoding,
            sampling=request.spec.sampling,
            output_index=len(request.output),
        )

    def _publish(self, request: Request) -> None:
        if not self.config.prefix_cache:
            return
        full = request.computed // self.pool.block_size
        self._hash_blocks(request, full)
        for index in range(request.num_published, full):
            self.pool.publish(request.blocks[index], request.hashes[index])
        request.num_published = full

    def _hash_blocks(self, request: Request, count: int) -> None:
        size = self.pool.block_size
        while len(request.hashes) < count:
            index = len(request.hashes)
            parent = request.hashes[-1] if index else root_hash(self.config.model_id, request.spec.salt)
            request.hashes.append(chain_hash(parent, request.tokens(index * size, (index + 1) * size)))

    def _finish_of(self, request: Request, token: int) -> FinishReason | None:
        if token in request.spec.end_tokens and len(request.output) >= request.spec.min_new_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(request.output) >= request.spec.max_new_tokens else None

    def _end(self, request: Request, reason: FinishReason, now_ns: int) -> None:
        """The one place where a request leaves and its blocks go back."""
        self.pool.release(request.blocks)
        request.blocks = []
        request.state, request.finish = RequestState.FINISHED, reason
        request.times.released = now_ns
        name = request.spec.request_id
        self.running.pop(name, None)
        self.waiting.remove(name)
        del self.requests[name]
        self._released.append(name)
