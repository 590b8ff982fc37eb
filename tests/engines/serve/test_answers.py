"""What an answer holds, over real HTTP: choices, log-probabilities, Anthropic's messages, headers, statuses."""

from __future__ import annotations

import json
import math
import socket
import time

import pytest

from tests.support.engine_server import ask, chat, events, metric, open_stream, served, text_of

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def url():
    with served(
        "--tenant-limit", "2", "--max-seqs", "4", "--body-limit", "500ms", runner="paced:ttft=2ms,itl=2ms"
    ) as it:
        yield it.url


def answer(url, path, body, **headers):
    status, _, raw = ask(url, path, body, headers)
    assert status == 200, raw
    return json.loads(raw)


def messages(**extra):
    return {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "seed": 0, **extra}


def named(raw):
    """Anthropic's events."""
    return [json.loads(block.split("data: ")[1]) for block in raw.decode().split("\n\n") if block]


def test_each_choice_is_the_answer_to_its_own_seed(url):
    whole = answer(url, CHAT, chat(n=3, seed=5))
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    texts = [choice["message"]["content"] for choice in whole["choices"]]
    assert texts == [answer(url, CHAT, chat(seed=5 + i))["choices"][0]["message"]["content"] for i in range(3)]
    assert whole["usage"]["completion_tokens"] == 15
    assert whole["usage"]["prompt_tokens"] == len("user: hello\nassistant: ") + 1


def test_a_stream_of_several_choices_tells_each_by_its_index(url):
    found = events(ask(url, CHAT, chat(n=2, seed=5, stream=True, stream_options={"include_usage": True}))[2])
    assert [event["choices"][0]["index"] for event in found[:2]] == [0, 1]
    assert all(event["choices"][0]["delta"]["role"] == "assistant" for event in found[:2])
    by_index = [[e for e in found[2:-2] if e["choices"][0]["index"] == index] for index in (0, 1)]
    assert [len(each) for each in by_index] == [6, 6]
    assert text_of(by_index[1]) == answer(url, CHAT, chat(seed=6))["choices"][0]["message"]["content"]
    assert found[-2]["usage"]["completion_tokens"] == 10
    assert found[-1] == "[DONE]"


def test_choices_end_each_by_its_own_stop_string(url):
    texts = [c["message"]["content"] for c in answer(url, CHAT, chat(n=2, seed=5, max_tokens=40))["choices"]]
    stop = texts[1][20:23]
    choices = answer(url, CHAT, chat(n=2, seed=5, max_tokens=40, stop=[stop]))["choices"]
    for text, choice in zip(texts, choices, strict=True):
        hit = text.find(stop)
        assert choice["message"]["content"] == (text if hit < 0 else text[:hit])
        assert choice["finish_reason"] == ("length" if hit < 0 else "stop")


def test_stop_strings_wait_for_the_least_number_of_tokens(url):
    text = answer(url, CHAT, chat(max_tokens=30))["choices"][0]["message"]["content"]
    stop = text[4]
    found = answer(url, CHAT, chat(max_tokens=30, stop=stop, min_tokens=8))["choices"][0]["message"]["content"]
    assert len(found) >= 8
    assert found == (text[: text.find(stop, 8)] if stop in text[8:] else text)


def test_log_probabilities_have_an_entry_a_token(url):
    choice = answer(url, CHAT, chat(logprobs=True, top_logprobs=3))["choices"][0]
    entries = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"]
    for entry in entries:
        assert entry["bytes"] == list(entry["token"].encode())
        assert len(entry["top_logprobs"]) == 3
        assert all(top["logprob"] <= 0 for top in entry["top_logprobs"])
    streamed = events(ask(url, CHAT, chat(logprobs=True, top_logprobs=3, stream=True))[2])
    assert [e["choices"][0]["logprobs"]["content"][0] for e in streamed[1:6]] == entries


def test_log_probabilities_of_completions(url):
    choice = answer(url, "/v1/completions", {"prompt": "x", "max_tokens": 4, "logprobs": 2})["choices"][0]
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"]
    assert told["text_offset"] == [0, 1, 2, 3]
    assert all(math.exp(value) <= 1 for value in told["token_logprobs"])
    assert answer(url, "/v1/completions", {"prompt": "x", "max_tokens": 4})["choices"][0]["logprobs"] is None
    own = answer(url, "/v1/completions", {"prompt": "x", "max_tokens": 4, "logprobs": 0})["choices"][0]["logprobs"]
    assert own["top_logprobs"] == [{t: p} for t, p in zip(own["tokens"], own["token_logprobs"], strict=True)]


def test_echo_gives_the_prompt_first(url):
    body = {"prompt": "hé ", "max_tokens": 3, "echo": True, "seed": 1}
    plain = answer(url, "/v1/completions", body | {"echo": False})["choices"][0]["text"]
    assert answer(url, "/v1/completions", body)["choices"][0]["text"] == "hé " + plain
    found = events(ask(url, "/v1/completions", body | {"stream": True})[2])
    assert found[0]["choices"][0]["text"] == "hé " + plain[0]
    assert ask(url, "/v1/completions", body | {"logprobs": 1})[0] == 400


def test_sampling_fields_are_taken(url):
    fields = {
        "presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1, "min_p": 0.1, "top_k": 5,
        "logit_bias": {"101": -100}, "min_tokens": 2, "temperature": 0.5, "top_p": 0.9, "priority": -3,
    }  # fmt: skip
    for path in (CHAT, "/v1/messages"):
        assert ask(url, path, chat(**fields))[0] == 200
    status, _, raw = ask(url, CHAT, chat(logit_bias={"258": 1}))
    assert (status, json.loads(raw)["error"]["param"]) == (400, "logit_bias")
    assert ask(url, "/v1/completions", {"prompt": [1, 258]})[0] == 400


# -- Anthropic's form -------------------------------------------------------------------------------------------------


def test_a_message_streamed_and_whole(url):
    whole = answer(url, "/v1/messages", messages(system="be brief"))
    raw = ask(url, "/v1/messages", messages(system="be brief", stream=True))[2]
    found = named(raw)
    deltas = [event["delta"]["text"] for event in found if event["type"] == "content_block_delta"]
    assert len(deltas) == 5
    assert "".join(deltas) == whole["content"][0]["text"]
    assert found[0]["type"] == "message_start"
    assert found[-1] == {"type": "message_stop"}
    assert found[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "max_tokens"
    usage = found[-2]["usage"]
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
    counted = {"messages": messages()["messages"], "system": "be brief"}
    assert prompt == answer(url, "/v1/messages/count_tokens", counted)["input_tokens"]
    assert usage["output_tokens"] == whole["usage"]["output_tokens"] == 5


def test_a_message_ends_at_a_stop_sequence(url):
    text = answer(url, "/v1/messages", messages(max_tokens=30))["content"][0]["text"]
    stop = text[10:13]
    found = named(ask(url, "/v1/messages", messages(max_tokens=30, stop_sequences=[stop], stream=True))[2])
    assert found[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": stop}
    shown = "".join(event["delta"]["text"] for event in found if event["type"] == "content_block_delta")
    assert shown == text[: text.index(stop)]


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"),
    [
        (b"{", {}, 400, "invalid_request_error"),
        (messages(model="other"), {}, 404, "not_found_error"),
        (messages(max_tokens=50_000), {}, 400, "invalid_request_error"),
        (b" " * (9 * 1024 * 1024), {}, 413, "request_too_large"),
        (messages(), {"x-benchlab-fault": "status=503"}, 529, "overloaded_error"),
        (messages(), {"x-benchlab-fault": "status=429"}, 429, "rate_limit_error"),
        (messages(), {"x-deadline": "1us"}, 504, "timeout_error"),
    ],
)
def test_errors_of_messages_have_anthropics_form(url, body, headers, status, kind):
    got, head, raw = ask(url, "/v1/messages", body, {"x-request-id": "mine", **headers})
    error = json.loads(raw)
    assert (got, error["type"], error["error"]["type"]) == (status, "error", kind)
    assert error["request_id"] == head["x-request-id"] == "mine"


def test_faults_spoil_messages_too(url):
    found = named(ask(url, "/v1/messages", messages(stream=True), {"x-benchlab-fault": "error@3"})[2])
    assert [event["type"] for event in found].count("content_block_delta") == 2
    assert found[-1] == {"type": "error", "error": {"type": "api_error", "message": "fault asked for"}}
    found = named(ask(url, "/v1/messages", messages(stream=True), {"x-benchlab-fault": "no-done"})[2])
    assert found[-1]["type"] == "message_delta"


def test_both_kinds_of_key_open_the_door():
    with served("--api-key", "secret") as it:
        status, _, raw = ask(it.url, "/v1/messages", messages())
        assert (status, json.loads(raw)["error"]["type"]) == (401, "authentication_error")
        assert ask(it.url, "/v1/messages", messages(), {"x-api-key": "secret"})[0] == 200
        assert ask(it.url, "/v1/messages", messages(), {"authorization": "Bearer secret"})[0] == 200
        assert ask(it.url, "/v1/messages", messages(), {"x-api-key": "s\xe9cret"})[0] == 401


# -- headers and statuses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"x-deadline": "2"}, "x-deadline"),
        ({"x-deadline": "0s"}, "x-deadline"),
        ({"x-priority": "high"}, "x-priority"),
        ({"x-priority": "99999999999"}, "x-priority"),
        ({"x-tenant": "t" * 201}, "x-tenant"),
        ({"x-tenant": "t\xe9"}, "x-tenant"),
        ({"x-request-id": "a b"}, "x-request-id"),
    ],
)
def test_a_wrong_header_is_named(url, headers, param):
    status, _, raw = ask(url, CHAT, chat(), headers)
    assert (status, json.loads(raw)["error"]["param"]) == (400, param)


def test_a_deadline_before_the_first_token_is_504_and_after_it_an_error_event(url):
    status, _, raw = ask(url, CHAT, chat(max_tokens=500), {"x-deadline": "100ms"})
    assert (status, json.loads(raw)["error"]["code"]) == (504, "deadline")
    found = events(
        ask(url, CHAT, chat(max_tokens=500, stream=True), {"x-deadline": "100ms", "x-request-id": "late"})[2]
    )
    assert 1 < len(found) < 200
    assert found[-1]["error"]["code"] == "deadline"
    assert "[DONE]" not in found
    assert json.loads(ask(url, "/timeline/late")[2])["finish_reason"] == "deadline"


def test_a_tenant_has_so_many_places_and_others_have_theirs(url):
    held = [open_stream(url, "x-tenant: greedy\r\n", max_tokens=2000) for _ in range(2)]
    for connection in held:
        connection.recv(4096)
    status, headers, raw = ask(url, CHAT, chat(), {"x-tenant": "greedy"})
    assert (status, headers["retry-after"]) == (429, "1")
    assert json.loads(raw)["error"]["code"] == "tenant_limit"
    assert ask(url, CHAT, chat(), {"x-tenant": "other"})[0] == 200
    for connection in held:
        connection.close()
    end = time.monotonic() + 10
    while ask(url, CHAT, chat(), {"x-tenant": "greedy"})[0] == 429:
        assert time.monotonic() < end
    assert metric(url, "benchlab:requests_refused_total") >= 1


def test_a_body_that_does_not_come_is_408(url):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        raw = b""
        while chunk := connection.recv(4096):
            raw += chunk
    assert raw.startswith(b"HTTP/1.1 408 ")
    assert b'"body_timeout"' in raw


def test_a_wrong_method_says_which_is_right(url):
    status, headers, _ = ask(url, "/v1/models", {})
    assert (status, headers["allow"]) == (405, "GET,HEAD")


def test_a_higher_priority_goes_first():
    with served("--max-seqs", "1", "--priority-age", "0s", runner="paced:ttft=5ms,itl=5ms") as it:
        runs = open_stream(it.url, max_tokens=60)
        runs.recv(4096)
        low = open_stream(it.url, "x-request-id: low\r\nx-priority: 5\r\n", max_tokens=1)
        while metric(it.url, "benchlab:num_requests_waiting") < 1:
            time.sleep(0.01)
        high = open_stream(it.url, "x-request-id: high\r\n", priority=-5, max_tokens=1)
        for connection in (low, high):
            connection.recv(4096)
            connection.close()
        admitted = {name: json.loads(ask(it.url, f"/timeline/{name}")[2])["admitted"] for name in ("low", "high")}
        assert admitted["high"] < admitted["low"]
        runs.close()


def test_more_choices_than_places_can_never_be_and_lengths_keep_to_the_limit():
    with served("--max-seqs", "2", "--queue-limit", "1", "--max-new-tokens", "7") as it:
        status, _, raw = ask(it.url, CHAT, chat(n=4))
        assert (status, json.loads(raw)["error"]["param"]) == (400, "n")
        assert answer(it.url, CHAT, chat(max_tokens=None))["usage"]["completion_tokens"] == 7
        status, _, raw = ask(it.url, CHAT, chat(max_tokens=8))
        assert (status, json.loads(raw)["error"]["code"]) == (400, "output_limit")


def test_http_1_0_has_no_chunks(url):
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(chat(stream=True)).encode()
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        raw = b""
        while chunk := connection.recv(65536):
            raw += chunk
    head, _, stream = raw.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert len(events(stream)) == 8
