"""The server over real HTTP on loopback, with the paced runner in its own process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.support.engine_server import NO_TORCH, ask, chat, events, metric, open_stream, served, text_of, wait_for

KEY = "test-key"


@pytest.fixture(scope="module")
def quick():
    with served() as process:
        yield process.url


@pytest.fixture(scope="module")
def paced():
    with served(runner="paced:ttft=5ms,itl=5ms") as process:
        yield process.url


def test_a_stream_has_one_event_a_token_and_ends_as_the_wire_says(quick):
    status, headers, raw = ask(
        quick, "/v1/chat/completions", chat(stream=True, stream_options={"include_usage": True}), {"x-request-id": "r1"}
    )
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["x-request-id"] == "r1"
    found = events(raw)
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [len(e["choices"][0]["delta"]["content"]) for e in found[1:6]] == [1] * 5
    assert found[6]["choices"][0]["finish_reason"] == "length"
    assert found[7]["choices"] == []
    assert found[7]["usage"]["completion_tokens"] == 5
    assert found[7]["usage"]["prompt_tokens"] == len("user: hello\nassistant: ") + 1
    assert found[8] == "[DONE]"
    assert len(found) == 9


def test_whole_and_streamed_answers_are_equal(quick):
    whole = json.loads(ask(quick, "/v1/chat/completions", chat())[2])
    streamed = events(ask(quick, "/v1/chat/completions", chat(stream=True))[2])
    assert whole["choices"][0]["message"]["content"] == text_of(streamed)
    assert whole["object"] == "chat.completion"
    completion = json.loads(ask(quick, "/v1/completions", {"prompt": "hi", "max_tokens": 3, "seed": 0})[2])
    assert len(completion["choices"][0]["text"]) == 3


def test_continuous_usage_counts_up(quick):
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = events(ask(quick, "/v1/chat/completions", chat(stream=True, stream_options=options))[2])
    counts = [e["usage"]["completion_tokens"] for e in found if e != "[DONE]" and e.get("usage")]
    assert counts == [1, 2, 3, 4, 5, 5, 5]


def test_a_stop_string_ends_the_answer_before_itself(quick):
    text = text_of(events(ask(quick, "/v1/chat/completions", chat(stream=True, max_tokens=30))[2]))
    stop = text[10:13]
    found = events(ask(quick, "/v1/chat/completions", chat(stream=True, max_tokens=30, stop=stop))[2])
    assert text_of(found) == text[: text.index(stop)]
    end = found[-2]["choices"][0]
    assert (end["finish_reason"], end["stop_reason"]) == ("stop", stop)
    assert wait_for(lambda: metric(quick, "benchlab:kv_cache_usage_share") == 0)


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/chat/completions", b"{", 400, "not JSON"),
        ("/v1/chat/completions", {}, 400, "messages"),
        ("/v1/chat/completions", chat(max_tokens=-5), 400, "max_tokens"),
        ("/v1/chat/completions", chat(model="other"), 404, "'paced'"),
        ("/v1/completions", {"prompt": "x" * 40_000}, 400, "context of 32768"),
        ("/v1/chat/completions", chat(max_tokens=40_000), 400, "lower max_tokens"),
        ("/v1/nothing", {}, 404, "/v1/nothing"),
        ("/v1/models", {}, 405, "Method Not Allowed"),
        ("/v1/completions", b" " * (9 * 1024 * 1024), 413, "larger than"),
    ],
)
def test_errors_are_json_and_say_why(quick, path, body, status, says):
    got, _, raw = ask(quick, path, body)
    error = json.loads(raw)["error"]
    assert got == status
    assert says in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_models_tokenize_health_ready(quick):
    assert json.loads(ask(quick, "/v1/models")[2])["data"][0]["id"] == "paced"
    assert json.loads(ask(quick, "/tokenize", {"prompt": "hé"})[2])["tokens"] == [104, 195, 169]
    assert ask(quick, "/health")[0] == ask(quick, "/ready")[0] == 200


def test_the_engines_own_times_are_in_order(paced):
    before = json.loads(ask(paced, "/timeline")[2])["now_ns"]
    ask(paced, "/v1/chat/completions", chat(stream=True), {"x-request-id": "timed"})
    times = json.loads(ask(paced, "/timeline/timed")[2])
    names = ("accepted", "queued", "admitted", "prefill_start", "prefill_end")
    assert [times[name] for name in names] == sorted(times[name] for name in names)
    assert len(times["token_ready"]) == len(times["token_written"]) == 5
    assert all(ready <= written for ready, written in zip(times["token_ready"], times["token_written"], strict=True))
    assert times["token_ready"][-1] <= times["released"]
    since = json.loads(ask(paced, f"/timeline?since={before}")[2])["requests"]
    assert "timed" in [each["request_id"] for each in since]
    assert ask(paced, "/timeline/nobody")[0] == 404
    assert ask(paced, "/timeline?since=x")[0] == 400
    steps = json.loads(ask(paced, "/journal?since=0")[2])["steps"]
    assert any(work[0] == "timed" for step in steps for work in step["works"])


def test_a_cached_prefix_is_reported(quick):
    prompt = {"prompt": "the same long prefix of more than two blocks", "max_tokens": 2}
    ask(quick, "/v1/completions", prompt)
    usage = json.loads(ask(quick, "/v1/completions", prompt)[2])["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 32
    assert metric(quick, "benchlab:prefix_cache_hits_total") >= 32


def test_metrics_count_what_happened(quick):
    names = ("benchlab:generation_tokens_total", "benchlab:prompt_tokens_total", "benchlab:request_success_total")
    before = [metric(quick, name) for name in names]
    ask(quick, "/v1/completions", {"prompt": "abc", "max_tokens": 7})
    assert [metric(quick, name) - old for name, old in zip(names, before, strict=True)] == [7, 3, 1]
    assert metric(quick, "benchlab:step_seconds_count") == metric(quick, "benchlab:steps_total")


def test_a_client_that_goes_away_frees_its_blocks(paced):
    connection = open_stream(paced, "x-request-id: gone\r\n", max_tokens=20_000)
    assert b" 200 OK" in connection.recv(4096)
    assert metric(paced, "benchlab:num_requests_running") == 1
    connection.close()
    assert wait_for(lambda: metric(paced, "benchlab:num_requests_running") == 0)
    assert metric(paced, "benchlab:kv_cache_usage_share") == 0
    assert json.loads(ask(paced, "/timeline/gone")[2])["finish_reason"] == "cancelled"


def test_a_full_queue_and_a_long_wait_are_refused():
    flags = ("--max-seqs", "1", "--queue-limit", "1", "--max-wait", "200ms")
    with served(*flags, runner="paced:ttft=5ms,itl=5ms") as process:
        runs = open_stream(process.url, max_tokens=20_000)
        runs.recv(4096)
        waits = open_stream(process.url)
        assert wait_for(lambda: metric(process.url, "benchlab:num_requests_waiting") == 1)
        status, headers, raw = ask(process.url, "/v1/chat/completions", chat())
        assert (status, headers["retry-after"]) == (503, "1")
        assert "queue is full" in json.loads(raw)["error"]["message"]
        assert b" 503 " in waits.recv(4096)  # its wait budget ran out
        assert metric(process.url, "benchlab:requests_refused_total") == 1
        runs.close()
        waits.close()


def test_faults_on_request(quick):
    def spoiled(fault, **extra):
        options = {"stream": True, "stream_options": {"include_usage": True}}
        return ask(quick, "/v1/chat/completions", chat(**options, **extra), {"x-benchlab-fault": fault})

    found = events(spoiled("error@3")[2])
    assert [e for e in found if "error" in e] == [found[-1]]
    assert len(text_of(found[:-1])) == 2
    assert "[DONE]" not in events(spoiled("no-done")[2])
    assert not [
        e
        for e in events(spoiled("no-finish")[2])
        if e != "[DONE]" and e["choices"] and "stop_reason" in e["choices"][0]
    ]
    assert [e for e in events(spoiled("usage=+7")[2]) if e != "[DONE]"][-1]["usage"]["completion_tokens"] == 12
    assert spoiled("status=429")[0] == 429
    assert spoiled("nonsense")[0] == 400
    assert text_of(events(spoiled("drip=10us", max_tokens=1)[2]))
    start = time.monotonic()
    spoiled("stall=150ms@2,slow-start=100ms")
    assert time.monotonic() - start >= 0.25
    connection = open_stream(quick, "x-benchlab-fault: reset@2\r\n")
    raw = b""
    with pytest.raises(ConnectionResetError):
        while chunk := connection.recv(4096):
            raw += chunk
    connection.close()
    assert b"[DONE]" not in raw


def test_sigterm_lets_running_answers_end():
    with served(runner="paced:ttft=5ms,itl=5ms") as process:
        connection = open_stream(process.url, max_tokens=60)
        connection.recv(4096)
        process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: ask(process.url, "/ready")[0] == 503, 2.0)
        assert ask(process.url, "/v1/chat/completions", chat())[0] == 503
        raw = b""
        while not raw.endswith(b"0\r\n\r\n"):
            raw += connection.recv(65536)
        assert b"[DONE]" in raw
        connection.close()
        assert process.wait(timeout=10) == 0


def test_a_key_is_asked_for_where_one_is_set():
    with served("--api-key", KEY) as process:
        assert ask(process.url, "/v1/models")[0] == 401
        assert ask(process.url, "/v1/models", headers={"authorization": f"Bearer {KEY}"})[0] == 200
        assert ask(process.url, "/health")[0] == 200


def test_a_taken_port_is_one_clear_message(quick):
    port = quick.rsplit(":", 1)[1]
    argv = [sys.executable, "-m", "benchlab_engine", "serve", "--runner", "paced:null", "--port", port]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 3
    assert done.stderr == f"error: port {port} of 127.0.0.1 is taken; choose another, or --port 0 for any\n"


def test_the_torch_runner_without_torch_says_what_to_install():
    argv = [sys.executable, "-c", NO_TORCH, "serve", "--model", "tiny", "--port", "0"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 3
    assert "benchlab[engine]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.torch
def test_a_random_tiny_model_is_served():
    pytest.importorskip("torch", reason="extra 'engine' is not installed")
    argv = [sys.executable, "-m", "benchlab_engine", "serve", "--model", "3:tiny", "--threads", "1", "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[1]
            ledger = json.loads(process.stderr.readline())["ledger"]
            assert ledger["weights"] > 0
            assert ledger["kv"] > 0
            body = chat(temperature=0, max_tokens=12, ignore_eos=True)
            first, second = (json.loads(ask(url, "/v1/chat/completions", body)[2]) for _ in range(2))
            assert first["choices"] == second["choices"]
            assert first["usage"]["completion_tokens"] == 12
            assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 16
            assert ask(url, "/v1/chat/completions", chat(), {"x-benchlab-fault": "no-done"})[0] == 400
        finally:
            process.kill()
