"""What the next tokens may be, guessed from the request's own text.

The one idea: prompt lookup. Text repeats itself, so the tokens that followed the last occurrence of the newest few are
a good guess. Occurrences of each pair of tokens are chained from the newest back (as in LZ77), so a new token costs one
dictionary entry and a guess a bounded number of looks, however long the text. It must not know blocks, budgets, or
whether the guess came true.

Source of the idea: prompt lookup decoding (Saxena, 2023), which searches the text anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence

_MAX_LOOKS = 16  # occurrences compared before the longest so far is taken
_LONGEST = 8  # tokens of agreement that are worth telling apart


class NgramIndex:
    """The tokens of one request and where each pair of them stood."""

    __slots__ = ("_before", "_newest", "_tokens")

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._newest: dict[tuple[int, int], int] = {}  # a pair -> position of its second token, newest
        self._before: list[int] = []  # position -> the same pair's position before that one, or -1

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Tokens that have been added to the text."""
        tokens, newest, before = self._tokens, self._newest, self._before
        for token in token_ids:
            position = len(tokens)
            tokens.append(token)
            pair = (tokens[position - 1], token) if position else (-1, token)
            before.append(newest.get(pair, -1))
            newest[pair] = position

    def propose(self, count: int) -> tuple[int, ...]:
        """Up to `count` tokens: what followed where the longest end of the text stood before; () when nowhere.

        Among equally long agreements the newest counts. A guess that runs into the end of the text goes on with
        itself, so that a text with a period is guessed for as long as is asked.
        """
        tokens = self._tokens
        end = len(tokens) - 1
        if end < 1 or count < 1:
            return ()
        best, best_length, looks = -1, 0, 0
        at = self._before[end]
        while at >= 1 and looks < _MAX_LOOKS:
            length = 2
            while length < _LONGEST and at >= length and tokens[at - length] == tokens[end - length]:
                length += 1
            if length > best_length:
                best, best_length = at, length
                if length == _LONGEST:
                    break
            at, looks = self._before[at], looks + 1
        if best < 0:
            return ()
        guess: list[int] = []
        for source in range(best + 1, best + 1 + count):
            guess.append(tokens[source] if source <= end else guess[source - end - 1])
        return tuple(guess)


class SpeculationCounts:
    """Proposals and those that came true, by position within the step (0 is the first proposal)."""

    def __init__(self, num_drafts: int) -> None:
        self.num_proposed = [0] * num_drafts
        self.num_accepted = [0] * num_drafts

    def count(self, num_proposed: int, num_accepted: int) -> None:
        """One work's proposals have been judged."""
        for position in range(num_proposed):
            self.num_proposed[position] += 1
        for position in range(num_accepted):
            self.num_accepted[position] += 1
