"""The vocabulary that belongs to a model's files.

The one idea: a GGUF file carries its own tokenizer as lists of tokens and merges; from them the same `tokenizers`
object is built that a tokenizer.json would give. It must not know weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchlab_engine.errors import EngineError
from benchlab_engine.serve.tokens import FileVocabulary, from_directory

_CONTROL, _USER_DEFINED = 3, 4  # token kinds of the GGUF format
_DIGITS_APART = ("smollm", "default", "starcoder", "refact", "command-r", "codeshell")
# Where text is cut before pairs are merged, as the models' own tokenizer.json files have it; they differ in how many
# digits stay together.
_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CUTS = {"llama-bpe": _CUT.replace("DIGITS", "{1,3}"), "qwen2": _CUT.replace("DIGITS", "")}


def vocabulary_of(path: Path, metadata: Mapping[str, Any] | None) -> FileVocabulary:
    """The tokenizer of a Hugging Face directory, or of a GGUF file by its metadata."""
    try:
        if metadata is not None:
            return from_gguf(metadata)
        if not (path / "tokenizer.json").is_file():
            raise EngineError(
                f"{path} has no tokenizer.json; copy it from where the model is published (a tokenizer.model alone is "
                "not read)"
            )
        return from_directory(path)
    except ImportError as error:
        raise EngineError(f"{error}; the tokenizer needs: pip install 'benchlab[engine]'") from None
    except EngineError:
        raise
    except Exception as error:  # the library raises bare exceptions for files it cannot read
        raise EngineError(f"the tokenizer of {path} cannot be read: {error}; is it whole? fetch it again") from error


def from_gguf(metadata: Mapping[str, Any]) -> FileVocabulary:
    """A byte-level BPE tokenizer out of GGUF metadata."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in (*_DIGITS_APART, "gpt-2", *_CUTS):
        raise EngineError(
            f"the GGUF tokenizer {kind}/{pre} is not supported; supported: gpt2 with one of the pre-tokenizers "
            f"{', '.join((*_DIGITS_APART, 'gpt-2', *_CUTS))}; or give the Hugging Face directory of the model"
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {text: index for index, text in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre == "llama-bpe"))
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in _CUTS)]
    if pre in _DIGITS_APART:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif pre in _CUTS:
        steps.insert(0, pre_tokenizers.Split(Regex(_CUTS[pre]), behavior="isolated"))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    named = list(zip(tokens, kinds, strict=True))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in named if k == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in named if k == _USER_DEFINED])
    begin = metadata.get("tokenizer.ggml.bos_token_id")
    if begin is not None and metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe"):
        name = tokens[begin]
        tokenizer.post_processor = processors.TemplateProcessing(single=[name, "$A"], special_tokens=[(name, begin)])
    ends = {metadata[key] for key in _END_KEYS if key in metadata}
    special = {
        name: tokens[metadata[key]]
        for name, key in (("bos_token", "tokenizer.ggml.bos_token_id"), ("eos_token", "tokenizer.ggml.eos_token_id"))
        if key in metadata
    }
    return FileVocabulary(tokenizer, frozenset(ends), metadata.get("tokenizer.chat_template"), special)


_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
