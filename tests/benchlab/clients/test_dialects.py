"""The dialects beside OpenAI's: what they send, what they read, and that no bytes whatever make them raise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlab.clients.anthropic import DEFAULT_MAX_TOKENS, to_messages
from benchlab.clients.apis import APIS, key_headers, make_dialect
from benchlab.clients.dialect import UNTOLD
from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.records.record import Identity
from benchlab.records.recorder import Recorder
from benchlab.records.schema import requests_batch
from benchlab.workload.item import WorkloadItem
from tests.support.stub_server import Request, StubServer, answer, event, sse
from tests.support.talk import Seen, ask, client_for, run, send

Dict = dict[str, Any]


def named(kind: str, **more: Any) -> bytes:
    """An Anthropic event: its type is its name too."""
    return event({"type": kind, **more}, kind)


def start(**usage: int) -> bytes:
    return named("message_start", message={"id": "m", "role": "assistant", "content": [], "usage": usage})


def delta(**delta: Any) -> bytes:
    return named("content_block_delta", index=0, delta=delta)


def text(words: str) -> bytes:
    return delta(type="text_delta", text=words)


def over(reason: str = "end_turn", **usage: int) -> bytes:
    return named("message_delta", delta={"stop_reason": reason}, usage=usage) + named("message_stop")


def tokens_of(seen: Seen) -> list[int | None]:
    pairs = zip(seen.record.chunk_tokens, seen.record.chunk_kind, strict=True)
    return [tokens for tokens, kind in pairs if kind in VISIBLE]


class TestAnthropic:
    def test_C38_usage_is_cumulative(self) -> None:
        stream = [
            (0.0, start(input_tokens=30, output_tokens=1) + named("ping")),
            (0.03, text("a")),
            (0.06, text("b")),
            (0.07, named("message_delta", delta={}, usage={"output_tokens": 7})),
            (0.08, named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 12})),
            (0.09, named("message_stop")),
        ]
        seen = ask(sse(*stream), api="messages")
        record = seen.record
        assert (record.outcome, record.finish_reason, record.tokens_source) == (Outcome.OK, "end_turn", "usage")
        assert (record.prompt_tokens, record.output_tokens, seen.text) == (30, 12, "ab")
        assert seen.kinds == [Kind.ROLE, Kind.EMPTY, Kind.CONTENT, Kind.CONTENT, Kind.USAGE, Kind.FINISH, Kind.DONE]

    def test_blocks_of_every_kind(self) -> None:
        stream = (
            start(input_tokens=3, cache_read_input_tokens=20, cache_creation_input_tokens=7, output_tokens=1)
            + named("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
            + delta(type="thinking_delta", thinking="hm")
            + delta(type="signature_delta", signature="abc")
            + named("content_block_stop", index=0)
            + named("content_block_start", index=1, content_block={"type": "redacted_thinking", "data": "x"})
            + named("content_block_start", index=2, content_block={"type": "text", "text": "A"})
            + text("b")
            + text("")
            + named("content_block_start", index=3, content_block={"type": "tool_use", "id": "t", "name": "f"})
            + delta(type="input_json_delta", partial_json="")
            + delta(type="input_json_delta", partial_json='{"a":1}')
            + named("a_type_of_next_year", index=3)
            + over("tool_use", output_tokens=9)
        )
        seen = ask(sse((0.0, stream)), api="messages")
        assert (seen.text, seen.all_text) == ("Ab", 'hmAbf{"a":1}')
        visible = [kind for kind in seen.kinds if kind in VISIBLE]
        assert visible == [Kind.REASONING, Kind.CONTENT, Kind.CONTENT, Kind.TOOL_CALL, Kind.TOOL_CALL]
        record = seen.record
        assert (record.prompt_tokens, record.cached_tokens, record.output_tokens) == (30, 20, 9)
        assert record.finish_reason == "tool_use"

    @pytest.mark.parametrize(
        ("usage", "prompt"),
        [({"output_tokens": 5, "input_tokens": 0}, 30), ({"output_tokens": 5, "input_tokens": 31}, 31)],
    )
    def test_input_told_again(self, usage: dict[str, int], prompt: int) -> None:
        record = ask(sse((0.0, start(input_tokens=30) + text("a") + over(**usage))), api="messages").record
        assert (record.prompt_tokens, record.output_tokens) == (prompt, 5)

    def test_a_cut_stream_does_not_take_the_seed_for_a_count(self) -> None:
        script = sse((0.0, start(input_tokens=30, output_tokens=1) + text("a") + text("b")), then="close")
        record = ask(script, api="messages").record
        assert (record.outcome, record.output_tokens, record.tokens_source) == (Outcome.INCOMPLETE, 2, "chunks")

    def test_message_stop_without_a_reason_is_incomplete(self) -> None:
        record = ask(sse((0.0, start() + text("a") + named("message_stop"))), api="messages").record
        assert record.outcome is Outcome.INCOMPLETE

    def test_complete_although_the_message_hangs(self) -> None:
        script = sse((0.0, start() + text("a") + over(output_tokens=1)), terminator=False, then="hang")
        assert ask(script, api="messages").record.outcome is Outcome.OK

    def test_error_in_mid_stream(self) -> None:
        fault = named("error", error={"type": "overloaded_error", "message": "Overloaded"})
        record = ask(sse((0.0, start() + text("a")), (0.02, fault)), api="messages").record
        assert (record.outcome, record.error_kind, record.error) == (
            Outcome.ERROR_STREAM,
            "overloaded_error",
            "Overloaded (overloaded_error)",
        )
        assert len(record.visible_ns()) == 1

    @pytest.mark.parametrize(
        ("status", "kind"), [("529 Overloaded", "shed"), ("429 Slow", "limited"), ("400 Bad", None)]
    )
    def test_refusals(self, status: str, kind: str | None) -> None:
        body = json.dumps({"type": "error", "error": {"type": "some_error", "message": "no room"}}).encode()
        record = ask(answer(status, body), api="messages").record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_HTTP, kind)
        assert record.error is not None and "no room" in record.error

    def test_a_whole_message_is_no_stream(self) -> None:
        body = json.dumps({"type": "message", "content": [{"type": "text", "text": "hi"}]}).encode()
        record = ask(answer("200 OK", body), api="messages").record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "not_streamed")

    def test_what_goes_out(self) -> None:
        async def go() -> Request:
            script = sse((0.0, start() + text("a") + over(output_tokens=1)))
            async with StubServer(script) as server:
                async with client_for(server.url + "/v1", api="messages", headers={"x-api-key": "k"}) as client:
                    await send(client, WorkloadItem(prompt="hi", output_tokens=5, sampling={"stop": "X", "top_k": 3}))
                return server.requests[0]

        request = run(go())
        head = request.head.decode()
        assert head.startswith("POST /v1/messages HTTP/1.1\r\n")
        assert "\r\nanthropic-version: 2023-06-01\r\n" in head and "\r\nx-api-key: k\r\n" in head
        assert request.json == {
            "model": "m",
            "max_tokens": 5,
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stop_sequences": ["X"],
            "top_k": 3,
        }

    def test_messages_of_a_tool_using_chat(self) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        system, messages = to_messages(
            [
                {"role": "system", "content": "Be brief."},
                {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": "ok", "tool_calls": [call, {**call, "id": "c2"}]},
                {"role": "tool", "tool_call_id": "c1", "content": "1"},
                {"role": "tool", "tool_call_id": "c2", "content": "2"},
                {"role": "user", "content": "and?"},
            ]
        )
        assert system == "Be brief.\n\nBe kind."
        assert [message["role"] for message in messages] == ["user", "assistant", "user", "user"]
        assert messages[1]["content"][:2] == [
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        ]
        assert [block["tool_use_id"] for block in messages[2]["content"]] == ["c1", "c2"]

    def test_tools_and_a_length_that_the_api_demands(self) -> None:
        tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
        body = json.loads(make_dialect("messages", "m", {"seed": 1}).body(WorkloadItem(prompt="x", tools=[tool])))
        assert body["tools"] == [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]
        assert (body["max_tokens"], body["seed"]) == (DEFAULT_MAX_TOKENS, 1)


def token(words: str, *, special: bool = False, **last: Any) -> bytes:
    """A TGI event; it writes `data:` without a space."""
    shown = {"id": 1, "text": words, "logprob": -0.5, "special": special}
    document = {"index": 1, "token": shown, "generated_text": None, "details": None, **last}
    return b"data:" + json.dumps(document).encode() + b"\n\n"


def details(reason: str = "length", tokens: int = 3) -> Dict:
    return {"finish_reason": reason, "generated_tokens": tokens, "seed": None, "input_length": 11}


class TestTgi:
    def test_C37_the_text_that_the_last_event_repeats_is_not_counted_again(self) -> None:
        last = token(" c", generated_text="a b c", details=details())
        seen = ask(sse((0.0, token("a")), (0.03, token(" b")), (0.06, last)), api="tgi")
        record = seen.record
        assert (record.outcome, record.finish_reason, seen.text) == (Outcome.OK, "length", "a b c")
        assert (record.prompt_tokens, record.output_tokens, record.tokens_source) == (11, 3, "usage")
        assert tokens_of(seen) == [1, 1, 1]
        assert seen.kinds == [Kind.CONTENT] * 3

    def test_the_end_of_sequence_is_a_token_without_text(self) -> None:
        last = token("</s>", special=True, generated_text="ab", details=details("eos_token"))
        seen = ask(sse((0.0, token("a") + token("") + token("b") + last)), api="tgi")
        assert (seen.text, seen.record.output_tokens, seen.record.finish_reason) == ("ab", 3, "eos_token")
        assert seen.kinds == [Kind.CONTENT, Kind.EMPTY, Kind.CONTENT, Kind.FINISH]
        assert tokens_of(seen) == [1, 2]  # the token without text belongs to the text that it led to

    def test_C37_the_whole_text_counts_where_only_the_last_event_came(self) -> None:
        last = token("</s>", special=True, generated_text="ab", details=details())
        seen = ask(sse((0.0, last)), api="tgi")
        assert (seen.text, seen.record.outcome, len(seen.visible)) == ("ab", Outcome.OK, 1)

    def test_no_details(self) -> None:
        record = ask(sse((0.0, token("a") + token("b", generated_text="ab"))), api="tgi").record
        assert (record.outcome, record.finish_reason, record.tokens_source) == (Outcome.OK, UNTOLD, "chunks")
        assert "finish_reason" in record.unknown

    def test_cut(self) -> None:
        assert ask(sse((0.0, token("a") + token("b"))), api="tgi").record.outcome is Outcome.INCOMPLETE

    def test_error_event(self) -> None:
        fault = event({"error": "Request failed during generation", "error_type": "generation"})
        record = ask(sse((0.0, token("a")), (0.02, fault)), api="tgi").record
        assert (record.outcome, record.error_kind) == (Outcome.ERROR_STREAM, "generation")
        assert record.error == "Request failed during generation"

    def test_bodies(self) -> None:
        item = WorkloadItem(
            messages=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
            output_tokens=5,
            sampling={"temperature": 0, "stop": "X"},
        )
        extra = {"parameters": {"top_k": 3}, "adapter_id": "z"}
        assert json.loads(make_dialect("tgi", "m", extra).body(item)) == {
            "inputs": "a\n\nb",
            "parameters": {"details": True, "max_new_tokens": 5, "do_sample": False, "stop": ["X"], "top_k": 3},
            "adapter_id": "z",
        }


def output(words: object, **more: Any) -> bytes:
    return event({"model_name": "m", "model_version": "1", "text_output": words, **more})


class TestTriton:
    def test_the_clean_end_of_the_message_is_the_end(self) -> None:
        seen = ask(sse((0.0, output("")), (0.03, output("a")), (0.06, output(" b"))), api="triton")
        record = seen.record
        assert (record.outcome, record.finish_reason, seen.text) == (Outcome.OK, UNTOLD, "a b")
        assert record.unknown == ("finish_reason", "output_tokens")
        assert seen.kinds == [Kind.EMPTY, Kind.CONTENT, Kind.CONTENT]

    @pytest.mark.parametrize("then", ["close", "reset"])
    def test_without_it_the_answer_is_incomplete(self, then: Any) -> None:
        record = ask(sse((0.0, output("a")), terminator=False, then=then), api="triton").record
        assert (record.outcome, record.error_kind) == (Outcome.INCOMPLETE, "closed")

    def test_a_body_that_ends_with_its_connection_proves_nothing(self) -> None:
        record = ask(sse((0.0, output("a")), chunked=False), api="triton").record
        assert (record.outcome, record.error_kind) == (Outcome.INCOMPLETE, "closed")
        assert record.error is not None and "a cut looks alike" in record.error

    def test_no_text(self) -> None:
        record = ask(sse((0.0, output(""))), api="triton").record
        assert (record.outcome, record.error_kind) == (Outcome.INCOMPLETE, "empty")

    def test_a_backend_that_tells(self) -> None:
        first = output("a", finish_reason="None", num_output_tokens=2)
        last = output("b", finish_reason="length", num_output_tokens=1, num_input_tokens=9)
        seen = ask(sse((0.0, first + last), chunked=False), api="triton")
        record = seen.record
        assert (record.outcome, record.finish_reason, tokens_of(seen)) == (Outcome.OK, "length", [2, 1])
        assert (record.prompt_tokens, record.output_tokens, record.unknown) == (9, 3, ())
        assert ask(sse((0.0, first)), api="triton").record.outcome is Outcome.INCOMPLETE

    def test_error_event(self) -> None:
        record = ask(sse((0.0, output("a")), (0.02, event({"error": "out of memory"}))), api="triton").record
        assert (record.outcome, record.error) == (Outcome.ERROR_STREAM, "out of memory")

    def test_what_goes_out(self) -> None:
        dialect = make_dialect("triton", "a/b c", {"temperature": 1})
        assert dialect.path == "/v2/models/a%2Fb%20c/generate_stream"
        item = WorkloadItem(prompt="hi", output_tokens=5, sampling={"temperature": 0})
        body = {"text_input": "hi", "stream": True, "max_tokens": 5, "temperature": 1}
        assert json.loads(dialect.body(item)) == body


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
WORDS = (
    "type error message usage input_tokens output_tokens delta content_block stop_reason text thinking partial_json "
    "cache_read_input_tokens token generated_text details finish_reason generated_tokens input_length special "
    "text_output num_output_tokens error_type index"
)
TYPES = "message_start content_block_start content_block_delta message_delta message_stop ping error text_delta text"
JSON = st.recursive(
    SCALARS | st.sampled_from(TYPES.split()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS.split()), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(APIS), st.lists(JSON | st.binary(max_size=20), max_size=8), st.booleans())
def test_no_event_makes_any_of_them_raise(api: str, documents: list[Any], framed: bool) -> None:
    kept = Recorder(Identity("q0", 0, "i0", 100), keep_text=True)
    kept.dispatched_ns = kept.sent_ns = kept.headers_ns = 100
    conversation = make_dialect(api, "m").conversation(kept, WorkloadItem(prompt="x"))
    for at, document in enumerate(documents):
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        conversation.event(b"", data, 200 + at, 0)
    conversation.ended(300, framed=framed)
    record = kept.record(0)
    assert record.outcome in (Outcome.OK, Outcome.INCOMPLETE, Outcome.ERROR_STREAM, Outcome.ERROR_PROTOCOL)
    assert (record.outcome is Outcome.OK) == (record.error is None)
    assert record.audit() == []
    assert requests_batch([record]).num_rows == 1


@pytest.mark.parametrize("api", APIS)
def test_a_page_of_html_is_no_answer(api: str) -> None:
    record = ask(answer("200 OK", b"<html></html>", content_type="text/html"), api=api).record
    assert (record.outcome, record.error_kind) == (Outcome.ERROR_PROTOCOL, "body")


def test_a_key_goes_to_its_own_api_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a")
    assert key_headers("chat", {}) == {"Authorization": "Bearer o"}
    assert key_headers("messages", {}) == {"x-api-key": "a"}
    assert key_headers("tgi", {}) == key_headers("triton", {}) == {}
    assert key_headers("messages", {"authorization": "mine"}) == key_headers("messages", {"X-API-Key": "mine"}) == {}


def test_no_other_name_is_an_api() -> None:
    with pytest.raises(ValueError, match="telnet"):
        make_dialect("telnet", "m")
