"""Faults as text, and each of them on the wire of a paced server."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab_engine.sim.faults import NO_FAULT, Fault, parse_fault
from tests.running import paced_engine

TOKENS = 8


def test_faults_by_name():
    assert parse_fault("garbage@3,split,burst=4,keepalive=1s,role-early") == Fault(
        garbage_at=3, split=True, burst=4, keepalive_ns=10**9, role_early=True
    )
    assert parse_fault("no-usage, usage-every,no-finish,no-done") == Fault(
        no_usage=True, usage_every=True, no_finish=True, no_done=True
    )
    assert parse_fault(" , ") == NO_FAULT


@pytest.mark.parametrize(
    "text", ["burst=0", "merge=0", "burst", "keepalive=1us", "keepalive=1", "split=3", "garbage@x", "role_early"]
)
def test_a_wrong_fault_says_what_there_is(text):
    with pytest.raises(ValueError, match="fault"):
        parse_fault(text)


@given(st.text(max_size=30))
def test_any_text_is_a_fault_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert isinstance(parse_fault(text), Fault)


@pytest.fixture(scope="module")
def engine():
    with paced_engine("ttft=40ms,itl=4ms") as url:
        yield url.removeprefix("http://")


def stream(host, fault, **body):
    """The whole answer, and when its head came (s)."""
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": TOKENS, "stream": True}
    headers = {"content-type": "application/json", "x-benchlab-fault": fault}
    begin = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection(host, timeout=20)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(asked | body), headers)
        with connection.getresponse() as response:
            head_s = time.monotonic() - begin
            text = response.read().decode()
            assert response.status == 200, text
    return text, head_s


def events(text):
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {") and line.endswith("}")]


def contents(text):
    return [e["choices"][0]["delta"].get("content") for e in events(text) if e.get("choices")]


def num_tokens(text):
    return sum(bool(each) for each in contents(text))


def test_garbage_comes_before_its_token(engine):
    text, _ = stream(engine, "garbage@3")
    before, _, after = text.partition("<html>")
    assert num_tokens(before) == 2
    assert "{not json" in after
    assert after.endswith("data: [DONE]\n\n")


def test_split_changes_no_byte_of_the_events(engine):
    whole, _ = stream(engine, "")
    text, _ = stream(engine, "split")
    assert num_tokens(text) == num_tokens(whole) == TOKENS
    assert text.endswith("data: [DONE]\n\n")


def raw_chunks(host, fault):
    """Sizes of the HTTP chunks, from the socket."""
    name, port = host.split(":")
    body = json.dumps({"model": "tiny", "prompt": "hi", "max_tokens": TOKENS, "stream": True})
    with socket.create_connection((name, int(port)), timeout=20) as peer:
        peer.sendall(
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-benchlab-fault: {fault}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )
        data = b""
        while part := peer.recv(65536):
            data += part
    rest, sizes = data.partition(b"\r\n\r\n")[2], []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        sizes.append((int(size, 16), rest[: int(size, 16)]))
        rest = rest[int(size, 16) + 2 :]
    return sizes


def test_split_sends_each_byte_in_a_chunk_of_its_own(engine):
    sizes = [size for size, _ in raw_chunks(engine, "split")]
    assert sizes.count(1) > 500


def test_a_burst_holds_tokens_back_and_sends_them_at_once(engine):
    chunks = [data for _, data in raw_chunks(engine, "burst=3")]
    assert [data.count(b"data: {") for data in chunks][:3] == [3, 3, 2]
    assert b"".join(chunks).endswith(b"data: [DONE]\n\n")


def test_merged_tokens_come_in_one_event_and_lose_no_text(engine):
    whole, merged = (contents(stream(engine, fault, seed=3)[0]) for fault in ("", "merge=3"))
    assert [len(text) for text in merged if text] == [3, 3, 2]
    assert "".join(filter(None, merged)) == "".join(filter(None, whole))


def test_keepalive_fills_the_silence(engine):
    text, _ = stream(engine, "keepalive=5ms")
    assert text.count(": keep-alive\n\n") >= 2
    assert num_tokens(text) == TOKENS


def test_an_early_head_does_not_wait_for_the_first_token(engine):
    assert stream(engine, "")[1] > 0.025  # the pace may count up to 10 ms of idling as busy
    assert min(stream(engine, "role-early")[1] for _ in range(5)) < 0.025


def test_usage_never_or_with_every_event(engine):
    never, _ = stream(engine, "no-usage", stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert num_tokens(never) == TOKENS
    assert not any(each.get("usage") for each in events(never))
    every, _ = stream(engine, "usage-every")
    told = [each["usage"]["completion_tokens"] for each in events(every) if each.get("usage")]
    assert told[-1] == TOKENS
    assert len(told) >= TOKENS
