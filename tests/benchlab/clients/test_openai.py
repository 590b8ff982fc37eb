"""The OpenAI dialects by themselves: what goes into a body, and that no answer whatever makes the reader raise."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.clients.dialect import describe_error, message_of
from benchlab.clients.openai import OpenAI, OpenAIConversation, read_delta
from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.records.record import Identity
from benchlab.records.recorder import Recorder
from benchlab.records.schema import requests_batch
from benchlab.workload.item import WorkloadItem

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
WORDS = (
    "choices delta content role usage error index finish_reason text tool_calls function name arguments message code "
    "completion_tokens prompt_tokens total_tokens completion_tokens_details reasoning_tokens object type detail "
    "reasoning_content refusal prompt_tokens_details cached_tokens function_call"
)
KEYS = st.sampled_from(WORDS.split())
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=25
)
COUNTS = st.none() | st.integers(-5, 2**40) | st.text(max_size=2)
USAGES = st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), COUNTS, max_size=2)
CHOICES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "index": st.integers(0, 3) | SCALARS,
            "delta": st.dictionaries(KEYS, SCALARS, max_size=3) | SCALARS,
            "finish_reason": st.none() | st.just("stop") | JSON,
        },
    ),
    max_size=3,
)
CHUNKS = st.fixed_dictionaries({}, optional={"choices": CHOICES, "usage": USAGES | SCALARS}) | JSON


def recorder() -> Recorder:
    made = Recorder(Identity("q0", 0, "i0", 100), keep_text=True)
    made.dispatched_ns = made.sent_ns = made.headers_ns = 100
    return made


@settings(max_examples=100, deadline=None)
@given(st.lists(CHUNKS, max_size=8), st.integers(-1, 3), st.sampled_from([b"", b"error", b"message"]))
def test_no_json_makes_it_raise(documents: list[Any], choices: int, name: bytes) -> None:
    kept = recorder()
    conversation = OpenAIConversation(kept, choices)
    for at, document in enumerate(documents):
        conversation.event(
            name, msgspec.json.encode(document) if at % 2 else json.dumps(document).encode(), 200 + at, 0
        )
    conversation.ended(300)
    record = kept.record(0)
    assert record.outcome in (Outcome.OK, Outcome.INCOMPLETE, Outcome.ERROR_STREAM, Outcome.ERROR_PROTOCOL)
    assert (record.outcome is Outcome.OK) == (record.error is None)
    assert record.audit() == []
    assert requests_batch([record]).num_rows == 1  # and everything in it fits the file
    for kind, tokens in zip(record.chunk_kind, record.chunk_tokens, strict=True):
        assert tokens is None or (kind in VISIBLE and tokens >= 0)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_a_whole_body_never_passes_for_a_stream(document: Any) -> None:
    kept = recorder()
    OpenAIConversation(kept).whole(json.dumps(document).encode(), 300)
    assert kept.outcome in (Outcome.ERROR_STREAM, Outcome.ERROR_PROTOCOL)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_of_an_error_has_words(body: bytes) -> None:
    assert isinstance(message_of(body), str)
    assert len(message_of(body)) <= 500


@pytest.mark.parametrize("data", [b"\xff", b"[" * 100_000, b'"\\ud800"', b"nul", b"NaN", b"\x00"])
def test_what_is_no_json_fails_by_name(data: bytes) -> None:
    kept = recorder()
    OpenAIConversation(kept).event(b"", data, 200, 0)
    assert (kept.outcome, kept.error_kind) == (Outcome.ERROR_PROTOCOL, "json")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"error": {"message": "no", "code": 7}}, "no (7)"),
        ({"error": "text"}, "text"),
        ({"detail": [{"loc": ["body"], "msg": "bad"}]}, '[{"loc":["body"],"msg":"bad"}]'),
        ({"message": "two\n lines", "type": "x"}, "two lines (x)"),
        ({}, "{}"),
        (None, "null"),
    ],
)
def test_words_of_an_error(document: object, words: str) -> None:
    assert describe_error(document) == words


@pytest.mark.parametrize(
    ("choice", "text", "kind"),
    [
        ({"delta": {"content": "x"}}, "x", Kind.CONTENT),
        ({"delta": {"content": ""}}, "", Kind.EMPTY),
        ({"delta": {"role": "assistant", "content": ""}}, "", Kind.ROLE),
        ({"delta": {"role": "assistant", "content": "x"}}, "x", Kind.CONTENT),
        ({"delta": {"reasoning_content": "x"}}, "x", Kind.REASONING),
        ({"delta": {"reasoning": "x", "content": None}}, "x", Kind.REASONING),
        ({"delta": {"refusal": "no"}}, "no", Kind.CONTENT),
        ({"delta": {"function_call": {"name": "f", "arguments": "{}"}}}, "f{}", Kind.TOOL_CALL),
        ({"delta": {"tool_calls": [{"index": 0, "id": "c"}]}}, "", Kind.EMPTY),
        ({"text": "x"}, "x", Kind.CONTENT),
        ({"text": ""}, "", Kind.EMPTY),
        ({"delta": None}, "", Kind.EMPTY),
        ({}, "", Kind.EMPTY),
    ],
)
def test_kinds(choice: dict[str, Any], text: str, kind: Kind) -> None:
    assert read_delta(choice) == (text, kind)


def test_bodies() -> None:
    item = WorkloadItem(prompt="hi", output_tokens=5, sampling={"temperature": 0, "n": 2}, tools=[{"type": "function"}])
    chat = json.loads(OpenAI("chat", "m", {"seed": 1, "temperature": 1}).body(item))
    assert chat["messages"] == [{"role": "user", "content": "hi"}]
    assert (chat["max_tokens"], chat["temperature"], chat["seed"], chat["n"]) == (5, 1, 1, 2)
    assert chat["tools"] == [{"type": "function"}]
    completions = json.loads(OpenAI("completions", "m").body(item))
    assert completions["prompt"] == "hi" and "tools" not in completions and "messages" not in completions
    several = WorkloadItem(messages=[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
    assert json.loads(OpenAI("completions", "m").body(several))["prompt"] == "a\n\nb"
