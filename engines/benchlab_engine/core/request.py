"""One request inside the engine: what was asked, how far it has come, and its eight times.

The one idea: a request is two counters, tokens *wanted* (prompt and output so far) and tokens *computed* (positions
whose keys and values are in the cache). Prefill, decode and recomputation after a preemption are all the first
catching up with the second. It must not know the wire, the tensors, or what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from benchlab_engine.core.plan import GREEDY, Sampling
from benchlab_engine.core.propose import NgramIndex


class RequestState(StrEnum):
    """Where a request is on its walk."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"  # an end token, or the server saw a stop string
    LENGTH = "length"
    CANCELLED = "cancelled"  # the client went away
    EXPIRED = "expired"  # waited longer than its wait budget; never started
    DEADLINE = "deadline"  # its own deadline passed while it ran
    SLOW_READER = "slow_reader"  # the client did not read; its answer was given up so that others are not hurt
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What is asked of the engine. prompt: token ids, at least one. max_new_tokens: at least one.

    salt: keeps one tenant's cached prefixes from another's. max_wait_ns: 0 is no limit. priority: lower goes first.
    tenant: whose share of the engine this uses. deadline_ns: instant on the engine's clock after which the answer is
    worth nothing; 0 is none. parent: the request whose prompt this one has too (n > 1), to share its blocks.
    """

    request_id: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = GREEDY
    end_tokens: frozenset[int] = frozenset()
    salt: str = ""
    max_wait_ns: int = 0
    min_new_tokens: int = 0  # end tokens are not drawn before that many
    priority: int = 0
    tenant: str = ""
    deadline_ns: int = 0
    adapter: str = ""
    parent: str = ""


@dataclass(slots=True)
class RequestTimes:
    """The engine's own times, int64 ns of the clock that was handed in; None is "has not happened"."""

    accepted: int | None = None
    queued: int | None = None
    admitted: int | None = None
    prefill_start: int | None = None
    prefill_end: int | None = None
    token_ready: list[int] = field(default_factory=list)
    token_written: list[int] = field(default_factory=list)
    released: int | None = None
    preempted: list[int] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)


class Request:
    """The state of one request. Owned by the scheduler; nobody else changes it."""

    __slots__ = (
        "blocks",
        "computed",
        "finish",
        "grams",
        "hashes",
        "num_cached",
        "num_published",
        "output",
        "rank",
        "spec",
        "state",
        "times",
    )

    def __init__(self, spec: RequestSpec, times: RequestTimes, rank: tuple[int, int] = (0, 0)) -> None:
        self.spec = spec
        self.times = times
        self.rank = rank  # place among all requests, least first: aged priority, then arrival; it never changes
        self.state = RequestState.WAITING
        self.output: list[int] = []
        self.computed = 0
        self.blocks: tuple[int, ...] = ()  # a tuple, so that most steps hand it on as it is
        self.hashes: list[bytes] = []  # of this request's full blocks, as far as they are known
        self.num_cached = 0  # prompt tokens found in the prefix cache at first admission
        self.num_published = 0  # of its blocks, those that the pool knows by hash
        self.finish: FinishReason | None = None
        self.grams: NgramIndex | None = None  # once its own text is used to guess how it goes on

    @property
    def wanted(self) -> int:
        """Tokens whose keys and values the next token needs."""
        return len(self.spec.prompt) + len(self.output)

    @property
    def is_decoding(self) -> bool:
        """Only the newest token is left to compute, and it is an output token."""
        return bool(self.output) and self.computed == self.wanted - 1

    def finish_after(self, token: int) -> FinishReason | None:
        """Whether its newest token, this one, ends the answer."""
        spec, count = self.spec, len(self.output)
        if token in spec.end_tokens and count > spec.min_new_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if count >= spec.max_new_tokens else None

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        """Token ids of positions start to end, from prompt and output alike."""
        num_prompt = len(self.spec.prompt)
        if end <= num_prompt:
            return self.spec.prompt[start:end]
        if start >= num_prompt:
            return tuple(self.output[start - num_prompt : end - num_prompt])
        return self.spec.prompt[start:] + tuple(self.output[: end - num_prompt])
