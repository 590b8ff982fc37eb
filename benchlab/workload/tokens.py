"""How many tokens a text has: one seam, `count(text) -> int`, whoever does the counting.

A whole text is counted at once and without the special tokens of the tokenizer, for these belong to the request and
not to the text; counted per chunk they come back once a chunk. No HTTP here: an endpoint's /tokenize is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchlab.errors import UsageError

Count = Callable[[str], int]

CHARS_PER_TOKEN = 4.0
"""The usual ratio for English prose and vocabularies of 50,000 tokens and more; an estimate, and said to be one."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A way to count. `exact` is False for an estimate; `source` says in words what counted."""

    count: Count
    source: str
    exact: bool

    def __call__(self, text: str) -> int:
        """The tokens of a whole text, without special tokens."""
        return self.count(text)


def estimate(chars_per_token: float = CHARS_PER_TOKEN) -> Counter:
    """A declared estimate by characters. Raises UsageError for a ratio that is not above zero."""
    if not 0 < chars_per_token < 1000:
        raise UsageError(f"{chars_per_token} characters a token", where="--chars-per-token", hint="give about 4")

    def count(text: str) -> int:
        return -(-len(text) // chars_per_token).__trunc__() if text else 0

    return Counter(count, f"an estimate of {chars_per_token:g} characters a token", exact=False)


def from_callable(count: Count, source: str) -> Counter:
    """A counter that is handed in, such as an endpoint's /tokenize; it must not count special tokens."""
    return Counter(count, source, exact=True)


def from_file(path: str | Path) -> Counter:
    """A `tokenizer.json`, or a folder that holds one. Raises UsageError where it or the library is missing."""
    place = Path(path)
    place = place / "tokenizer.json" if place.is_dir() else place
    if not place.is_file():
        raise UsageError("no such tokenizer", where=str(place), hint="name a tokenizer.json or a folder with one")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError(
            "the tokenizers library is not installed", where=str(place), hint="pip install 'benchlab[tokens]'"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(place))
    except Exception as fault:  # the library raises bare Exception
        raise UsageError(f"is not a tokenizer: {fault}", where=str(place)) from fault

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return Counter(count, f"tokenizer {place}", exact=True)


def count_output(chunks: list[str], counter: Count, *, max_tokens: int | None = None) -> tuple[int, str | None]:
    """Tokens of a streamed answer, from one count of the whole text, with a warning where they pass `max_tokens`."""
    total = counter("".join(chunks))
    over = max_tokens is not None and total > max_tokens
    return total, f"{total} tokens counted, above max_tokens {max_tokens}" if over else None
