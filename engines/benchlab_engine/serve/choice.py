"""One choice of an answer: news of a request becomes pieces of text.

The one idea: token to text to what may be shown (whole characters only, nothing that could begin a stop string), one
piece for each piece of news. It must not know wire or sockets.
"""

from __future__ import annotations

from benchlab_engine.core.plan import TokenLogprobs
from benchlab_engine.core.request import FinishReason
from benchlab_engine.core.scheduler import Emission
from benchlab_engine.serve.call import Call, Chance, Piece, TokenChances
from benchlab_engine.serve.stops import StopFilter
from benchlab_engine.serve.ticket import Ticket
from benchlab_engine.serve.tokens import Vocabulary


class Choice:
    """The `index`-th answer to a call. prefix: text that goes before its first piece (echo)."""

    __slots__ = ("_chars", "_decoder", "_filter", "_min_tokens", "_prefix", "_vocabulary", "count", "index",
                 "is_done", "ticket")  # fmt: skip

    def __init__(self, index: int, call: Call, ticket: Ticket, vocabulary: Vocabulary, prefix: str = "") -> None:
        self.index = index
        self.ticket = ticket
        self.count = 0  # tokens taken up
        self.is_done = False
        self._vocabulary = vocabulary
        self._decoder = vocabulary.stream()
        self._filter = StopFilter(call.stop)
        self._min_tokens = call.min_tokens
        self._prefix = prefix
        self._chars = 0  # of the decoded text so far

    def take(self, emission: Emission) -> Piece | None:
        """What this news shows; None where the engine gave the request up, with the reason in the news."""
        token, finish = emission.token, emission.finish
        at_end = finish is FinishReason.STOP
        text, chances = "", None
        if token is not None:
            self.count += 1
            if emission.logprobs is not None:
                chances = self._chances(token, emission.logprobs)
            if not at_end:
                text = self._push(token)
        if self._filter.hit is not None:
            self.is_done = True
            return Piece(self._first(text), True, "stop", self._filter.hit, chances)
        if finish is None:
            return Piece(self._first(text), True, None, None, chances)
        self.is_done = True
        if finish not in (FinishReason.STOP, FinishReason.LENGTH):
            return None
        text += self._filter.push(self._decoder.flush())
        stop = self._filter.hit
        text += self._filter.flush()
        reason = "length" if finish is FinishReason.LENGTH and stop is None else "stop"
        return Piece(self._first(text), token is not None and not at_end, reason, stop, chances)

    def _push(self, token: int) -> str:
        text = self._decoder.push(token)
        self._chars += len(text)
        # Stop strings count only once the least number of tokens is there.
        return text if self.count <= self._min_tokens else self._filter.push(text)

    def _first(self, text: str) -> str:
        if self._prefix:
            text, self._prefix = self._prefix + text, ""
        return text

    def _chances(self, token: int, told: TokenLogprobs) -> TokenChances:
        piece = self._vocabulary.piece
        top = [Chance(piece(other), logprob) for other, logprob in told.top]
        return TokenChances(Chance(piece(token), told.chosen), top, self._chars)
