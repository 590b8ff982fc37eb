"""Exact lengths by real tokenizers of several kinds, made here: words of one token, of many, joined, and bytes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.errors import UsageError
from benchlab.workload.item import WorkloadItem
from benchlab.workload.make import make
from benchlab.workload.recipes import fixed
from benchlab.workload.text import make_texts
from benchlab.workload.text_fit import Fitter
from benchlab.workload.tokens import counter_named, from_endpoint, from_file, told_count
from benchlab.workload.words import BODY, LEAD

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'tokens'")

TEXT = [" ".join(BODY), " ".join(LEAD), "shared words and nothing else, over and over."] * 5
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@cache
def tokenizer(kind: str) -> Any:
    """bpe-N: byte-level, N entries. unigram: a SentencePiece kind. joined: merges across blanks. bytes: one a byte."""
    name, _, size = kind.partition("-")
    models, trainers, pre = tokenizers.models, tokenizers.trainers, tokenizers.pre_tokenizers
    if name == "unigram":
        made = tokenizers.Tokenizer(models.Unigram())
        made.pre_tokenizer = pre.Metaspace()
        made.train_from_iterator(
            TEXT, trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>"], unk_token="<unk>")
        )
        return made
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre.ByteLevel(add_prefix_space=False, use_regex=name != "joined")
    alphabet = pre.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=int(size), special_tokens=["<s>"], initial_alphabet=alphabet)
    made.train_from_iterator(TEXT, trainer)
    return made


def counted(kind: str) -> Any:
    made = tokenizer(kind)
    return lambda text: len(made.encode(text, add_special_tokens=False).ids)


KINDS = ["bpe-1500", "bpe-420", "bpe-257", "unigram", "joined-900"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", ["support-assistant", "mooncake-conv", "fixed"])
def test_lengths_are_exact_by_any_tokenizer(kind: str, recipe: str) -> None:
    items = make(fixed(777, 8) if recipe == "fixed" else recipe, 0, 3)
    count = counted(kind)
    made = make_texts(items, key="k", count=count)
    assert [count(item.prompt or "") for item in made.items] == made.realised
    # Where tokens join words, a length may be off by what a word costs.
    loose = 3 if kind == "joined-900" else 0
    assert all(abs(real - asked) <= loose for real, asked in zip(made.realised, made.asked, strict=True)), made.note()


@pytest.mark.parametrize("kind", ["bpe-1500", "unigram"])
def test_shared_blocks_are_shared_to_the_token(kind: str) -> None:
    items = [
        WorkloadItem(id=name, input_tokens=100, prefix_blocks=[1, 2, 3], block_tokens=16) for name in ("first", "other")
    ]
    made = make_texts(items, key="k", count=counted(kind))
    one, two = (tokenizer(kind).encode(item.prompt, add_special_tokens=False).ids for item in made.items)
    assert one[:48] == two[:48]
    assert one[48:] != two[48:]
    assert len(one) == len(two) == 100


@given(st.integers(40, 400), st.integers(0, 4), st.sampled_from(["bpe-1500", "bpe-420", "unigram"]))
@settings(max_examples=40, deadline=None)
def test_any_length_in_any_sharing_is_exact(num: int, blocks: int, kind: str) -> None:
    item = WorkloadItem(
        id="a", input_tokens=num, prefix_blocks=list(range(blocks)) or None, block_tokens=8 if blocks else None
    )
    made = make_texts([item], key="k", salt="s", count=counted(kind))
    assert made.realised == [num]
    assert counted(kind)(made.items[0].prompt or "") == num


def folder(tmp_path: Path, template: str | None = TEMPLATE) -> Path:
    made = tokenizers.Tokenizer.from_str(tokenizer("bpe-1500").to_str())
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<s>"} | ({} if template is None else {"chat_template": template})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_lengths_are_exact_after_the_chat_template(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs the extra 'engine'")
    counter = from_file(folder(tmp_path))
    assert counter.chat is not None
    text = "above all"
    around = len(tokenizer("bpe-1500").encode("<s><|user|>\n\n<|assistant|>\n").ids)
    assert counter.chat(text) == pytest.approx(counter(text) + around, abs=2)
    made = make_texts(make("support-assistant", 0, 3), key="k", count=counter, whole=counter.as_sent("chat"))
    assert [counter.chat(item.prompt or "") for item in made.items] == [2000] * 3
    assert "after the chat template" in made.note()
    least = Fitter(counter, counter.chat).overhead + min(map(counter, (*LEAD, *BODY)))
    with pytest.raises(UsageError, match=f"the shortest has {least}"):
        make_texts(make(fixed(least - 1, 8), 0, 1), key="k", count=counter, whole=counter.chat)
    assert make_texts(make(fixed(least, 8), 0, 1), key="k", count=counter, whole=counter.chat).realised == [least]


def test_what_a_full_block_leaves_no_room_for_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs the extra 'engine'")
    counter = from_file(folder(tmp_path))
    item = WorkloadItem(id="a", input_tokens=64, prefix_blocks=[0, 1, 2, 3], block_tokens=16)
    made = make_texts([item], key="k", count=counter, whole=counter.chat)
    over = Fitter(counter, counter.chat).overhead
    assert made.realised == [64 + over]
    assert f"1 of 1 prompts differ from their length after the chat template, by {over} to {over}" in made.note()


def test_a_completion_counts_what_the_tokenizer_puts_around_it(tmp_path: Path) -> None:
    counter = from_file(folder(tmp_path, None))
    assert counter.as_sent("chat") is None
    raw = counter.as_sent("completions")
    assert raw is not None
    assert raw("above all") == counter("above all") + 1
    made = make_texts(make(fixed(50, 8), 0, 2), key="k", count=counter, whole=raw)
    assert [raw(item.prompt or "") for item in made.items] == [50, 50]


@pytest.mark.parametrize("shape", ["vllm", "llamacpp", "tgi"])
def test_an_endpoint_counts(shape: str) -> None:
    bodies: list[dict[str, Any]] = []

    def ask(body: dict[str, Any]) -> Any:
        bodies.append(body)
        text = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        ids = list(range(len(text.split()) + (4 if "messages" in body else body["add_special_tokens"])))
        return {"vllm": {"count": len(ids), "max_model_len": 9}, "llamacpp": {"tokens": ids}, "tgi": ids}[shape]

    counter = from_endpoint(ask, "http://127.0.0.1:1/tokenize")
    assert (counter("a b c"), counter("")) == (3, 0)
    assert counter.chat is not None
    assert counter.raw is not None
    assert (counter.chat("a b c"), counter.raw("a b c")) == (7, 4)
    made = make_texts(make(fixed(100, 8), 0, 2), key="k", count=counter, whole=counter.chat)
    assert made.realised == [100, 100]


@pytest.mark.parametrize("answer", [{}, None, "3", {"count": -1}, {"count": True}, {"error": "x"}, {"tokens": 2.5}])
def test_an_endpoint_that_tells_no_count(answer: Any) -> None:
    with pytest.raises(UsageError, match="told no count"):
        told_count(answer)


def test_counters_by_their_word(tmp_path: Path) -> None:
    assert counter_named("estimate")("x" * 8) == 2
    assert counter_named("estimate:2")("x" * 8) == 4
    assert counter_named(str(folder(tmp_path))).exact
    for word in ("estimate:x", "estimate:0", "nothing", "no.gguf", str(tmp_path / "x")):
        with pytest.raises(UsageError):
            counter_named(word)
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\0" * 50)
    pytest.importorskip("gguf", reason="needs the extra 'engine'")
    with pytest.raises(UsageError, match="is not a GGUF file with a tokenizer"):
        counter_named(str(tmp_path / "bad.gguf"))


def test_the_tokenizer_of_a_gguf_file(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="needs the extra 'engine'")
    pytest.importorskip("jinja2", reason="needs the extra 'engine'")
    state = json.loads(tokenizer("bpe-1500").to_str())["model"]
    vocabulary = sorted(state["vocab"], key=state["vocab"].get)
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if word == "<s>" else 1 for word in vocabulary])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in state["merges"]])
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    counter = counter_named(str(tmp_path / "t.gguf"))
    text = "above all else."
    assert counter(text) == counted("bpe-1500")(text)
    assert counter.raw is not None
    assert counter.raw(text) == counter(text) + 1
    assert counter.chat is not None
    made = make_texts(make(fixed(90, 8), 0, 2), key="k", count=counter, whole=counter.chat)
    assert [counter.chat(item.prompt or "") for item in made.items] == [90, 90]


def test_an_estimate_is_not_called_exact() -> None:
    counter = counter_named("estimate:4")
    made = make_texts(make(fixed(200, 8), 0, 2), key="k", count=counter)
    assert not made.exact
    assert made.note() == "2 prompts made to an estimate of 4 characters a token, not counted"
    assert all(abs(len(item.prompt or "") / 4 - 200) < 4 for item in made.items)
    assert "one token a word or full stop" in make_texts(make(fixed(9, 8), 0, 1), key="k").note()


def test_each_api_counts_as_it_sends() -> None:
    counter = from_endpoint(lambda body: {"count": 1}, "x")
    assert [counter.as_sent(api) for api in ("chat", "messages")] == [counter.chat] * 2
    assert [counter.as_sent(api) for api in ("completions", "tgi", "triton")] == [counter.raw] * 3


@pytest.mark.parametrize(
    ("template", "known"),
    [
        ([{"name": "default", "template": TEMPLATE}, {"name": "tools", "template": "x"}], True),
        ("{{ strftime_now('%d %b %Y') }} {{ messages[0]['content'] }}", True),
        ([{"name": "tools", "template": TEMPLATE}], False),
        ("{{ raise_exception('no') }}", False),
        ("{% broken", False),
        ("{{ ''.__class__.__mro__ }}", False),
        (7, False),
    ],
)
def test_templates_that_can_and_cannot_be_rendered(template: Any, known: bool, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs the extra 'engine'")
    folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "bos_token": {"content": "<s>"}})
    )
    assert (from_file(tmp_path).chat is not None) == known
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert from_file(tmp_path).chat is not None
    (tmp_path / "tokenizer_config.json").write_text("[")
    assert from_file(tmp_path).chat is not None


def test_a_gguf_tokenizer_of_another_kind_is_named() -> None:
    from benchlab.workload.tokens_files import NotSupportedError, gguf_tokenizer

    with pytest.raises(NotSupportedError, match="wordpiece/default is not known here"):
        gguf_tokenizer({"tokenizer.ggml.model": "wordpiece"})


def test_a_sentencepiece_tokenizer_of_gguf_metadata() -> None:
    from benchlab.workload.tokens_files import gguf_tokenizer

    pieces = {"▁": -9.0, "a": -10.0, "b": -11.0, "c": -12.0, "ab": -3.0, "bc": -2.0, "▁a": -1.0, "▁ab": -4.0}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [*[0.0] * 259, *pieces.values()],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "tokenizer.ggml.bos_token_id": 1,
    }
    made = gguf_tokenizer(metadata)
    # "bc" scores above "ab", but "▁a" is made first; then nothing joins "▁a" and "bc".
    assert made.encode("abc a", add_special_tokens=False).tokens == ["▁a", "bc", "▁a"]
    assert made.encode("ab", add_special_tokens=True).tokens == ["<s>", "▁ab"]
    assert made.encode("é", add_special_tokens=False).tokens == ["▁", "<0xC3>", "<0xA9>"]
    bare = gguf_tokenizer({**metadata, "tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False})
    assert bare.encode("ab", add_special_tokens=True).tokens == ["ab"]
