"""Anything at all sent to every route: an answer comes, soon, as JSON, and never a 500."""

from __future__ import annotations

import json
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.engine_server import ask, chat, metric, served, wait_for

POSTS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/tokenize")
GETS = (
    "/v1/models",
    "/v1/models/x",
    "/health",
    "/ready",
    "/metrics",
    "/timeline",
    "/timeline/x",
    "/journal",
    "/",
    "/%00",
)
HEADERS = ("x-request-id", "x-tenant", "x-priority", "x-deadline", "x-benchlab-fault", "authorization", "x-api-key",
           "content-type", "accept-encoding", "content-encoding", "expect")  # fmt: skip

values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from([
    "messages", "prompt", "model", "max_tokens", "min_tokens", "stream", "stream_options", "stop", "stop_sequences",
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "logit_bias", "n", "logprobs", "top_logprobs",
    "echo", "ignore_eos", "priority", "seed", "system",
])  # fmt: skip
right = st.fixed_dictionaries(
    {
        "messages": st.sampled_from(["hello \u2028", "\x00é", "half \ud800"]).map(
            lambda text: [{"role": "user", "content": text}]
        ),
        "prompt": st.sampled_from(["x", [1, 2, 3], "\udc00"]),
        "max_tokens": st.integers(1, 8),
    },
    optional={
        "n": st.integers(1, 4),
        "stream": st.booleans(),
        "logprobs": st.sampled_from([True, 1, None]),
        "stop": st.lists(st.text("ab ", min_size=1, max_size=2), max_size=3),
        "logit_bias": st.dictionaries(st.integers(0, 300).map(str), st.floats(-100, 100), max_size=3),
        "echo": st.booleans(),
        "min_tokens": st.integers(0, 3),
    },
)
objects = st.one_of(
    right, st.builds(lambda a, b: {**a, **b}, right, st.dictionaries(names, values, max_size=3)), values
)
bodies = st.one_of(objects.map(lambda it: json.dumps(it).encode()), st.binary(max_size=60))
header_text = st.one_of(
    st.sampled_from(["2s", "1us", "5", "gzip", "deflate", "100-continue", "no-done", "error@2", "reset@1", "usage=+1"]),
    # Control characters are no HTTP: they get HTTP's own plain 400.
    st.binary(max_size=12).map(lambda raw: bytes(b for b in raw if b >= 0x20 and b != 0x7F).decode("latin-1")),
)
headers = st.dictionaries(st.sampled_from(HEADERS), header_text, max_size=2)


@pytest.fixture(scope="module")
def server():
    with served("--max-seqs", "8") as it:
        yield it


def exchange(url, method, path, head, body):
    """Status and body of one request over a socket of its own; None where the connection was reset."""
    host, port = url.removeprefix("http://").split(":")
    lines = [f"{method} {path} HTTP/1.1", "host: x", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in head.items()]
    raw = b""
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        try:
            connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            while chunk := connection.recv(1 << 16):
                raw += chunk
        except ConnectionError:
            return None, b""
    while raw.startswith(b"HTTP/1.1 100"):
        raw = raw.partition(b"\r\n\r\n")[2]
    top, _, rest = raw.partition(b"\r\n\r\n")
    if b"chunked" in top.lower():
        out = b""
        while rest and (size := int(rest.split(b"\r\n", 1)[0], 16)):
            rest = rest.split(b"\r\n", 1)[1]
            out, rest = out + rest[:size], rest[size + 2 :]
        rest = out
    return int(top.split()[1]), rest


bounded = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@bounded
@given(st.sampled_from(POSTS), headers, bodies)
def test_any_body_and_headers_get_an_answer_that_is_no_500(server, path, head, body):
    status, raw = exchange(server.url, "POST", path, head, body)
    if status is None:
        assert "reset" in head.get("x-benchlab-fault", "")
        return
    assert status < 500 or status == 504, raw
    if status == 400 and "content-encoding" in head and not raw.startswith(b"{"):
        return  # a body whose encoding breaks in the packet of its headers is no HTTP: HTTP's own plain 400
    if status >= 400:
        error = json.loads(raw)["error"]
        assert error["message"]
        assert error["type"]
    elif not raw.startswith((b"data: ", b"event: ")):
        json.loads(raw)


@settings(bounded, max_examples=150)
@given(st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"]), st.sampled_from(POSTS + GETS), headers,
       st.text("ab&=?%0123", max_size=12))  # fmt: skip
def test_any_method_and_query_get_an_answer_that_is_no_500(server, method, path, head, query):
    status, raw = exchange(server.url, method, f"{path}?since={query}", head, b"")
    assert status is not None
    assert status < 500
    if status >= 400 and method != "HEAD":
        assert json.loads(raw)["error"]["message"]


def test_after_all_that_the_server_is_whole(server):
    assert wait_for(lambda: metric(server.url, "benchlab:num_requests_running") == 0)
    assert metric(server.url, "benchlab:kv_blocks_free") == metric(server.url, "benchlab:kv_blocks")
    assert ask(server.url, "/health")[0] == 200
    assert ask(server.url, "/v1/chat/completions", chat())[0] == 200
