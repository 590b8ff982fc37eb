"""Token ids of a prompt without a tokenizer: equal text gives equal ids, so that a prefix cache sees what is shared.

The one idea: a stated rule stands in for a tokenizer where only counts and identity matter. A prompt that gives its
length has exactly that many ids, its prefix blocks equal wherever they come again. Text has one id a word, punctuation
mark, or nine letters of a longer word, and each message one id before and one after it. It must not know what the ids
are for; no model's vocabulary has them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from benchlab.workload.item import WorkloadItem

RULE = "one token a word, punctuation mark, or nine letters of a longer word; two a message; one before the answer"
"""How text is counted, in words."""

_PIECES = re.compile(r"\w{1,9}|[^\w\s]")
_SPAN = 2**31
"""Ids lie below 2^32: a start below this, and fewer than 2^31 tokens after it."""


@lru_cache(maxsize=200_000)
def _id(*key: str) -> int:
    raw = "\0".join(key).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=4).digest(), "big") % _SPAN


def token_ids(item: WorkloadItem) -> tuple[int, ...]:
    """The ids of an item's prompt: at least one, each from 0 to 2^32 - 1; the same on every machine."""
    if item.input_tokens is not None:
        return _of_length(item, item.input_tokens)
    if item.prompt is not None:
        return tuple(_of_text(item.prompt)) or (_id("empty"),)
    ids: list[int] = []
    if item.tools:
        ids += _of_text(msgspec.json.encode(item.tools).decode())
    for message in item.messages or ():
        ids.append(_id("role", str(message.get("role"))))
        for text in _texts(message):
            ids += _of_text(text)
        ids.append(_id("end of message"))
    return (*ids, _id("role", "answer"))


def _of_text(text: str) -> Iterable[int]:
    return [_id("word", piece) for piece in _PIECES.findall(text)]


def _texts(message: dict[str, Any]) -> Iterable[str]:
    """Every text of a message: its content, plain or in parts, and whatever else it carries (tool calls)."""
    for name, value in message.items():
        if name == "role" or value is None:
            continue
        if isinstance(value, str):
            yield value
        elif name == "content" and isinstance(value, list):
            for part in value:
                text = part.get("text") if isinstance(part, dict) else None
                yield text if isinstance(text, str) else msgspec.json.encode(part).decode()
        else:
            yield msgspec.json.encode(value).decode()


def _of_length(item: WorkloadItem, num_tokens: int) -> tuple[int, ...]:
    """Consecutive ids from a start that the block, or the item, gives."""
    blocks, size = item.prefix_blocks or [], item.block_tokens or 0
    if not blocks or not size:
        return _run(num_tokens, "item", item.id)
    ids: list[int] = []
    for block in blocks:
        ids += _run(min(size, num_tokens - len(ids)), "block", str(block))
    return (*ids, *_run(num_tokens - len(ids), "item", item.id))


def _run(count: int, *key: str) -> tuple[int, ...]:
    start = _id(*key)
    return tuple(range(start, start + max(0, count)))
