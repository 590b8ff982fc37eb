"""Counting: whole texts, without special tokens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchlab.errors import UsageError
from benchlab.workload.item import WorkloadItem
from benchlab.workload.text import make_texts
from benchlab.workload.tokens import count_output, estimate, from_callable, from_file


class Stub:
    """A tokenizer that puts <s> in front of every encode unless told not to, one token a word."""

    def encode(self, text: str, *, special: bool = True) -> list[str]:
        return ["<s>"] * special + text.split()


def test_C35_one_count_of_the_whole_text_without_special_tokens() -> None:
    counter = from_callable(lambda text: len(Stub().encode(text, special=False)), "stub")
    assert count_output([" a"] * 5, counter, max_tokens=5) == (5, None)


def test_C35_a_count_above_max_tokens_warns() -> None:
    total, warning = count_output([" a"] * 5, from_callable(lambda text: len(text.split()), "stub"), max_tokens=4)
    assert total == 5
    assert warning is not None
    assert "above max_tokens 4" in warning


def test_an_estimate_says_that_it_is_one() -> None:
    counter = estimate()
    assert (counter(""), counter("a"), counter("a" * 9)) == (0, 1, 3)
    assert not counter.exact
    assert "estimate" in counter.source
    with pytest.raises(UsageError):
        estimate(0)


def test_a_tokenizer_file_counts_without_special_tokens(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'tokens'")
    model = tokenizers.models.WordLevel({"<s>": 0, "a": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    counter = from_file(tmp_path)
    assert (counter("a a a"), counter.exact) == (3, True)
    made = make_texts([WorkloadItem(id="1", input_tokens=300)], key="k", count=counter)
    assert made.realised == [300]


def test_a_tokenizer_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such tokenizer"):
        from_file(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(UsageError, match=r"benchlab\[tokens\]"):
            from_file(tmp_path)
    pytest.importorskip("tokenizers", reason="needs the extra 'tokens'")
    with pytest.raises(UsageError, match="is not a tokenizer"):
        from_file(tmp_path)
