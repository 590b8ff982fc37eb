"""What a model's files say of its tokens: the chat template beside a tokenizer, and the tokenizer inside a GGUF file.

The one idea: a GGUF file holds a tokenizer as lists of tokens and merges; the same `tokenizers` object is built of them
that a tokenizer.json would give. It must not know what is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

Render = Callable[[str], str]
"""The one message of a user to the whole prompt, up to where the answer begins."""

_CONTROL, _USER_DEFINED = 3, 4  # kinds of tokens in the GGUF format
# How text is cut before pairs are merged, by the name that GGUF gives to it; from the models' own tokenizer.json files.
_DIGITS_APART = ("smollm", "default", "starcoder", "refact", "command-r", "codeshell")
_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CUTS = {"llama-bpe": _CUT % "{1,3}", "qwen2": _CUT % ""}


_A_DAY = datetime(2024, 7, 26)
"""Some templates write the date, which takes the same tokens on most days; none may depend on today."""


class NotSupportedError(ValueError):
    """A kind of tokenizer that is not known here."""


def gguf_metadata(path: Path) -> dict[str, Any]:
    """The fields of a GGUF file that speak of tokens. Raises what the gguf library raises for a broken file."""
    from gguf import GGUFReader

    return {name: field.contents() for name, field in GGUFReader(path).fields.items() if name.startswith("tokenizer.")}


def gguf_tokenizer(metadata: Mapping[str, Any]) -> Any:
    """The tokenizer of GGUF metadata: byte-level BPE, or SentencePiece's BPE (`llama`).

    Raises NotSupportedError for another kind, KeyError for what is missing.
    """
    if metadata.get("tokenizer.ggml.model") == "llama":
        return _sentencepiece(metadata)
    return _byte_level(metadata)


def _byte_level(metadata: Mapping[str, Any]) -> Any:
    from tokenizers import Tokenizer, models

    kind, cut = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    known = (*_DIGITS_APART, "gpt-2", *_CUTS)
    if kind != "gpt2" or cut not in known:
        raise NotSupportedError(
            f"its tokenizer {kind}/{cut} is not known here (llama, or gpt2 with {', '.join(known)})"
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {text: place for place, text in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cut == "llama-bpe"))
    _cutting(made, cut)
    return _named(made, metadata, adds_begin=cut == "llama-bpe")


def _sentencepiece(metadata: Mapping[str, Any]) -> Any:
    """Pairs are merged in the order of the scores of what they make; a character that has no token is its bytes."""
    from tokenizers import Tokenizer, models, normalizers

    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    scores: list[float] = metadata["tokenizer.ggml.scores"]
    vocabulary = {text: place for place, text in enumerate(tokens)}
    pairs: list[tuple[float, int, int, str, str]] = []
    for text, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(text)):
            left, right = vocabulary.get(text[:cut]), vocabulary.get(text[cut:])
            if left is not None and right is not None:
                pairs.append((-score, left, right, text[:cut], text[cut:]))
    merges = [(left, right) for _, _, _, left, right in sorted(pairs)]
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    steps: list[Any] = [normalizers.Replace(" ", "▁")]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
    made.normalizer = normalizers.Sequence(steps)
    return _named(made, metadata, adds_begin=True)


def _named(made: Any, metadata: Mapping[str, Any], *, adds_begin: bool) -> Any:
    """The tokenizer with its special tokens, and with the begin that it puts before a text."""
    from tokenizers import AddedToken, processors

    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    named = list(zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True))
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in named if k == _CONTROL])
    made.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in named if k == _USER_DEFINED])
    begin = metadata.get("tokenizer.ggml.bos_token_id")
    if begin is not None and metadata.get("tokenizer.ggml.add_bos_token", adds_begin):
        name = tokens[begin]
        made.post_processor = processors.TemplateProcessing(single=[name, "$A"], special_tokens=[(name, begin)])
    return made


def _cutting(made: Any, cut: str) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut not in _CUTS)]
    if cut in _DIGITS_APART:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif cut in _CUTS:
        steps.insert(0, pre_tokenizers.Split(Regex(_CUTS[cut]), behavior="isolated"))
    if cut == "qwen2":
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)


def gguf_template(metadata: Mapping[str, Any]) -> Render | None:
    """The chat template in GGUF metadata; None where there is none, or it cannot be rendered."""
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    special = {
        f"{name}_token": tokens[place]
        for name in ("bos", "eos")
        if (place := metadata.get(f"tokenizer.ggml.{name}_token_id")) is not None
    }
    return _render(metadata.get("tokenizer.chat_template"), special)


def folder_template(folder: Path) -> Render | None:
    """The chat template beside a tokenizer.json; None where there is none, or it cannot be rendered."""
    try:
        config = dict(json.loads((folder / "tokenizer_config.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        config = {}
    own = folder / "chat_template.jinja"
    template = own.read_text("utf-8", errors="replace") if own.is_file() else config.get("chat_template")
    special = {}
    for name in ("bos_token", "eos_token"):
        value = config.get(name)
        if value:
            special[name] = str(value.get("content", "")) if isinstance(value, dict) else str(value)
    return _render(template, special)


def _render(template: object, special: dict[str, str]) -> Render | None:
    if isinstance(template, list):  # several by name; the one for plain chat is called default
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default")
    if not isinstance(template, str):
        return None
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        return None

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = _A_DAY.strftime

    def render(text: str) -> str:
        messages = [{"role": "user", "content": text}]
        return str(compiled.render(messages=messages, add_generation_prompt=True, **special))

    try:
        compiled = environment.from_string(template)
        render("a")
    except Exception:  # a template may fail in any way; then the text alone can be counted
        return None
    return render
