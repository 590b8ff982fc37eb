"""Where each request's keys and values lie: blocks for those that come in, grow, share and leave.

The one idea: a request holds just the blocks of its tokens wanted, and writes into none that anybody else refers to.

    parent   [ full ][ full ][ part ]         one prompt, computed once
    child    [ same ][ same ][ copy ]         the last prompt block is copied before the child writes into it

Blocks that proposals needed and that came to nothing go back at once: a blank block is taken again first of all, so
nothing is evicted for the back and forth, and whoever waits can have it. It must not know budgets, the line, or time,
and it never takes a block from anybody: who has to make room is the scheduler's choice.
"""

from __future__ import annotations

from benchlab_engine.core.blocks import AuditError, BlockPool, chain_hash, root_hash
from benchlab_engine.core.config import SchedulerConfig
from benchlab_engine.core.plan import StepPlan
from benchlab_engine.core.request import Request, RequestSpec


def same_prefix(one: RequestSpec, other: RequestSpec) -> bool:
    """Whether the two prompts have equal keys and values, and may be known to each other's tenant."""
    return one.prompt == other.prompt and one.salt == other.salt and one.adapter == other.adapter


class Room:
    """The pool, seen from the requests. copies: of the step that is being planned, from each block to its source."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.copies: dict[int, int] = {}
        self._cache = config.prefix_cache
        self._identity = (config.model_id, config.kv_format)

    def admit(self, request: Request, spare: int) -> bool:
        """Give a request the blocks of all it wants, known prefixes shared. False if spare would not be left free."""
        pool, wanted = self.pool, request.wanted
        hits: tuple[int, ...] = ()
        if self._cache:
            # The last token is always computed: its logits are needed.
            most = (wanted - 1) // pool.block_size
            self._hash_blocks(request, most)
            hits = tuple(pool.find(request.hashes[:most]))
        fresh = pool.blocks_for(wanted) - len(hits)
        if fresh + pool.count_free(hits) + spare > pool.num_free:
            return False
        pool.share(hits)
        request.blocks = (*hits, *pool.take(fresh))
        request.computed = len(hits) * pool.block_size
        request.num_published = len(hits)
        if self._cache and request.times.admitted is None:
            request.num_cached = request.computed
            pool.queried_tokens += wanted
            pool.hit_tokens += request.computed
        return True

    def admit_beside(self, request: Request, parent: Request, spare: int) -> bool:
        """Share the blocks of a parent's computed prompt; only the last position is left to compute."""
        pool, last = self.pool, len(request.spec.prompt) - 1
        if 1 + spare > pool.num_free:
            return False
        request.blocks = parent.blocks[: pool.blocks_for(last + 1)]
        pool.share(request.blocks)
        request.computed = last
        request.num_published = last // pool.block_size
        request.hashes = parent.hashes[: request.num_published]
        request.num_cached = parent.num_cached
        return self.grow(request, last + 1)

    def grow(self, request: Request, end: int) -> bool:
        """Make sure that positions computed .. end-1 have blocks of the request's own. False: no block is free."""
        pool = self.pool
        size = pool.block_size
        for index in range(request.computed // size, min(-(-end // size), len(request.blocks))):
            if pool.is_shared(request.blocks[index]) and not self._own(request, index):
                return False
        missing = -(-end // size) - len(request.blocks)
        if missing > 0:
            if missing > pool.num_free:
                return False
            request.blocks = (*request.blocks, *pool.take(missing))
        return True

    def room_for_drafts(self, request: Request, num_drafts: int) -> int:
        """How many proposals have a place after the newest token, blocks taken for them where there are free ones."""
        wanted, size, held = request.wanted, self.pool.block_size, len(request.blocks)
        end = wanted + num_drafts
        if end > held * size:
            end = min(end, (held + self.pool.num_free) * size)
            self.grow(request, end)
        return end - wanted

    def crop(self, request: Request) -> None:
        """Give back what is held beyond the tokens wanted: rejected proposals."""
        keep = self.pool.blocks_for(request.wanted)
        if len(request.blocks) > keep:
            self.pool.release(request.blocks[keep:])
            request.blocks = request.blocks[:keep]

    def release(self, request: Request) -> None:
        """The request leaves its blocks; what it knows of its prefix stays with them."""
        if self.copies:
            for block in request.blocks:
                if not self.pool.is_shared(block):
                    self.copies.pop(block, None)
        self.pool.release(request.blocks)
        request.blocks, request.computed, request.num_published = (), 0, 0

    def publish(self, request: Request) -> None:
        """Blocks that have become full and computed may be shared from now on."""
        full = request.computed // self.pool.block_size
        if not self._cache or full <= request.num_published:
            return
        self._hash_blocks(request, full)
        for index in range(request.num_published, full):
            self.pool.publish(request.blocks[index], request.hashes[index])
        request.num_published = full

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """(from, to) of the step's copies. Forgets them."""
        if not self.copies:
            return ()
        copies, self.copies = self.copies, {}
        return tuple((source, target) for target, source in copies.items())

    def audit_plan(self, plan: StepPlan) -> None:
        """Raise AuditError if the plan writes into a block that is shared or published, or copies in a circle."""
        size = self.pool.block_size
        sources, targets = {source for source, _ in plan.copies}, [target for _, target in plan.copies]
        if len(set(targets)) < len(targets) or sources & set(targets):
            raise AuditError(f"step {plan.number}: copies {plan.copies} depend on their order")
        written: set[int] = set()
        for work in plan.works:
            end = work.start + len(work.token_ids) + work.num_to_draft
            if len(work.block_table) != -(-end // size):
                raise AuditError(f"{work.request_id}: {len(work.block_table)} blocks for {end} positions")
            mine = set(work.block_table[work.start // size :])
            for block in mine:
                if self.pool.is_shared(block) or self.pool.is_known(block):
                    raise AuditError(
                        f"step {plan.number}: {work.request_id} writes into block {block}, shared or known"
                    )
            if mine & written:
                raise AuditError(f"step {plan.number}: {work.request_id} writes where another work writes")
            written |= mine

    def _own(self, request: Request, index: int) -> bool:
        """Put a copy in the place of a shared block. False: no block is free."""
        if not self.pool.num_free:
            return False
        old = request.blocks[index]
        (new,) = self.pool.take(1)
        self.pool.release((old,))
        self.copies[new] = old
        request.blocks = (*request.blocks[:index], new, *request.blocks[index + 1 :])
        return True

    def _hash_blocks(self, request: Request, count: int) -> None:
        size, hashes, spec = self.pool.block_size, request.hashes, request.spec
        while len(hashes) < count:
            index = len(hashes)
            parent = hashes[-1] if index else root_hash(*self._identity, spec.adapter, spec.salt)
            hashes.append(chain_hash(parent, request.tokens(index * size, (index + 1) * size)))
