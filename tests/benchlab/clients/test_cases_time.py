"""Faults that users met elsewhere, kinds "timing", "counting tokens" and "metric definition", as far as records go.

The stub's steps are the truth; a busy machine may be late, never early, so bounds are generous above and tight below.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import AsyncExitStack

import pytest

from benchlab.clients.connection import Connection
from benchlab.clients.endpoint import ignored_proxies, parse_endpoint
from benchlab.clients.stamps import Stamps
from benchlab.clock import SystemClock
from benchlab.records.event import VISIBLE, Kind, Outcome
from benchlab.workload.item import WorkloadItem
from tests.support.stub_server import DELTA, DONE, FIN, USE, C, Request, Script, StubServer, event, sse, usage
from tests.support.talk import Seen, ask, client_for, run, send

TRANSPORTS = ("native", "aiohttp")
pytestmark = pytest.mark.usefixtures("transport")

SLOP = 0.25
"""A busy machine may be so much late."""


def close(value: float, at: float) -> bool:
    return at - 0.004 <= value <= at + SLOP


def tokens_of(seen: Seen) -> list[int | None]:
    pairs = zip(seen.record.chunk_tokens, seen.record.chunk_kind, strict=True)
    return [tokens for tokens, kind in pairs if kind in VISIBLE]


@pytest.mark.parametrize("framing", ["one HTTP chunk", "a chunk an event"])
def test_C11_events_that_shared_a_read_are_marked(framing: str) -> None:
    events = [C(letter) for letter in "abcde"]
    if framing == "one HTTP chunk":
        script = sse((0.3, b"".join(events)), (0.35, FIN() + USE(3, 5) + DONE))
    else:  # a proxy that joined five HTTP chunks into one write
        joined = b"".join(b"%x\r\n%s\r\n" % (len(data), data) for data in events)
        script = sse((0.35, FIN() + USE(3, 5) + DONE))
        head, tail = script.steps
        script = type(script)((head, type(head)(0.3, joined), tail))

    async def go() -> tuple[Seen, int, int]:
        async with StubServer(script) as server, client_for(server.url) as client:
            return await send(client), client.counts.events, client.counts.merged_events

    seen, events_seen, merged = run(go())
    assert seen.record.outcome is Outcome.OK
    assert len(seen.visible) == 5 and close(seen.visible[0], 0.3)
    assert len(set(seen.visible)) == 1
    # all but the last may have come at any time since the read before, which was the head of the answer
    assert all(slack > 0.2e9 for slack in seen.visible_slack_ns[:-1])
    assert seen.visible_slack_ns[-1] == 0
    assert (events_seen, merged) == (8, 4 + 2)


def test_event_followed_by_a_part_of_the_next_is_marked_too() -> None:
    second = C("b")
    seen = ask(sse((0.1, C("a") + second[:20]), (0.2, second[20:]), (0.25, FIN() + DONE)))
    assert [slack > 0.05e9 for slack in seen.visible_slack_ns] == [True, False]


class SteppingClock(SystemClock):
    """A wall clock that is stepped while a request is under way; the monotonic one goes on."""

    step_ns = 0

    def wall_ns(self) -> int:
        return super().wall_ns() + self.step_ns


@pytest.mark.parametrize("seconds", [-2, 2])
@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.usefixtures("native_only")
def test_C13_a_step_of_the_wall_clock_moves_no_duration(kernel: bool, seconds: int) -> None:
    clock = SteppingClock()

    def step_then_answer(request: Request) -> Script:
        clock.step_ns = seconds * 10**9
        stamps[0].track()
        return sse((0.1, C("a")), (0.2, FIN() + USE(2, 1) + DONE))

    stamps: list[Stamps] = []

    async def go() -> Seen:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(StubServer(step_then_answer))
            client = await stack.enter_async_context(client_for(server.url, clock=clock, kernel=kernel))
            stamps.append(client.stamps)
            return await send(client)

    seen = run(go())
    assert len(stamps[0].steps) == 1
    assert close(seen.visible[0], 0.1)
    assert close(seen.end, 0.2)
    assert seen.record.stamp_source == "callback"  # no stamp that was carried over the step is believed
    assert "wall_clock" in seen.record.unknown


@pytest.mark.usefixtures("native_only")
def test_only_the_records_that_a_step_touched_are_marked() -> None:
    """Nobody tracks the clock here: the end of a request notices what happened while it was under way."""
    clock = SteppingClock()

    def step_at_the_second(request: Request) -> Script:
        if request.number == 1:
            clock.step_ns = 3 * 10**6  # too little to be told from a stamp by itself
        return sse((0.02, C("a")), (0.05, FIN() + USE(2, 1) + DONE))

    async def go() -> list[bool]:
        async with StubServer(step_at_the_second) as server, client_for(server.url, clock=clock) as client:
            records = [(await send(client)).record for _ in range(4)]
            return ["wall_clock" in record.unknown for record in records]

    assert run(go()) == [False, True, False, False]


@pytest.mark.usefixtures("native_only")
def test_kernel_stamps_are_used_and_named() -> None:
    seen = ask(sse((0.02, C("a")), (0.04, FIN() + DONE)))
    assert seen.record.stamp_source == ("kernel" if sys.platform == "linux" else "callback")
    assert ask(sse((0.02, C("a")), (0.04, FIN() + DONE)), kernel=False).record.stamp_source == "callback"


def test_C16_environment_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with StubServer(sse((0.0, DONE))) as proxy, StubServer(sse((0.0, C("a") + FIN() + DONE))) as server:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            async with client_for(server.url) as client:
                seen = await send(client)
            assert seen.record.outcome is Outcome.OK
            assert (proxy.accepts, server.accepts) == (0, 1)
            assert {"HTTP_PROXY", "http_proxy", "ALL_PROXY"} <= set(ignored_proxies())
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.setenv("NO_PROXY", "here.example")
            assert "HTTP_PROXY" in ignored_proxies(parse_endpoint(server.url))
            assert ignored_proxies(parse_endpoint("http://here.example")) == []
            assert "HTTP_PROXY" not in ignored_proxies(parse_endpoint("https://there.example"))

    run(go())


def test_C17_the_end_is_not_the_last_token() -> None:
    seen = ask(sse((0.1, C("a")), (0.2, C("b")), (0.3, C("c")), (0.6, FIN() + USE(5, 3) + DONE)))
    assert len(seen.visible) == 3
    assert close(seen.visible[-1], 0.3)
    assert close(seen.end, 0.6)
    assert seen.end - seen.visible[-1] > 0.05


def test_C29_role_and_finish_are_no_tokens() -> None:
    role = DELTA({"role": "assistant", "content": None})
    steps = [(0.02, role), (0.30, C("Blue")), (0.34, C(" sky")), (0.39, FIN()), (0.391, USE(8, 2) + DONE)]
    seen = ask(sse(*steps))
    assert seen.kinds == [Kind.ROLE, Kind.CONTENT, Kind.CONTENT, Kind.FINISH, Kind.USAGE, Kind.DONE]
    assert close(seen.visible[0], 0.30)
    assert (len(seen.visible), seen.record.output_tokens) == (2, 2)


def test_C31_tool_calls_are_output() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "lookup", "arguments": ""}}
    first = DELTA({"tool_calls": [call]})
    second = DELTA({"tool_calls": [{"index": 0, "function": {"arguments": '{"k":1}'}}]})
    seen = ask(sse((0.1, first), (0.2, second), (0.3, FIN("tool_calls") + USE(20, 14) + DONE)))
    record = seen.record
    assert (record.outcome, record.finish_reason, record.output_tokens) == (Outcome.OK, "tool_calls", 14)
    assert seen.kinds[:2] == [Kind.TOOL_CALL, Kind.TOOL_CALL]
    assert close(seen.visible[0], 0.1)
    assert (seen.text, seen.all_text) == ("", 'lookup{"k":1}')


def test_C32_C34_usage_on_every_event_tells_tokens_a_chunk() -> None:
    counts = [1, 5, 8, 12]
    steps = [(0.05 + 0.03 * i, C(f"w{i}", usage=usage(4, n))) for i, n in enumerate(counts)]
    seen = ask(sse(*steps, (0.2, FIN() + DONE)))
    assert tokens_of(seen) == [1, 4, 3, 4]
    assert seen.record.output_tokens == sum(n or 0 for n in tokens_of(seen)) == 12


def test_C32_without_counts_no_chunk_claims_any() -> None:
    steps = [(0.05, C("a")), (0.1, C("b", usage=usage(4, 9)))]
    seen = ask(sse(*steps, (0.2, FIN() + DONE)))
    assert tokens_of(seen) == [None, None]
    assert seen.record.output_tokens == 9


def test_C40_reasoning_is_not_added_to_a_total_that_holds_it() -> None:
    document = usage(10, 120) | {"completion_tokens_details": {"reasoning_tokens": 100}}
    thought = DELTA({"reasoning_content": "hm"})
    seen = ask(sse((0.0, thought), (0.02, C("yes")), (0.03, FIN() + event({"choices": [], "usage": document}) + DONE)))
    assert (seen.record.output_tokens, seen.record.reasoning_tokens) == (120, 100)
    assert seen.kinds[:2] == [Kind.REASONING, Kind.CONTENT]
    assert (seen.text, seen.all_text) == ("yes", "hmyes")


class TestC44:
    """The number of output tokens is what came, never what was asked for."""

    item = WorkloadItem(id="i1", prompt="x", output_tokens=500)

    def test_counted(self) -> None:
        steps = [(0.1 + 0.004 * i, C("t")) for i in range(51)]
        seen = ask(sse(*steps, (0.4, FIN() + USE(12, 51) + DONE)), item=self.item)
        assert (seen.record.output_tokens, seen.record.tokens_source, len(seen.visible)) == (51, "usage", 51)

    def test_without_usage_it_is_an_estimate(self) -> None:
        record = ask(sse((0.0, C("a")), (0.02, C("b") + FIN() + DONE)), item=self.item).record
        assert (record.output_tokens, record.tokens_source) == (2, "chunks")
        assert "output_tokens" in record.unknown

    def test_failed_before_the_first_token(self) -> None:
        record = ask(sse((0.0, b""), then="close", terminator=False), item=self.item).record
        assert (record.outcome, record.output_tokens) == (Outcome.INCOMPLETE, None)


def test_C46_times_of_chunks_do_not_begin_at_the_send() -> None:
    seen = ask(sse((0.4, C("a")), (0.45, C("b")), (0.50, C("c") + USE(3, 3)), (0.51, FIN() + DONE)))
    gaps = [b - a for a, b in itertools.pairwise(seen.visible)]
    assert len(gaps) == 2
    assert all(0.0 <= gap < 0.3 for gap in gaps)
    assert close(seen.visible[0], 0.4)


def test_C49_all_text_in_one_event() -> None:
    seen = ask(sse((0.1, C("one two three four five") + FIN() + USE(6, 5) + DONE)))
    assert len(seen.visible) == 1
    assert (seen.record.output_tokens, seen.record.outcome) == (5, Outcome.OK)
    assert seen.visible_slack_ns[0] > 0.05e9  # it shared its read with the events after it


def test_a_stamp_of_the_future_or_of_the_past_is_not_believed() -> None:
    """The rule by itself, at its edges."""
    connection = Connection.__new__(Connection)
    connection._clock = SystemClock()
    now = connection._clock.monotonic_ns()
    for stamp, believed in (
        (now, True),
        (now - 10**9, True),
        (now + 10**9, False),
        (now - 10**10, False),
        (None, False),
    ):
        connection._stamp_ns = now - 5 * 10**9
        connection._take_stamp(stamp)
        assert connection._kernel is believed
        assert now - 5 * 10**9 <= connection._stamp_ns <= connection._clock.monotonic_ns()
