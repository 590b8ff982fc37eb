"""Text of exactly so many tokens: what each word costs by this tokenizer is learned once, then lengths are sums.

The one idea: most tokenizers cut at blanks, so a text costs what its words cost; the sum is a guess that one count of
the text confirms. Where it is wrong (a tokenizer that joins words) the length is searched for by counting. It must not
know what the text says.
"""

from __future__ import annotations

from collections.abc import Callable

from benchlab.errors import UsageError
from benchlab.workload.tokens import Count
from benchlab.workload.words import BODY, LEAD

_ANCHOR = LEAD[0]
"""A word before the text that is counted, so that it costs what it costs within a text."""
_ROUNDS = 16
_BACK = 8
"""So many words are given back at most to find last words that fit."""

Drawn = Callable[[int], str]
"""A number of pieces (words and full stops) to a text of about so many tokens."""


class Fitter:
    """Fits texts by one tokenizer's count.

    whole: tokens of a whole prompt as it is sent, after the chat template; None: the count of the text alone.
    """

    def __init__(self, count: Count, whole: Count | None = None) -> None:
        self._count = count
        self.whole = whole or count
        self._anchor = count(_ANCHOR)
        self._costs: dict[str, int] = {}
        self._table: dict[int, list[str]] = {}
        self.overhead = self.whole(_ANCHOR) - self._anchor
        """What the template adds to a text."""

    def after(self, text: str) -> int:
        """Tokens of a text that stands behind another."""
        return self._count(f"{_ANCHOR} {text}") - self._anchor

    def first(self, draw: Drawn, wanted: int) -> tuple[str, int]:
        """A text of `wanted` tokens at the start of a prompt, and how many it has."""
        return self._fit(draw, wanted, self._count)

    def inner(self, draw: Drawn, wanted: int) -> tuple[str, int]:
        """A text of `wanted` tokens behind another, and how many it has there."""
        return self._fit(draw, wanted, self.after)

    def prompt(self, head: str, draw: Drawn, wanted: int, left: int) -> tuple[str, int]:
        """The head (may be empty) and a text behind it, `wanted` tokens together as sent; `left`: for the text.

        Returns the prompt and its tokens, the nearest found. UsageError for a length that no text reaches.
        """
        if wanted <= self.overhead and not head:
            raise too_short(wanted, self.overhead + min(map(self._count, (*LEAD, *BODY))))
        best, best_got = head, None
        for _ in range(4):
            if left < 1:
                break
            text, got = self.inner(draw, left) if head else self.first(draw, left)
            whole = f"{head} {text}" if head else text
            if head or self.whole is not self._count:  # a sum of parts is a guess; the count of the whole decides
                got = self.whole(whole)
            if best_got is None or abs(got - wanted) < abs(best_got - wanted):
                best, best_got = whole, got
            if got == wanted:
                break
            left += wanted - got
        return best, self.whole(best) if best_got is None else best_got

    def _fit(self, draw: Drawn, wanted: int, measure: Count) -> tuple[str, int]:
        text = draw(wanted)
        got = measure(text)
        if got == wanted:
            return text, got
        best, best_got = text, got
        for guess in (self._by_costs(draw, wanted, got, measure), None):
            text, got = _search(draw, wanted, measure) if guess is None else (guess, measure(guess))
            if abs(got - wanted) < abs(best_got - wanted):
                best, best_got = text, got
            if best_got == wanted:
                break
        return best, best_got

    def _by_costs(self, draw: Drawn, wanted: int, got: int, measure: Count) -> str:
        """Words of the draw whose costs add up to `wanted`, the last one or two chosen to fit."""
        words = draw(max(1, round(wanted * wanted / max(1, got) * 1.2) + 24)).split(" ")
        upto, total = 0, measure(words[0]) - self._cost(words[0])  # at the start there is no blank before a word
        for word in words:
            cost = self._cost(word)
            if total + cost > wanted:
                break
            total += cost
            upto += 1
        for back in range(min(_BACK, upto) + 1):
            if back:
                total -= self._cost(words[upto - back])
            last = self._words_of(wanted - total, upto + wanted) if wanted > total else ()
            if last is not None:
                return " ".join([*words[: upto - back], *last]) or BODY[0]
        return " ".join(words[: max(1, upto)])

    def _cost(self, word: str) -> int:
        found = self._costs.get(word)
        if found is None:
            found = self._costs[word] = self.after(word)
        return found

    def _words_of(self, cost: int, turn: int) -> tuple[str, ...] | None:
        """One or two words of this cost together; `turn` picks among equals. None where there are none."""
        of = self._by_cost
        if cost in of:
            return (of[cost][turn % len(of[cost])],)
        for one, words in of.items():
            if cost - one in of:
                return words[turn % len(words)], of[cost - one][turn % len(of[cost - one])]
        return None

    @property
    def _by_cost(self) -> dict[int, list[str]]:
        if not self._table:
            for word in BODY:
                self._table.setdefault(self._cost(word), []).append(word)
        return self._table


def _search(draw: Drawn, wanted: int, measure: Count) -> tuple[str, int]:
    """The text of `draw(n)` whose counted length is `wanted`; the nearest one found where none is."""
    tried: dict[int, int] = {}
    best, best_off, pieces = "", None, wanted
    for _ in range(_ROUNDS):
        text = draw(pieces)
        got = tried[pieces] = measure(text)
        if best_off is None or abs(got - wanted) < abs(best_off):
            best, best_off = text, got - wanted
        if got == wanted or (pieces == 1 and got > wanted):
            break
        # Far off, by proportion; near, one by one, so that rounding cannot make it swing.
        step = wanted - got
        pieces = max(1, pieces + (step if abs(step) < 8 else round(step * pieces / max(1, got))))
        while pieces in tried and pieces > 1 and len(tried) < _ROUNDS:
            pieces += 1 if step > 0 else -1
        if pieces in tried:
            break
    if best_off is not None and best_off > 0 and tried.get(1, 0) > wanted:
        return _one_word(draw(1), wanted, measure), wanted
    return best, wanted + (best_off or 0)


def _one_word(drawn: str, wanted: int, measure: Count) -> str:
    """A single word of `wanted` tokens, where the drawn one has more."""
    for words in (LEAD, BODY):
        lengths = [measure(word) for word in words]
        fitting = [word for word, length in zip(words, lengths, strict=True) if length == wanted]
        if fitting:
            return fitting[sum(drawn.encode()) % len(fitting)]
    raise too_short(wanted, min(map(measure, (*LEAD, *BODY))))


def too_short(wanted: int, least: int) -> UsageError:
    """The refusal of a length that no text reaches."""
    return UsageError(
        f"a prompt of {wanted} tokens cannot be made: the shortest has {least} by this tokenizer",
        where="input_tokens",
        hint=f"ask for {least} tokens or more (an empty prompt is never sent)",
    )
