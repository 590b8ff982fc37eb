"""A workload by its figures: any lengths, shared prefixes in a tree, sessions with waits, tenants, and arrivals.

The one idea: what is shared is a path through a tree of prefixes (the platform's, a tenant's, a document's), and each
level is chosen by Zipf's law below the one above; a turn of a session shares all of the turn before. It must not know
how an item is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchlab.errors import UsageError
from benchlab.workload.draw import Draw
from benchlab.workload.draw_math import gamma
from benchlab.workload.fit_arrivals import times
from benchlab.workload.fit_lengths import Lengths, pair_shares
from benchlab.workload.item import MAX_TOKENS, WorkloadItem
from benchlab.workload.recipe import Recipe

_MOST_IDS = 100_000_000
"""Ids of blocks in all items together, 8 bytes and more each."""


@dataclass(frozen=True, slots=True)
class Custom:
    """What is asked for.

    isl, osl: tokens of a prompt (with turns: what a turn adds) and of an answer; correlation of their normal scores.
    reuse: share of the tokens of first prompts that lies in shared prefixes; a prefix has one length, and a shorter
    prompt shares what it holds of it. tree: how many prefixes on each level. slant: Zipf's exponent of their
    popularity. turns: items a session. wait_ms: pause before a later turn. tenants: so many, by Zipf's law. rate, cv:
    gamma arrivals of items (of sessions, where there are turns); no rate: no times. block: tokens.
    """

    isl: Lengths
    osl: Lengths
    correlation: float = 0.0
    reuse: float = 0.0
    tree: tuple[int, ...] = (1,)
    slant: float = 1.0
    turns: Lengths | None = None
    wait_ms: Lengths | None = None
    tenants: int = 0
    rate: float | None = None
    cv: float = 1.0
    block: int = 16

    def __post_init__(self) -> None:
        """Raises UsageError, naming the flag, for figures that make no workload."""
        for flag, value, low, high in (
            ("--correlation", self.correlation, -1, 1),
            ("--reuse", self.reuse, 0, 1),
            ("--zipf", self.slant, 0, 10),
            ("--tenants", self.tenants, 0, 10_000),
            ("--rate", 1 if self.rate is None else self.rate, 1e-6, 1e6),
            ("--cv", self.cv, 0.01, 4),
            ("--block-tokens", self.block, 1, 65_536),
            ("--prefix-tree", len(self.tree), 1, 8),
            *(("--prefix-tree", width, 1, 100_000) for width in self.tree),
        ):
            if not low <= value <= high:
                raise UsageError(
                    f"expected {low:g} to {high:g}, got {value:g}", where=flag, hint="give a figure in there"
                )


def parse_tree(text: str) -> tuple[int, ...]:
    """`1x8x32` as numbers of prefixes a level. Raises UsageError."""
    try:
        return tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise UsageError(
            f"'{text[:40]}' is no tree", where="--prefix-tree", hint="write how many a level, for example 1x4x16"
        ) from None


def custom(asked: Custom) -> Recipe:
    """The recipe for these figures."""

    def make(seed: int, num_items: int) -> list[WorkloadItem]:
        return _Making(asked, seed, num_items).items()

    targets: dict[str, float] = {}
    if asked.turns is None:
        for side, lengths in (("input", asked.isl), ("output", asked.osl)):
            shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
            targets |= {f"{side}.{name}": float(lengths.at(np.array([at]))[0]) for name, at in shares.items()}
    words = f"inputs {asked.isl.text}, outputs {asked.osl.text}"
    return Recipe("custom", make, f"made to order: {words}", "nothing measured: the figures asked for", 200, targets)


class _Making:
    """One workload being made."""

    def __init__(self, asked: Custom, seed: int, num_items: int) -> None:
        self._asked, self._draw, self._num = asked, Draw(seed, "custom"), num_items
        self._name = f"custom-s{seed}"
        self._next_id = 0
        self._shared: dict[tuple[int, int, int], int] = {}

    def items(self) -> list[WorkloadItem]:
        asked, draw, num = self._asked, self._draw, self._num
        first, second = pair_shares(draw, num, asked.correlation)
        inputs, outputs = asked.isl.at(first).tolist(), asked.osl.at(second).tolist()
        starts = self._starts()
        begins = self._begins(len(starts))
        tenants = draw.zipf(len(starts), asked.tenants, asked.slant).tolist() if asked.tenants else None
        paths = self._paths(len(starts))
        shared = _prefix_blocks([inputs[start] for start in starts], asked.reuse, asked.block)
        waits = asked.wait_ms.at(np.array(draw.strata(num))).tolist() if asked.wait_ms is not None else None
        self._check_ids(starts, inputs, outputs, shared)
        items: list[WorkloadItem] = []
        for session, (start, end) in enumerate(pairwise([*starts, num])):
            tenant = f"tenant-{tenants[session] + 1}" if tenants else None
            chain = self._prefix(paths[session], min(shared, (inputs[start] - 1) // asked.block), shared)
            context = 0
            for turn, place in enumerate(range(start, end), 1):
                tokens = min(MAX_TOKENS, context + inputs[place])
                if asked.turns is not None and end - start > 1:
                    chain = [*chain, *self._fresh(tokens // asked.block - len(chain))]
                later = turn > 1
                many = asked.turns is not None
                items.append(
                    WorkloadItem(
                        id=f"{self._name}-{place + 1:05d}",
                        input_tokens=tokens,
                        prefix_blocks=chain or None,
                        block_tokens=asked.block if chain else None,
                        output_tokens=outputs[place],
                        arrival_s=None if later or begins is None else begins[session],
                        wait_s=waits[place] / 1000 if later and waits is not None else None,
                        session=f"{self._name}-{session + 1:05d}" if many else None,
                        turn=turn if many else None,
                        tenant=tenant,
                    )
                )
                context = min(MAX_TOKENS - 1, tokens + outputs[place])
        return items

    def _check_ids(self, starts: list[int], inputs: list[int], outputs: list[int], shared: int) -> None:
        """Raises UsageError before memory gives out on ids of blocks."""
        total = shared * len(starts)
        if self._asked.turns is not None:
            for start, end in pairwise([*starts, self._num]):
                context = 0
                for place in range(start, end):
                    total += (context + inputs[place]) // self._asked.block
                    context += inputs[place] + outputs[place]
        if total > _MOST_IDS:
            raise UsageError(
                f"the items would hold {total:,} ids of blocks, more than {_MOST_IDS:,}",
                where="--block-tokens",
                hint="give larger blocks, or fewer items",
            )

    def _starts(self) -> list[int]:
        """The place of each session's first item; without turns every item is one."""
        if self._asked.turns is None:
            return list(range(self._num))
        starts, place = [], 0
        lengths: list[int] = []
        while place < self._num:
            if not lengths:
                lengths = self._asked.turns.at(np.array(self._draw.strata(50))).tolist()
            starts.append(place)
            place += lengths.pop()
        return starts

    def _begins(self, num: int) -> list[float] | None:
        if self._asked.rate is None:
            return None
        return times(gamma(np.array(self._draw.strata(num)), 1 / self._asked.cv**2) / self._asked.rate)

    def _paths(self, num: int) -> list[tuple[int, ...]]:
        """A path through the tree for each session: numbers of nodes, each level's below the one above."""
        widths = [self._draw.zipf(num, width, self._asked.slant) for width in self._asked.tree]
        node = np.zeros(num, dtype=np.int64)
        levels = []
        for width, chosen in zip(self._asked.tree, widths, strict=True):
            node = node * width + chosen
            levels.append(node.tolist())
        return list(zip(*levels, strict=True))

    def _prefix(self, path: tuple[int, ...], num: int, full: int) -> list[int]:
        """The first `num` of the `full` shared blocks on a path, which the levels part evenly among themselves.

        A block's node and place say which blocks stand before it, so equal ids have equal prefixes.
        """
        levels = len(path)
        return [
            self._id(level, path[level], place) for place in range(num) for level in [place * levels // max(1, full)]
        ]

    def _id(self, level: int, node: int, place: int) -> int:
        """A number for a block: of its level, its node and its place."""
        key = (level, node, place)
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = self._fresh(1)[0]
        return found

    def _fresh(self, num: int) -> range:
        start = self._next_id
        self._next_id += max(0, num)
        return range(start, self._next_id)


def _prefix_blocks(inputs: list[int], reuse: float, block: int) -> int:
    """The length of a shared prefix, in blocks, that makes `reuse` of all tokens shared; a prompt never wholly."""
    room = np.sort((np.array(inputs) - 1) // block)
    wanted, low, high = reuse * sum(inputs) / block, 0, int(room[-1])
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(room, middle).sum()) < wanted:
            low = middle + 1
        else:
            high = middle
    below = int(np.minimum(room, max(0, low - 1)).sum())
    return low - 1 if low and wanted - below < int(np.minimum(room, low).sum()) - wanted else low
