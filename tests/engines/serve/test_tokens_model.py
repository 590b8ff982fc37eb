"""Tokenizers out of GGUF metadata, against transformers' own of the same vocabulary and merges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.errors import EngineError
from benchlab_engine.serve.tokens import _byte_alphabet
from benchlab_engine.serve.tokens_model import from_gguf, vocabulary_of

pytestmark = pytest.mark.torch
pytest.importorskip("tokenizers", reason="extra 'engine' is not installed")

ALPHABET = sorted(_byte_alphabet())
MERGES = ["h e", "l l", "he ll", "Ġ he", "1 2", "12 3", "123 4", "' s", "Ċ Ċ", "Ġ Ġ"]
TOKENS = [*ALPHABET, *(merge.replace(" ", "") for merge in MERGES), "<|end|>", "<|begin|>"]


def metadata(pre, **extra):
    kinds = [1] * (len(TOKENS) - 2) + [3, 3]
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.eos_token_id": len(TOKENS) - 2, "tokenizer.ggml.bos_token_id": len(TOKENS) - 1,
        **{f"tokenizer.ggml.{key}": value for key, value in extra.items()},
    }  # fmt: skip


@pytest.fixture(scope="module")
def qwen():
    transformers = pytest.importorskip("transformers", reason="extra 'dev' is not installed")
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    vocabulary = {text: index for index, text in enumerate(TOKENS)}
    return transformers.Qwen2Tokenizer(vocab=vocabulary, merges=merges, unk_token=None, pad_token="<|end|>")


@given(text=st.text(st.sampled_from("hello 1234's\n\r\té한!?.’Ⅷ½A"), max_size=30))
def test_qwen2s_cuts_are_those_of_transformers(qwen, text):
    assert from_gguf(metadata("qwen2")).encode(text) == qwen.encode(text)


@pytest.mark.parametrize(
    ("pre", "digits"),
    [
        ("llama-bpe", ["123", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("smollm", ["1", "2", "3", "4"]),
        ("gpt-2", ["1234"]),
    ],
)
def test_how_many_digits_stay_together(pre, digits):
    vocabulary = from_gguf(metadata(pre, add_bos_token=False))
    assert [vocabulary.piece(token).decode() for token in vocabulary.encode("1234")] == digits


def test_a_begin_token_where_the_file_asks_for_one():
    begin = len(TOKENS) - 1
    assert from_gguf(metadata("llama-bpe")).encode("hell")[0] == begin
    assert from_gguf(metadata("llama-bpe", add_bos_token=False)).encode("hell")[0] != begin
    assert from_gguf(metadata("smollm")).encode("hell")[0] != begin
    assert from_gguf(metadata("smollm", add_bos_token=True)).encode("hell")[0] == begin


def test_pieces_are_bytes_and_special_tokens_have_names():
    vocabulary = from_gguf(metadata("smollm"))
    assert vocabulary.size == len(TOKENS)
    assert [vocabulary.piece(token) for token in vocabulary.encode("é\n")] == [b"\xc3", b"\xa9", b"\n"]
    assert vocabulary.piece(len(TOKENS) - 2) == b"<|end|>"
    with pytest.raises(ValueError, match="half of a pair"):
        vocabulary.encode("a\ud800")


def test_an_unknown_tokenizer_is_refused_by_name():
    with pytest.raises(EngineError, match="gpt2/deepseek"):
        from_gguf(metadata("deepseek"))
    with pytest.raises(EngineError, match="llama/default"):
        from_gguf(metadata("default") | {"tokenizer.ggml.model": "llama"})


def test_a_missing_or_broken_tokenizer_file_is_named_with_what_to_do(tmp_path):
    with pytest.raises(EngineError, match=r"has no tokenizer\.json; copy it"):
        vocabulary_of(tmp_path, None)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(EngineError, match=r"cannot be read: .*fetch it again"):
        vocabulary_of(tmp_path, None)
