"""Text of N tokens, the same for the same key on every machine, with shared prefixes that are shared to the letter.

Words are drawn by a keyed hash (blake2b, then SHAKE-256 as its stream), never by Python's `hash` and never by a
generator whose stream may change. The first eight words of a text are its *lead*: a salt replaces them and nothing
else, so that a run meets a cold cache with prompts of the same lengths. It must not know when an item is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from benchlab.errors import UsageError
from benchlab.workload.item import WorkloadItem
from benchlab.workload.text_fit import Fitter
from benchlab.workload.tokens import Count, Counter
from benchlab.workload.words import BODY, LEAD

VERSION = 1
"""Part of every key: it moves when the words or the way of drawing them do."""

LEAD_WORDS = 8
_MOST_TOKENS = 2_000_000_000
"""Some 13 GB of text: beyond that memory gives out before the load begins."""
_SENTENCE = 12
_LEAD_SET = frozenset(LEAD)
_STOPPED = tuple(word + "." for word in BODY)


def _stream(num_bytes: int, *key: str) -> bytes:
    seed = hashlib.blake2b("\0".join((str(VERSION), *key)).encode("utf-8", "surrogatepass"), digest_size=32)
    return hashlib.shake_256(seed.digest()).digest(num_bytes)


def lead_words(num_words: int, *key: str) -> str:
    """The first words of a text, from 64 words of four letters: eight of them tell 2^48 keys apart."""
    return " ".join(LEAD[byte % len(LEAD)] for byte in _stream(num_words, "lead", *key))


def words(num_tokens: int, *key: str) -> str:
    """Plain text of about so many tokens (a word is one, a full stop is one), drawn by `key`."""
    if num_tokens <= 0:
        return ""
    picked = _stream(num_tokens, "body", *key)
    parts: list[str] = []
    # Eleven words and a full stop are twelve tokens; the sentence's last word carries the stop.
    whole, rest = divmod(num_tokens, _SENTENCE)
    for start in range(0, whole * _SENTENCE, _SENTENCE):
        sentence = picked[start : start + _SENTENCE - 1]
        parts.extend(map(BODY.__getitem__, sentence[:-1]))
        parts.append(_STOPPED[sentence[-1]])
    parts.extend(map(BODY.__getitem__, picked[whole * _SENTENCE : whole * _SENTENCE + rest]))
    return " ".join(parts)


def _headed(num_tokens: int, salt: str, *key: str) -> str:
    """Text whose first words are a lead, which the salt (and nothing else of the text) depends on."""
    num_lead = min(LEAD_WORDS, num_tokens)
    lead = lead_words(num_lead, salt, *key)
    return f"{lead} {words(num_tokens - num_lead, *key)}".rstrip()


@dataclass(frozen=True, slots=True)
class Made:
    """Items with their texts made, and the lengths that were asked and reached, in tokens, for the items made.

    exact: a tokenizer counted. Without one, `realised` is the number of words and full stops: an estimate.
    """

    items: list[WorkloadItem]
    asked: list[int]
    realised: list[int]
    exact: bool
    as_sent: bool = False
    """Counted after the chat template, not the text alone."""
    source: str = "an estimate (one token a word or full stop)"
    """What made the lengths, where it was an estimate."""

    def note(self) -> str:
        """One sentence for the console and the manifest."""
        if not self.asked:
            return "no text was made"
        off = [real - asked for asked, real in zip(self.asked, self.realised, strict=True) if real != asked]
        if not self.exact:
            return f"{len(self.asked):,} prompts made to {self.source}, not counted"
        where = " after the chat template" if self.as_sent else ""
        if not off:
            return f"{len(self.asked):,} prompts made to their exact lengths by the tokenizer{where}"
        return (
            f"{len(off):,} of {len(self.asked):,} prompts differ from their length{where}, by {min(off)} to {max(off)} "
            "tokens"
        )


def make_texts(
    items: Iterable[WorkloadItem],
    *,
    key: str,
    salt: str | None = None,
    count: Count | None = None,
    whole: Count | None = None,
) -> Made:
    """Give every item of `input_tokens` its prompt, and every item its salt.

    key: what the texts derive from, as a rule the workload's sha256. salt: one per run for a cold cache. count: tokens
    of a text without special tokens; with it the lengths are made exact. whole: tokens of a prompt as it is sent, after
    the chat template; then the lengths are exact there. Raises UsageError for a length that cannot be reached, naming
    the least.
    """
    items = list(items)
    _check_size(items)
    maker = _Maker(key, salt or "", None if count is None else Fitter(count, whole))
    made: list[WorkloadItem] = []
    asked: list[int] = []
    realised: list[int] = []
    for item in items:
        if item.input_tokens is None:
            made.append(item if salt is None else salted(item, salt))
            continue
        text, length = maker.text(item, item.input_tokens)
        made.append(
            msgspec.structs.replace(item, prompt=text, input_tokens=None, prefix_blocks=None, block_tokens=None)
        )
        asked.append(item.input_tokens)
        realised.append(length)
    if isinstance(count, Counter) and not count.exact:
        return Made(made, asked, realised, exact=False, source=count.source)
    return Made(made, asked, realised, exact=count is not None, as_sent=whole is not None)


def _check_size(items: list[WorkloadItem]) -> None:
    total = sum(item.input_tokens or 0 for item in items)
    if total > _MOST_TOKENS:
        raise UsageError(
            f"the prompts have {total:,} tokens together, more than the {_MOST_TOKENS:,} that are made at once",
            where="input_tokens",
            hint="send fewer items, or shorter prompts",
        )


class _Maker:
    """Makes the texts of one workload; shared blocks are made once."""

    def __init__(self, key: str, salt: str, fitter: Fitter | None) -> None:
        self._key, self._salt, self._fitter = key, salt, fitter
        self._blocks: dict[tuple[int, int, bool], tuple[str, int]] = {}

    def text(self, item: WorkloadItem, num_tokens: int) -> tuple[str, int]:
        """The prompt and its length. Sharing outranks exactness: blocks are never trimmed to mend a length."""
        blocks, size = item.prefix_blocks or [], item.block_tokens or 0
        if not blocks:
            return self._prompt("", num_tokens, num_tokens, item.id)
        full, rest = divmod(num_tokens, size)
        whole = [self._block(block, size, first=place == 0) for place, block in enumerate(blocks[:full])]
        head, in_head = " ".join(text for text, _ in whole), sum(length for _, length in whole)
        if len(blocks) > full:  # the last id stands for a partial block, so its text is that block's own
            return self._prompt(head, num_tokens, num_tokens - in_head if rest else 0, f"block {blocks[-1]}")
        return self._prompt(head, num_tokens, num_tokens - in_head, item.id)

    def _block(self, block: int, size: int, *, first: bool) -> tuple[str, int]:
        found = self._blocks.get((block, size, first))
        if found is None:
            name = f"block {block}"
            if self._fitter is None:
                found = (self._first(size, name) if first else self._plain(size, name)), size
            elif first:
                found = self._fitter.first(lambda n: self._first(n, name), size)
            else:
                found = self._fitter.inner(lambda n: self._plain(n, name), size)
            self._blocks[block, size, first] = found
        return found

    def _prompt(self, head: str, num_tokens: int, left: int, name: str) -> tuple[str, int]:
        def draw(pieces: int) -> str:
            return self._plain(pieces, name) if head else self._first(pieces, name)

        if self._fitter is not None:
            return self._fitter.prompt(head, draw, num_tokens, left - self._fitter.overhead)
        if not head:
            return draw(num_tokens), num_tokens
        return (f"{head} {draw(left)}" if left > 0 else head), num_tokens

    def _first(self, num_tokens: int, name: str) -> str:
        return _headed(num_tokens, self._salt, self._key, name)

    def _plain(self, num_tokens: int, name: str) -> str:
        return words(num_tokens, self._key, name)


def salted(item: WorkloadItem, salt: str) -> WorkloadItem:
    """The item with other first words, for a cold cache.

    A made text keeps its length, for eight of its words are replaced. Text that people wrote gets eight words in
    front, the same number for every item and every salt; what shared a prefix before still does.
    """
    if item.prompt is not None:
        return msgspec.structs.replace(item, prompt=_salted_text(item.prompt, salt))
    if not item.messages:
        return item
    first = dict(item.messages[0])
    content = first.get("content")
    if isinstance(content, list):
        place = next((n for n, part in enumerate(content) if isinstance(part.get("text"), str)), None)
        if place is None:
            content = [{"type": "text", "text": lead_words(LEAD_WORDS, "salt", salt)}, *content]
        else:
            part = {**content[place], "text": _salted_text(content[place]["text"], salt)}
            content = [*content[:place], part, *content[place + 1 :]]
    else:
        content = _salted_text(content or "", salt)
    first["content"] = content
    return msgspec.structs.replace(item, messages=[first, *item.messages[1:]])


def _salted_text(text: str, salt: str) -> str:
    parts = text.split(" ", LEAD_WORDS)
    head = parts[:LEAD_WORDS]
    if head and all(word in _LEAD_SET for word in head):
        rest = parts[LEAD_WORDS:]
        return " ".join([lead_words(len(head), "salt", salt, *head), *rest])
    return f"{lead_words(LEAD_WORDS, 'salt', salt)} {text}"
