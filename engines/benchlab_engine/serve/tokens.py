"""Text to token ids and back, and the chat template.

The one idea: a vocabulary is a small face (encode, chat, a decoder for one stream); a byte vocabulary stands in where
there is no tokenizer file. A stream's decoder gives text only for whole characters. It must not know requests or wire.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

Message = Mapping[str, Any]
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TextStream(Protocol):
    """Turns one answer's tokens into text as they come."""

    def push(self, token: int) -> str:
        """Text that this token completes; empty while a character is unfinished."""
        ...

    def flush(self) -> str:
        """What is left at the end, unfinished bytes as replacement characters."""
        ...


class Vocabulary(Protocol):
    """What the server needs of a tokenizer."""

    end_tokens: frozenset[int]
    size: int  # token ids are below this

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes of one token as log-probabilities name it, perhaps a part of a character."""
        ...

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation, up to where the assistant speaks. ValueError when the template refuses it."""
        ...

    def stream(self) -> TextStream:
        """A fresh decoder for one answer."""
        ...


class ByteStream:
    """Joins the bytes of tokens; a split UTF-8 character waits for its last byte."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Text that this token completes."""
        return self._decoder.decode(self._bytes_of(token))

    def flush(self) -> str:
        """The rest, replacement characters for a character cut short."""
        return self._decoder.decode(b"", final=True)


class WindowStream:
    """For vocabularies whose tokens are not bytes: decodes a short window and gives what the newest token added."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._given = ""

    def push(self, token: int) -> str:
        """Text that this token completes."""
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith("�") and len(self._window) < 16:
            return ""
        added = text[len(self._given) :]
        # The newest token stays as context: some decoders drop a leading space at the start of their input.
        self._window = self._window[-1:]
        self._given = self._decode(self._window)
        return added

    def flush(self) -> str:
        """The rest."""
        return self._decode(self._window)[len(self._given) :]


class ByteVocabulary:
    """256 bytes, a begin and an end token. Needs no file and no library."""

    BEGIN, END, SIZE = 256, 257, 258

    def __init__(self) -> None:
        self.end_tokens = frozenset({self.END})
        self.size = self.SIZE

    def encode(self, text: str) -> list[int]:
        """The text's UTF-8 bytes. ValueError for half of a surrogate pair."""
        return list(_utf8(text))

    def piece(self, token: int) -> bytes:
        """The byte; a name for the begin and the end token."""
        return bytes((token,)) if token < 256 else b"<begin>" if token == self.BEGIN else b"<end>"

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Begin, then "role: content" lines."""
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        return [self.BEGIN, *self.encode("".join(lines) + "assistant: ")]

    def stream(self) -> TextStream:
        """Bytes to text."""
        return ByteStream(lambda token: bytes((token,)) if token < 256 else b"")


class FileVocabulary:
    """A `tokenizers` tokenizer with the model's chat template."""

    def __init__(
        self, tokenizer: Any, end_tokens: frozenset[int], template: str | None, special: Mapping[str, str]
    ) -> None:
        self._tokenizer = tokenizer
        self.end_tokens = end_tokens
        self.size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self._special = dict(special)
        self._render = _compile(template) if template else None
        self._bytes = _byte_table(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, with whatever the tokenizer itself puts around it."""
        _utf8(text)
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The chat template's text as token ids, nothing added: the template says what it wants."""
        if self._render is None:
            raise ValueError("this model has no chat template; use /v1/completions")
        text = self._render(messages=list(messages), add_generation_prompt=True, **self._special)
        _utf8(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def piece(self, token: int) -> bytes:
        """The token's bytes; special tokens by their names."""
        known = (self._bytes or {}).get(token, b"")
        if known:
            return known
        name = str(self._tokenizer.id_to_token(token) or "")
        byte = _BYTE_TOKEN.fullmatch(name)
        return bytes((int(byte[1], 16),)) if byte else name.replace("▁", " ").encode()

    def stream(self) -> TextStream:
        """A decoder by bytes where the vocabulary is one of bytes, else by window."""
        table = self._bytes
        if table is not None:
            return ByteStream(lambda token: table.get(token, b""))
        return WindowStream(lambda ids: str(self._tokenizer.decode(list(ids))))


def _utf8(text: str) -> bytes:
    """The text's bytes. ValueError for half of a surrogate pair, which JSON can carry and which is no character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the character {text[error.start]!r} at {error.start} is half of a pair") from None


def _compile(template: str) -> Callable[..., str]:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    compiled = environment.from_string(template)

    def render(**values: Any) -> str:
        try:
            return str(compiled.render(**values))
        except ValueError:
            raise
        except (TemplateError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            # A template trips over fields of a shape it does not know: the messages' fault, not the server's.
            raise ValueError(f"the chat template refused the messages: {error}") from error

    return render


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level vocabularies use for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(byte): byte for byte in plain}
    rest = [byte for byte in range(256) if byte not in set(plain)]
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(rest)})
    return alphabet


def _byte_table(tokenizer: Any) -> dict[int, bytes] | None:
    if "ByteLevel" not in json.dumps(json.loads(tokenizer.to_str()).get("decoder") or {}):
        return None
    alphabet = _byte_alphabet()
    added = tokenizer.get_added_tokens_decoder()
    table: dict[int, bytes] = {}
    for text, index in tokenizer.get_vocab(with_added_tokens=True).items():
        if index in added:
            # Special tokens (turn marks, end of text) are not part of an answer's text.
            table[index] = b"" if added[index].special else text.encode()
        elif all(char in alphabet for char in text):
            table[index] = bytes(alphabet[char] for char in text)
        else:
            table[index] = text.encode()
    return table


def from_directory(path: Path) -> FileVocabulary:
    """The tokenizer of a Hugging Face directory: tokenizer.json and what stands beside it."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    config = _read_json(path / "tokenizer_config.json")
    template_file = path / "chat_template.jinja"
    template = template_file.read_text("utf-8") if template_file.exists() else config.get("chat_template")
    ends = _read_json(path / "generation_config.json").get("eos_token_id")
    if ends is None:
        ends = _read_json(path / "config.json").get("eos_token_id")
    special = {key: _token_text(config[key]) for key in ("bos_token", "eos_token") if config.get(key)}
    ids = {int(end) for end in (ends if isinstance(ends, list) else [ends]) if end is not None}
    if "eos_token" in special and (known := tokenizer.token_to_id(special["eos_token"])) is not None:
        ids.add(known)
    return FileVocabulary(tokenizer, frozenset(ids), template if isinstance(template, str) else None, special)


def _token_text(value: Any) -> str:
    return str(value["content"]) if isinstance(value, dict) else str(value)


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}
