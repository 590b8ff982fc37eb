"""One checked request, whatever wire form it came in, and what is told of one token.

The one idea: the wire forms meet here: each parses into a Call, and each writes answers from the same few values. It
must not know JSON, HTTP or the engine's insides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchlab_engine.core.plan import GREEDY, Sampling
from benchlab_engine.serve.fields import WireError

MAX_CHOICES = 16
MAX_STOPS = 16
MAX_TOP_LOGPROBS = 20
SEEDS = (-(2**63), 2**63 - 1)
PRIORITIES = (-(2**31), 2**31 - 1)


@dataclass(frozen=True, slots=True)
class Call:
    """messages or prompt or prompt_tokens is set. max_tokens None: as the server likes.

    is_chat: messages go through the chat template. sampling: all but the seed, which is `seed` or made up (None).
    n: answers to the same prompt. priority None: as the header says.
    """

    is_chat: bool
    model: str
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt: str = ""
    prompt_tokens: tuple[int, ...] = ()
    max_tokens: int | None = None
    min_tokens: int = 0
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    stop: tuple[str, ...] = ()
    sampling: Sampling = GREEDY
    seed: int | None = None
    n: int = 1
    echo: bool = False
    ignore_eos: bool = False
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, all its choices together. cached: of the prompt's, found in the prefix cache."""

    prompt: int
    completion: int
    cached: int


@dataclass(slots=True)
class Chance:
    """One token and its logarithm. raw: its bytes, perhaps a part of a character."""

    raw: bytes
    logprob: float


@dataclass(slots=True)
class TokenChances:
    """What a token's log-probability entry says. offset: characters of the answer before it."""

    own: Chance
    top: Sequence[Chance]
    offset: int


@dataclass(slots=True)
class Piece:
    """What one piece of news brought. text may be empty. finish: "stop" or "length", on the last piece only.

    is_token: an event of its own is due; an end token is counted but shows as the end alone. stop: the stop string met.
    """

    text: str
    is_token: bool
    finish: str | None = None
    stop: str | None = None
    chances: TokenChances | None = None


class EventWriter(Protocol):
    """The events of one stream, each as ASCII text. index: of the choice. count: only where each event tells it."""

    def opening(self, usage: Usage) -> str:
        """What comes before the first token."""
        ...

    def token(self, index: int, text: str, chances: TokenChances | None = None, count: Usage | None = None) -> str:
        """One token's event; its text may be empty."""
        ...

    def finish(self, index: int, piece: Piece, text: str, usage: Usage) -> str:
        """The end of one choice, with the text that was still held back."""
        ...

    def closing(self, usage: Usage, *, is_marked: bool) -> str:
        """What comes after the last choice. is_marked False: without the stream's own end mark."""
        ...

    def error(self, error: WireError) -> str:
        """An error after the first byte. Nothing follows it."""
        ...


class Wire(Protocol):
    """One wire form: how an answer and an error are written."""

    def events(self, call: Call, request_id: str, model: str, created: int) -> EventWriter:
        """The writer of one stream."""
        ...

    def whole(
        self, call: Call, request_id: str, model: str, created: int, choices: Sequence[Sequence[Piece]], usage: Usage
    ) -> Mapping[str, Any]:
        """The answer that is not streamed. choices: the pieces of each."""
        ...

    def error(self, error: WireError, request_id: str) -> tuple[int, bytes]:
        """Status and body of an error before the first byte."""
        ...
