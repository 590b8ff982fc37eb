"""A runner that computes nothing but remembers what lies in every slot, and the answers that must come of it."""

from __future__ import annotations

from benchlab_engine.core.plan import StepPlan, StepResult, TokenLogprobs, Work
from benchlab_engine.core.request import RequestSpec

VOCABULARY = 7


def root(spec: RequestSpec) -> int:
    """What stands before position 0: an adapter changes every key and value."""
    return hash(tuple(spec.adapter.encode()))


def chain(before: int, token: int) -> int:
    """What a slot holds: a stand-in for keys and values, which depend on the whole prefix."""
    return hash((before, token))


def next_token(held: int, last: int, seed: int, banned: frozenset[int]) -> int:
    """The next token after a prefix: often a simple pattern, so that guessing pays, sometimes of the whole prefix."""
    stirred = hash((held, seed, 1))
    token = (2 * last + 1) % VOCABULARY if stirred % 5 else (stirred // 5) % VOCABULARY
    while token in banned:
        token = (token + 1) % VOCABULARY
    return token


def answer(spec: RequestSpec) -> list[int]:
    """The whole answer, by definition: a pure function of the request."""
    held = root(spec)
    for token in spec.prompt:
        held = chain(held, token)
    output: list[int] = []
    last = spec.prompt[-1]
    while len(output) < spec.max_new_tokens:
        banned = spec.end_tokens if len(output) < spec.min_new_tokens else frozenset()
        last = next_token(held, last, spec.sampling.seed, banned)
        output.append(last)
        held = chain(held, last)
        if last in spec.end_tokens:
            break
    return output


class NamedError(Exception):
    """Names the requests that a step failed for."""

    def __init__(self, request_ids):
        super().__init__("named")
        self.request_ids = request_ids


class SlotRunner:
    """Reads and writes slots as a model would, and checks every read and every write against the request's tokens."""

    def __init__(self, scheduler, copy_backwards=False):
        self.scheduler = scheduler
        self.size = scheduler.config.block_size
        self.slots: dict[int, int] = {}
        self.copy_backwards = copy_backwards
        self.plans: list[StepPlan] = []
        self.during = None  # called once, in the middle of a step
        self.after = None  # called once, when a step is computed and before its tokens are given

    def execute(self, plan: StepPlan) -> StepResult:
        self.scheduler.audit(plan)
        self.plans.append(plan)
        if self.during is not None:
            during, self.during = self.during, None
            requests = dict(self.scheduler.requests)
            during(plan)
        else:
            requests = self.scheduler.requests
        size = self.size
        for source, target in reversed(plan.copies) if self.copy_backwards else plan.copies:
            for index in range(size):
                self.slots[target * size + index] = self.slots.get(source * size + index, -1)
        truths = [self._truth(requests[work.request_id]) for work in plan.works]
        for work, (tokens, held) in zip(plan.works, truths, strict=True):
            num_known = len(work.token_ids) - work.num_drafts
            assert work.token_ids[:num_known] == tokens[work.start : work.start + num_known]
            assert work.samples == (work.start + num_known == len(tokens))
            self._check(work, held, work.start)
        result: dict[str, tuple[int, ...]] = {}
        logprobs: dict[str, tuple[TokenLogprobs, ...]] = {}
        for work, (tokens, _) in zip(plan.works, truths, strict=True):
            given = self._compute(work, tokens, root(requests[work.request_id].spec))
            if work.samples:
                result[work.request_id] = given
                if work.sampling.logprobs is not None:
                    logprobs[work.request_id] = tuple(TokenLogprobs(-float(token)) for token in given)
        for work, (tokens, held) in zip(plan.works, truths, strict=True):
            self._check(work, held, min(work.start + len(work.token_ids) - work.num_drafts, len(tokens)))
        if self.after is not None:
            after, self.after = self.after, None
            after(plan)
        return StepResult(result, 0, logprobs)

    def _truth(self, request):
        """The tokens of a request, and what each of their slots must hold."""
        tokens = request.tokens(0, request.wanted)
        held, now = [], root(request.spec)
        for token in tokens:
            now = chain(now, token)
            held.append(now)
        return tokens, held

    def _slot(self, work: Work, position: int) -> int:
        return work.block_table[position // self.size] * self.size + position % self.size

    def _check(self, work: Work, held, end: int) -> None:
        for position in range(end):
            assert self.slots[self._slot(work, position)] == held[position], (work.request_id, position)

    def _compute(self, work: Work, tokens, first: int) -> tuple[int, ...]:
        before = self.slots[self._slot(work, work.start - 1)] if work.start else first
        drafts = list(work.token_ids[len(work.token_ids) - work.num_drafts :])
        for position, token in enumerate(work.token_ids[: len(work.token_ids) - work.num_drafts], work.start):
            before = chain(before, token)
            self.slots[self._slot(work, position)] = before
        if not work.samples:
            return ()
        position, last, seed = len(tokens), tokens[-1], work.sampling.seed
        if work.history is not None:
            assert work.history[0] + work.history[1] == tokens
        given = [next_token(before, last, seed, work.banned)]
        while len(given) <= work.num_drafts + work.num_to_draft:
            # A runner that drafts for itself is right unless the prefix says otherwise.
            draft = drafts.pop(0) if drafts else (given[-1] + (before % 3 == 0)) % VOCABULARY
            before = chain(before, draft)
            self.slots[self._slot(work, position)] = before
            position += 1
            if draft != given[-1]:
                for token in drafts:  # the rest of the proposals lie in the cache too, and are worth nothing
                    before = chain(before, token)
                    self.slots[self._slot(work, position)] = before
                    position += 1
                break
            given.append(next_token(before, draft, seed, work.banned))
        return tuple(given)
