"""Bodies in, events out, of both wire forms: all without a socket."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.serve import wire_anthropic
from benchlab_engine.serve.call import Chance, Piece, TokenChances, Usage
from benchlab_engine.serve.events_anthropic import AnthropicWire
from benchlab_engine.serve.events_openai import OpenAiWire
from benchlab_engine.serve.fields import WireError
from benchlab_engine.serve.wire_openai import parse

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
MESSAGES = CHAT | {"max_tokens": 5}


def parsed(body, chat=True):
    return parse(json.dumps(body).encode(), chat=chat)


def message(body):
    return wire_anthropic.parse(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": [], "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0]"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"5": True}}, "logit_bias"),
        ({"logit_bias": {"-5": 1}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"seed": "x"}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"priority": 2**31}, "priority"),
        ({"stream_options": 1}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "include_usage"),
        ({"model": 1}, "model"),
    ],
)
def test_a_wrong_field_is_named(extra, param):
    with pytest.raises(WireError) as caught:
        parsed(CHAT | extra)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"max_tokens": None}, "max_tokens is required"),
        ({"tools": [{"name": "x"}]}, "tools="),
        ({"thinking": {"type": "enabled"}}, "thinking="),
        ({"messages": [{"role": "system", "content": "x"}]}, "user or assistant"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, '"image"'),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text must be a text"),
        ({"system": [{"type": "tool_use"}]}, "system"),
        ({"stop_sequences": [1]}, "stop_sequences"),
    ],
)
def test_a_wrong_field_of_a_message_is_named(extra, says):
    with pytest.raises(WireError) as caught:
        message(MESSAGES | extra)
    assert caught.value.status == 400
    assert says in caught.value.message


def test_a_message_becomes_a_chat():
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {}}]
    call = message(
        {"max_tokens": 3, "system": blocks, "messages": [{"role": "user", "content": blocks}], "stop_sequences": ["x"],
         "top_k": 5, "metadata": {"user_id": "u"}}
    )  # fmt: skip
    assert call.messages == ({"role": "system", "content": "ab"}, {"role": "user", "content": "ab"})
    assert (call.max_tokens, call.stop, call.sampling.top_k) == (3, ("x",), 5)


@pytest.mark.parametrize("raw", [b"{", b"[]", b"", b"\xff", b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}"])
def test_what_is_no_object_is_refused(raw):
    for read in (lambda: parse(raw, chat=True), lambda: wire_anthropic.parse(raw)):
        with pytest.raises(WireError) as caught:
            read()
        assert caught.value.status == 400


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_NAMES = ["messages", "prompt", "model", "max_tokens", "max_completion_tokens", "min_tokens", "stream", "stop", "n",
    "stream_options", "stop_sequences", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "logit_bias",
    "frequency_penalty", "repetition_penalty", "best_of", "logprobs", "top_logprobs", "echo", "ignore_eos", "priority",
    "seed", "system", "tools", "suffix", "response_format", "unknown"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(_NAMES), _JSON), st.booleans())
def test_any_body_is_a_call_or_a_400(fields, whole):
    body = json.dumps({**(MESSAGES | {"prompt": "x"} if whole else {}), **fields}).encode()
    for read in (lambda: parse(body, True), lambda: parse(body, False), lambda: wire_anthropic.parse(body)):
        try:
            call = read()
        except WireError as error:
            assert error.status == 400
            json.dumps(error.message)
        else:
            assert 1 <= call.n <= 16
            assert all(math.isfinite(value) for _, value in call.sampling.logit_bias)


def test_unknown_fields_and_nulls_are_ignored():
    nulls = dict.fromkeys([name for name in _NAMES if name != "messages"])
    assert parsed(CHAT | nulls | {"unknown": 1}) == parsed(CHAT)


def test_prompts_are_a_text_or_token_ids():
    assert parsed({"prompt": "hi"}, chat=False).prompt == "hi"
    assert parsed({"prompt": ["hi"]}, chat=False).prompt == "hi"
    assert parsed({"prompt": [1, 2]}, chat=False).prompt_tokens == (1, 2)
    for wrong in ("", [], ["a", "b"], [-1], [True], None, 5, [2**40]):
        with pytest.raises(WireError):
            parsed({"prompt": wrong}, chat=False)


def openai_events(**extra):
    return OpenAiWire().events(parsed(CHAT | extra), "1", "m", 5)


def test_events_are_one_line_of_json_each():
    writer = openai_events(stream=True, stream_options={"include_usage": True})
    count = Usage(3, 2, 1)
    end = Piece("", True, "stop", "x")
    for event in (writer.opening(count), writer.token(0, '"\n\u2028'), writer.finish(0, end, "", count),
                  writer.error(WireError(500, "no"))):  # fmt: skip
        assert event.startswith("data: {")
        assert event.endswith("}\n\n")
        assert event.count("\n") == 2
        assert event.isascii()
        json.loads(event[6:])
    assert json.loads(writer.token(0, '"\n')[6:])["choices"][0]["delta"] == {"content": '"\n'}
    usage, done, rest = writer.closing(count, is_marked=True).split("\n\n")
    assert json.loads(usage[6:])["usage"]["total_tokens"] == 5
    assert (done, rest) == ("data: [DONE]", "")


def test_the_quick_event_is_the_slow_event():
    chances = TokenChances(Chance(b"a", -0.5), [], 0)
    quick = json.loads(openai_events().token(0, "a")[6:])
    slow = json.loads(openai_events(logprobs=True).token(0, "a", chances)[6:])
    told = slow["choices"][0].pop("logprobs")
    assert told["content"] == [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
    assert quick["choices"][0].pop("logprobs") is None
    assert quick == slow


def test_log_probabilities_of_completions_have_offsets_and_names():
    call = parsed({"prompt": "x", "logprobs": 1}, chat=False)
    pieces = [
        Piece("a", True, chances=TokenChances(Chance(b"a", -1.0), [Chance(b"b", -0.5)], 0)),
        Piece("", True, "length", None, TokenChances(Chance(b"\xe2", -math.inf), [Chance(b"\xe2", -math.inf)], 1)),
    ]
    told = OpenAiWire().whole(call, "1", "m", 5, [pieces], Usage(1, 2, 0))["choices"][0]["logprobs"]
    assert told == {
        "tokens": ["a", "bytes:\\xe2"],
        "token_logprobs": [-1.0, -9999.0],
        "top_logprobs": [{"b": -0.5, "a": -1.0}, {"bytes:\\xe2": -9999.0}],
        "text_offset": [0, 1],
    }


def anthropic_events(text):
    out = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        out.append(event)
    return out


def test_a_messages_events_are_in_order_and_counts_are_cumulative():
    writer = AnthropicWire().events(message(MESSAGES), "1", "m", 5)
    count = Usage(30, 7, 16)
    stream = (
        writer.opening(count) + writer.token(0, "a\n") + writer.finish(0, Piece("", False, "stop", None), "b", count)
    )
    found = anthropic_events(stream + writer.closing(count, is_marked=True))
    assert [event["type"] for event in found] == [
        "message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta",
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert found[0]["message"]["usage"]["input_tokens"] == 14
    assert found[0]["message"]["usage"]["cache_read_input_tokens"] == 16
    assert found[6]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert found[6]["usage"]["output_tokens"] == 7


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (Piece("", True, "length"), ("max_tokens", None)),
        (Piece("", True, "stop", "END"), ("stop_sequence", "END")),
        (Piece("", False, "stop"), ("end_turn", None)),
    ],
)
def test_how_a_message_ended(piece, reason):
    body = AnthropicWire().whole(message(MESSAGES), "1", "m", 5, [[piece]], Usage(1, 1, 0))
    assert (body["stop_reason"], body["stop_sequence"]) == reason


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (401, 401, "authentication_error"),
        (404, 404, "not_found_error"),
        (405, 405, "invalid_request_error"),
        (413, 413, "request_too_large"),
        (429, 429, "rate_limit_error"),
        (500, 500, "api_error"),
        (503, 529, "overloaded_error"),
        (504, 504, "timeout_error"),
    ],
)
def test_errors_have_anthropics_words(status, told, kind):
    got, body = AnthropicWire().error(WireError(status, "why"), "r")
    assert got == told
    assert json.loads(body) == {"type": "error", "error": {"type": kind, "message": "why"}, "request_id": "r"}
    assert OpenAiWire().error(WireError(status, "why"), "r")[0] == status
