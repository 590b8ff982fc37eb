"""The paged key/value pool: which block holds what, who shares it, and which is given up first.

The one idea: a block is an integer with a reference count. Blocks nobody refers to stand in a free list in eviction
order; those that hold a known prefix keep their hash and can be taken back until they are reused.

    free list:   [ blank, blank, | least recently released ... most recently released ]
                   taken first                                   taken last

A block's hash chains over all tokens before it, so equal hashes mean equal prefixes. It must not know requests,
tensors, or time.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence


class AuditError(AssertionError):
    """The pool contradicts itself: a block lost, or shared without a count."""


def root_hash(*parts: str) -> bytes:
    """Start of a chain: model identity, KV format, tenant salt: whatever must keep equal tokens apart."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(struct.pack("<I", len(raw)) + raw)
    return digest.digest()


def chain_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Hash of a full block that follows the prefix with hash `parent`."""
    return hashlib.sha256(parent + struct.pack(f"<{len(token_ids)}I", *token_ids)).digest()


class BlockPool:
    """Blocks 0 .. num_blocks-1 of block_size token positions each."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs at least one block of one token, not {num_blocks} of {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._references = [0] * num_blocks
        self._hash: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.queried_tokens = 0
        self.hit_tokens = 0

    @property
    def num_free(self) -> int:
        """Blocks nobody refers to, cached ones included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of blocks that somebody refers to, 0 to 1."""
        return 1.0 - len(self._free) / self.num_blocks

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that num_tokens positions fill, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def is_shared(self, block: int) -> bool:
        """More than one reference: nobody may write into it."""
        return self._references[block] > 1

    def is_known(self, block: int) -> bool:
        """It holds a published prefix, which is never rewritten."""
        return self._hash[block] is not None

    def find(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks of the longest known prefix of these hashes. Counts nothing and takes nothing."""
        found: list[int] = []
        for each in hashes:
            block = self._block_of.get(each)
            if block is None:
                break
            found.append(block)
        return found

    def count_free(self, blocks: Iterable[int]) -> int:
        """How many of these stand in the free list, and so would be used up by sharing them."""
        return sum(self._references[block] == 0 for block in blocks)

    def share(self, blocks: Iterable[int]) -> None:
        """Refer once more to blocks that hold a known prefix."""
        for block in blocks:
            if self._references[block] == 0:
                del self._free[block]
            self._references[block] += 1

    def take(self, count: int) -> list[int]:
        """Refer to `count` blank blocks, evicting the oldest cached ones. The caller has checked num_free."""
        if count > len(self._free):
            raise ValueError(f"{count} blocks asked for, {len(self._free)} free")
        taken: list[int] = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._references[block] = 1
            taken.append(block)
        return taken

    def publish(self, block: int, block_hash: bytes) -> None:
        """This block is full and computed: later requests may share it. A hash already known stays where it is."""
        if self._hash[block] is None and block_hash not in self._block_of:
            self._hash[block] = block_hash
            self._block_of[block_hash] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each. The tail goes first, so that a prefix outlives what was built on it."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                if self._hash[block] is None:
                    self._free.move_to_end(block, last=False)

    def audit(self, holders: Iterable[Sequence[int]]) -> None:
        """Raise AuditError unless every block is held exactly as often as it is counted, or free."""
        held = Counter(block for table in holders for block in table)
        for block in range(self.num_blocks):
            count = self._references[block]
            if count != held[block]:
                raise AuditError(f"block {block}: {count} references counted, {held[block]} held")
            if (count == 0) != (block in self._free):
                raise AuditError(f"block {block}: {count} references, in the free list: {block in self._free}")
            known = self._hash[block]
            if known is not None and self._block_of.get(known) != block:
                raise AuditError(f"block {block}: its hash leads to block {self._block_of.get(known)}")
        if len(self._block_of) != sum(each is not None for each in self._hash):
            raise AuditError("a hash leads to a block that does not carry it")

    def _forget(self, block: int) -> None:
        known = self._hash[block]
        if known is not None:
            del self._block_of[known]
            self._hash[block] = None
