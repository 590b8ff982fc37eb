"""Clients that leave, do not read, or come in hundreds; a server that goes down while answers run."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import time

from benchlab_engine.__main__ import main
from tests.support.engine_server import ask, chat, events, metric, open_stream, served, wait_for


def timeline(url, name):
    return json.loads(ask(url, f"/timeline/{name}")[2])


def read_stream(connection):
    """The rest of a chunked body, unframed; only for bodies whose chunks end in blank lines."""
    raw = b""
    while not raw.endswith(b"0\r\n\r\n"):
        more = connection.recv(1 << 16)
        if not more:
            break
        raw += more
    return raw


def test_a_client_that_goes_away_costs_at_most_one_more_step():
    with served(runner="paced:ttft=20ms,itl=20ms") as it:
        connection = open_stream(it.url, "x-request-id: gone\r\n", max_tokens=20_000)
        for _ in range(3):
            connection.recv(4096)
        closed_ns = time.monotonic_ns()  # the server's clock, too
        connection.close()
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_running") == 0)
        steps = json.loads(ask(it.url, "/journal")[2])["steps"]
        later = [step for step in steps if step["start_ns"] > closed_ns]
        assert len(later) <= 1  # one may have begun before the cancellation was posted
        assert timeline(it.url, "gone")["finish_reason"] == "cancelled"
        assert metric(it.url, "benchlab:kv_blocks_free") == metric(it.url, "benchlab:kv_blocks")


def test_a_client_that_leaves_the_line_is_taken_out_of_it():
    with served("--max-seqs", "1", runner="paced:ttft=5ms,itl=5ms") as it:
        runs = open_stream(it.url, max_tokens=20_000)
        runs.recv(4096)
        waits = open_stream(it.url, "x-request-id: waits\r\n")
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_waiting") == 1)
        waits.close()
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_waiting") == 0)
        told = timeline(it.url, "waits")
        assert (told["finish_reason"], told["admitted"]) == ("cancelled", None)
        runs.close()


def test_all_choices_end_with_their_client():
    with served(runner="paced:ttft=5ms,itl=5ms") as it:
        connection = open_stream(it.url, "x-request-id: many\r\n", max_tokens=20_000, n=4)
        connection.recv(4096)
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_running") == 4)
        connection.close()
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_running") == 0)
        ends = [timeline(it.url, name)["finish_reason"] for name in ("many", "many%231", "many%232", "many%233")]
        assert ends == ["cancelled"] * 4


def test_a_client_that_does_not_read_is_given_up_and_others_are_not_hurt():
    with served() as it:
        host, port = it.url.removeprefix("http://").split(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(10)
        slow.connect((host, int(port)))
        body = json.dumps(chat(stream=True, max_tokens=30_000)).encode()
        lines = ("POST /v1/chat/completions HTTP/1.1", "host: x", "x-request-id: slow", f"content-length: {len(body)}")
        slow.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        other = events(ask(it.url, "/v1/chat/completions", chat(stream=True, max_tokens=3000))[2])
        assert len(other) == 3003
        assert wait_for(lambda: timeline(it.url, "slow").get("finish_reason"))
        told = timeline(it.url, "slow")
        assert told["finish_reason"] == "slow_reader"
        assert 0 < told["output_tokens"] < 30_000
        assert metric(it.url, "benchlab:kv_blocks_free") == metric(it.url, "benchlab:kv_blocks")
        raw = read_stream(slow)  # one that wakes up in time is told why
        assert b'"slow_reader"' in raw
        assert b"[DONE]" not in raw
        slow.close()


def test_times_of_a_read_answer_end_with_its_release():
    with served(runner="paced:ttft=2ms,itl=2ms") as it:
        ask(it.url, "/v1/chat/completions", chat(stream=True), {"x-request-id": "timed", "x-tenant": "t"})
        told = timeline(it.url, "timed")
        assert told["released"] >= told["token_written"][-1] >= told["token_ready"][-1]
        assert told["blocks_freed"] <= told["released"]
        assert told["tenant"] == "t"
        stamps = [told[name] for name in ("accepted", "queued", "admitted", "prefill_start", "prefill_end")]
        assert stamps == sorted(stamps)


def test_an_answer_that_outlasts_the_drain_is_told_so():
    with served("--drain", "200ms", runner="paced:ttft=5ms,itl=5ms") as it:
        connection = open_stream(it.url, max_tokens=20_000)
        connection.recv(4096)
        it.send_signal(signal.SIGTERM)
        raw = read_stream(connection)
        assert b"going down" in raw
        assert b"[DONE]" not in raw
        connection.close()
        assert it.wait(timeout=10) == 0


def test_a_second_signal_ends_the_process_at_once():
    with served(runner="paced:ttft=5ms,itl=5ms") as it:
        connection = open_stream(it.url, max_tokens=20_000)
        connection.recv(4096)
        it.send_signal(signal.SIGTERM)
        assert wait_for(lambda: ask(it.url, "/ready")[0] == 503, 2.0)
        it.send_signal(signal.SIGTERM)
        assert it.wait(timeout=5) == -signal.SIGTERM
        connection.close()


async def _one(host, port, number, rng):
    """A stream that is read to its end, or left after some reads; True: it was read whole and is right."""
    await asyncio.sleep(rng.random() * 0.5)
    reader, writer = await asyncio.open_connection(host, port)
    leaves_after = rng.choice((0, 1, 3, 10, None, None))
    n = rng.choice((1, 1, 1, 2, 3))
    path = rng.choice(("chat/completions", "messages")) if n == 1 else "chat/completions"
    body = json.dumps(chat(stream=True, max_tokens=rng.randrange(1, 60), seed=number, n=n)).encode()
    head = f"POST /v1/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    reads, raw = 0, b""
    while leaves_after is None or reads < leaves_after:
        chunk = await reader.read(65536)
        if not chunk:
            break
        reads, raw = reads + 1, raw + chunk
    if leaves_after is not None:
        writer.transport.abort()
        return None
    writer.close()
    return b"[DONE]" in raw or b"message_stop" in raw


def test_500_streams_with_random_disconnects_leave_the_pool_whole():
    flags = ("--max-seqs", "64", "--queue-limit", "1500", "--max-batched-tokens", "1024", "--kv-blocks", "80")
    with served(*flags, runner="paced:ttft=5ms,itl=5ms") as it:
        host, port = it.url.removeprefix("http://").split(":")
        rng = random.Random(7)

        async def crowd():
            streams = [_one(host, int(port), number, random.Random(rng.random())) for number in range(500)]
            return await asyncio.gather(*streams)

        ends = asyncio.run(asyncio.wait_for(crowd(), 60))
        assert ends.count(True) > 100
        assert False not in ends
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_running") == 0)
        assert wait_for(lambda: metric(it.url, "benchlab:num_requests_waiting") == 0)
        assert metric(it.url, "benchlab:kv_blocks_free") == metric(it.url, "benchlab:kv_blocks") == 80
        assert metric(it.url, "benchlab:num_preemptions_total") > 0
        time.sleep(1.2)  # idle for a second, the engine audits its pool; one that is not whole ends it
        assert ask(it.url, "/health")[0] == 200
        assert ask(it.url, "/v1/chat/completions", chat())[0] == 200


def test_a_served_journal_replays_step_for_step(tmp_path, capsys):
    file = tmp_path / "journal.jsonl"
    with served("--journal", str(file), "--speculate", "ngram:2", "--kv-blocks", "40", runner="paced:null") as it:
        gone = open_stream(it.url, max_tokens=300)
        gone.recv(4096)
        gone.close()
        for number in range(10):
            ask(it.url, "/v1/chat/completions", chat(n=1 + number % 3, max_tokens=40), {"x-tenant": str(number % 2)})
        it.send_signal(signal.SIGTERM)
        assert it.wait(timeout=10) == 0
    assert main(["replay", str(file)]) == 0
    assert "every plan as it was" in capsys.readouterr().out
    lines = file.read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if '"submit"' in line and i > 5)
    file.write_text("".join(lines[:place] + lines[place + 1 :]))
    assert main(["replay", str(file)]) in (1, 2)  # a cause is missing
    assert main(["replay", str(tmp_path / "none")]) == 2
    assert main(["serve", "--runner", "paced:null", "--journal", str(file)]) == 3  # never written over
