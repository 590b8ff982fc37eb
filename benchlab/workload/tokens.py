"""How many tokens a text has: one seam, `count(text) -> int`, whoever does the counting.

The one idea: a whole text is counted at once and without the special tokens of the tokenizer, for these belong to the
request and not to the text; counted per chunk they come back once a chunk. No HTTP here: an endpoint's /tokenize is
handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchlab.errors import UsageError
from benchlab.workload.tokens_files import (
    NotSupportedError,
    Render,
    folder_template,
    gguf_metadata,
    gguf_template,
    gguf_tokenizer,
)

Count = Callable[[str], int]

_GIVE_JSON = "give the model's tokenizer.json"

CHARS_PER_TOKEN = 4.0
"""The usual ratio for English prose and vocabularies of 50,000 tokens and more; an estimate, and said to be one."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A way to count. `exact` is False for an estimate; `source` says in words what counted.

    chat: tokens of a prompt sent as the one user message of a chat, after the model's template and with the start of
    the answer; raw: tokens of a prompt sent as it is, with what the tokenizer itself puts around it. None: not known.
    """

    count: Count
    source: str
    exact: bool
    chat: Count | None = None
    raw: Count | None = None

    def __call__(self, text: str) -> int:
        """The tokens of a whole text, without special tokens."""
        return self.count(text)

    def as_sent(self, api: str) -> Count | None:
        """How a prompt counts when it is sent over an API: `chat` and `messages` put it into a template, others send
        it raw. None where it cannot be told."""
        return self.chat if api in ("chat", "messages") else self.raw


def estimate(chars_per_token: float = CHARS_PER_TOKEN) -> Counter:
    """A declared estimate by characters. Raises UsageError for a ratio that is not above zero."""
    if not 0 < chars_per_token < 1000:
        raise UsageError(f"{chars_per_token} characters a token", where="--chars-per-token", hint="give about 4")

    def count(text: str) -> int:
        return -(-len(text) // chars_per_token).__trunc__() if text else 0

    return Counter(count, f"an estimate of {chars_per_token:g} characters a token", exact=False)


def from_callable(count: Count, source: str) -> Counter:
    """A counter that is handed in; it must not count special tokens."""
    return Counter(count, source, exact=True)


def counter_named(text: str) -> Counter:
    """A counter by its word: `estimate`, `estimate:3.8` (characters a token), a tokenizer.json, a folder, a GGUF file.

    Raises UsageError for anything else.
    """
    kind, _, ratio = text.partition(":")
    if kind == "estimate":
        try:
            return estimate(float(ratio) if ratio else CHARS_PER_TOKEN)
        except ValueError:
            raise UsageError(
                f"'{ratio[:40]}' is no number of characters", where="--tokenizer", hint="write estimate:4"
            ) from None
    return from_gguf(text) if text.lower().endswith(".gguf") else from_file(text)


def from_file(path: str | Path) -> Counter:
    """A `tokenizer.json`, or a folder that holds one (and its chat template).

    Raises UsageError where it or the library is missing.
    """
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
        raise UsageError(
            f"is not a tokenizer: {fault}", where=str(place), hint="give a tokenizer.json of the tokenizers library"
        ) from fault

    return _of_tokenizer(tokenizer, f"tokenizer {place}", folder_template(place.parent))


def from_gguf(path: str | Path) -> Counter:
    """The tokenizer and the chat template that a GGUF file carries. Raises UsageError where they cannot be read."""
    place = Path(path)
    if not place.is_file():
        raise UsageError("no such file", where=str(place), hint="name a GGUF file")
    try:
        metadata = gguf_metadata(place)
        tokenizer = gguf_tokenizer(metadata)
    except ImportError as fault:
        raise UsageError(f"{fault}", where=str(place), hint="pip install 'benchlab[engine]'") from None
    except NotSupportedError as fault:
        raise UsageError(str(fault), where=str(place), hint=_GIVE_JSON) from fault
    except Exception as fault:  # the library raises bare exceptions for a file it cannot read
        raise UsageError(f"is not a GGUF file with a tokenizer: {fault}", where=str(place), hint=_GIVE_JSON) from fault
    return _of_tokenizer(tokenizer, f"tokenizer of {place}", gguf_template(metadata))


def _of_tokenizer(tokenizer: Any, source: str, render: Render | None) -> Counter:
    def encode(text: str, special: bool = False) -> int:
        return len(tokenizer.encode(text, add_special_tokens=special).ids)

    def chat(text: str) -> int:
        return 0 if render is None else encode(render(text))  # the template says itself what stands around

    return Counter(
        encode, source, exact=True, chat=None if render is None else chat, raw=lambda text: encode(text, True)
    )


def from_endpoint(ask: Callable[[dict[str, Any]], Any], source: str) -> Counter:
    """An endpoint's /tokenize, asked by `ask(body) -> answer` (JSON both).

    The bodies spell a text as vLLM and SGLang (`prompt`, `add_special_tokens`) and llama.cpp (`content`,
    `add_special`) read it, and answers are read in all three ways. Raises UsageError for an answer that tells no count.
    """

    def text_body(text: str, special: bool) -> dict[str, Any]:
        return {"prompt": text, "content": text, "add_special_tokens": special, "add_special": special}

    def chat(text: str) -> int:
        return told_count(ask({"messages": [{"role": "user", "content": text}], "add_generation_prompt": True}))

    return Counter(
        lambda text: told_count(ask(text_body(text, False))) if text else 0,
        source,
        exact=True,
        chat=chat,
        raw=lambda text: told_count(ask(text_body(text, True))),
    )


def told_count(answer: Any) -> int:
    """The number of tokens that an answer of /tokenize tells: its `count`, or the length of its list of tokens."""
    found = answer.get("count", answer.get("tokens")) if isinstance(answer, dict) else answer
    if isinstance(found, list):
        return len(found)
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    raise UsageError(
        f"/tokenize told no count: {str(answer)[:80]}", where="--tokenizer", hint="give the model's tokenizer.json"
    )


def count_output(chunks: list[str], counter: Count, *, max_tokens: int | None = None) -> tuple[int, str | None]:
    """Tokens of a streamed answer, from one count of the whole text, with a warning where they pass `max_tokens`."""
    total = counter("".join(chunks))
    over = max_tokens is not None and total > max_tokens
    return total, f"{total} tokens counted, above max_tokens {max_tokens}" if over else None
