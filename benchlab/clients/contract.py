"""The wire contract of an endpoint, checked with the very client that sends the load.

The one idea: whatever a measurement relies on is asked for once, and what was seen is said: a FAIL names a habit of
the endpoint that a run through it would suffer from. Requests are few and short; nothing is measured under load. It
must not know metrics, and judges no speed: times without load are only told.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from benchlab.clients.base import Timeouts
from benchlab.clients.contract_shape import (
    Check,
    State,
    limit_kept,
    stop_text,
    stopped,
    stream_shape,
    usage_agrees,
)
from benchlab.clients.dialect import Dialect, message_of
from benchlab.clients.endpoint import Endpoint
from benchlab.clients.native import NativeClient
from benchlab.clients.sse import Event
from benchlab.clock import SystemClock
from benchlab.records.event import Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.recorder import Recorder
from benchlab.units import NS_PER_MS, NS_PER_S, format_number
from benchlab.workload.item import WorkloadItem

TOKENS = 12
_LIMITS = Timeouts(5 * NS_PER_S, 20 * NS_PER_S, 10 * NS_PER_S, 30 * NS_PER_S)
_CONTROL_S = 10.0
_LONG = 400
_KEY_HEADERS = ("authorization", "x-api-key")
_WRONG_KEY = "sk-benchlab-doctor-wrong"

Call = Callable[[], Awaitable[Check]]


class _Tee:
    """A dialect that keeps every event beside what the real one makes of it."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.events: dict[str, list[Event]] = {}
        self.first: dict[str, asyncio.Event] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def conversation(self, recorder: Recorder, item: WorkloadItem) -> _Heard:
        name = recorder.identity.request_id
        kept, first = self.events.setdefault(name, []), self.first.setdefault(name, asyncio.Event())
        return _Heard(self._dialect.conversation(recorder, item), recorder, kept, first)


class _Heard:
    """A conversation that is listened to."""

    def __init__(self, inner: Any, recorder: Recorder, kept: list[Event], first: asyncio.Event) -> None:
        self._inner, self._recorder, self._kept, self._first = inner, recorder, kept, first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def event(self, name: bytes, data: bytes, ns: int, slack_ns: int) -> None:
        self._kept.append((name, data))
        self._inner.event(name, data, ns, slack_ns)
        if self._recorder.visible:
            self._first.set()


class Contract:
    """The checks of one API at one endpoint. `asked` says that this API was named by the user: then not to serve it
    is a failure, and else a reason to skip it. Use `run`, once, inside a loop."""

    def __init__(
        self,
        endpoint: Endpoint,
        api: str,
        dialect: Dialect,
        *,
        headers: Mapping[str, str],
        asked: bool = True,
        timeouts: Timeouts = _LIMITS,
    ) -> None:
        self._endpoint, self._api, self._headers, self._asked = endpoint, api, dict(headers), asked
        self._timeouts = timeouts
        self._tee = _Tee(dialect)
        self._number = 0
        self._text = ""
        self._item = WorkloadItem(
            id="contract", prompt="Count from one to twenty.", output_tokens=TOKENS, sampling={"temperature": 0}
        )

    async def run(self) -> list[Check]:
        """Every check, in order. Raises BenchlabError only for what the user gave (a header that cannot be sent)."""
        self._client = self._new_client()
        try:
            first = await self._stream()
            if first.state != "PASS":
                return [first]
            checks = [first, usage_agrees(self._api, self._record)]
            steps: list[Call] = [
                self._max_tokens, self._stop, self._bad_field, self._unknown_model, self._wrong_key, self._cancel,
                self._keep_alive, self._concurrency, self._first_byte, self._token_count,
            ]  # fmt: skip
            return checks + [await self._guarded(step) for step in steps]
        finally:
            await self._client.close()

    async def _guarded(self, step: Call) -> Check:
        import httpx

        try:
            return await step()
        except (httpx.HTTPError, OSError) as error:
            return self._check(step.__name__.removeprefix("_"), "FAIL", f"no answer: {error or type(error).__name__}")

    def _check(self, name: str, state: State, seen: str) -> Check:
        return Check(self._api, name, state, seen)

    # -- asking

    def _new_client(self) -> NativeClient:
        dialect = cast(Dialect, self._tee)
        return NativeClient(
            self._endpoint, dialect, clock=SystemClock(), headers=self._headers, timeouts=self._timeouts
        )

    def _recorder(self) -> Recorder:
        self._number += 1
        return Recorder(Identity(f"doctor-{self._api}-{self._number}", -1, "contract", 0), keep_text=True)

    async def _ask(self, item: WorkloadItem, client: NativeClient | None = None) -> tuple[Record, str]:
        """One request through the client of the load: its record and its text."""
        recorder = self._recorder()
        await (client or self._client).stream(item, recorder)
        return recorder.record(0), recorder.all_text()

    async def _post(self, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """A request that is no measurement: status and body."""
        return await self._control("POST", self._tee.path, body, headers)

    async def _control(
        self, method: str, path: str, body: dict[str, Any] | None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        import httpx

        sent = {**self._tee.headers, **(self._headers if headers is None else headers)}
        async with httpx.AsyncClient(trust_env=False, timeout=_CONTROL_S) as client:
            answer = await client.request(method, self._endpoint.base + path, json=body, headers=sent)
            return answer.status_code, answer.content

    def _plain_body(self) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.json.decode(self._tee.body(self._item))
        body.pop("stream_options", None)
        return body | {"stream": False}

    # -- the checks

    async def _stream(self) -> Check:
        record, self._text = await self._ask(self._item)
        self._record = record
        events = self._tee.events.get(f"doctor-{self._api}-{self._number}", [])
        check = stream_shape(self._api, events, record)
        if check.state == "FAIL" and record.http_status in (404, 405, 501) and not self._asked:
            return replace(check, state="SKIP", seen=f"not served: {check.seen}")
        return check

    async def _max_tokens(self) -> Check:
        record, _ = await self._ask(replace_tokens(self._item, 3))
        return limit_kept(self._api, record, 3)

    async def _stop(self) -> Check:
        stop = stop_text(self._text)
        if stop is None:
            return self._check("stop", "SKIP", f"{self._text[:20]!r} is short or repeats itself: no place to stop at")
        item = replace_sampling(self._item, {"temperature": 0, "stop": [stop]})
        record, text = await self._ask(item)
        return stopped(self._api, record, text, stop=stop, whole=self._text)

    async def _bad_field(self) -> Check:
        status, body = await self._post(self._plain_body() | {"max_tokens": "many"})
        seen = f"max_tokens 'many': HTTP {status}, {_short(body)}"
        return self._check("bad_field", "PASS" if status in (400, 422) else "FAIL", seen)

    async def _unknown_model(self) -> Check:
        status, body = await self._post(self._plain_body() | {"model": "no-such-model", "max_tokens": 1})
        if status < 300:
            return self._check("unknown_model", "FAIL", f"HTTP {status}: a wrong model name is answered all the same")
        words = f"HTTP {status}, {_short(body)}"
        return self._check("unknown_model", "PASS" if 400 <= status < 500 else "FAIL", words)

    async def _wrong_key(self) -> Check:
        given = [name for name in self._headers if name.lower() in _KEY_HEADERS]
        if not given:
            return self._check("wrong_key", "SKIP", "no key was given, so none is expected")
        bearer = {name: f"Bearer {_WRONG_KEY}" if name.lower() == "authorization" else _WRONG_KEY for name in given}
        status, _ = await self._post(self._plain_body() | {"max_tokens": 1}, {**self._headers, **bearer})
        good = status in (401, 403)
        words = f"HTTP {status}" + ("" if good else ": a wrong key is answered all the same")
        return self._check("wrong_key", "PASS" if good else "FAIL", words)

    async def _cancel(self) -> Check:
        """Break off after the first text; the server must answer the next one."""
        recorder = self._recorder()
        first = self._tee.first.setdefault(recorder.identity.request_id, asyncio.Event())
        task = asyncio.ensure_future(self._client.stream(replace_tokens(self._item, _LONG), recorder))
        waiter = asyncio.ensure_future(first.wait())
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        broken = not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        record, _ = await self._ask(self._item)
        when = f"broken off after {recorder.visible} events" if broken else "it had ended before it could be broken off"
        if record.outcome is not Outcome.OK:
            return self._check("cancel", "FAIL", f"{when}; the next request failed: {record.error or record.outcome}")
        return self._check("cancel", "PASS" if broken else "SKIP", f"{when}; the next request was answered")

    async def _keep_alive(self) -> Check:
        client = self._new_client()
        try:
            for _ in range(3):
                record, _ = await self._ask(replace_tokens(self._item, 2), client)
                if record.outcome is not Outcome.OK:
                    return self._check("keep_alive", "FAIL", record.error or str(record.outcome))
            if client.counts.connections == 1 and not client.counts.retries:
                return self._check("keep_alive", "PASS", "3 requests over 1 connection")
            words = f"{client.counts.connections} connections for 3 requests, {client.counts.retries} sent twice"
            return self._check("keep_alive", "SKIP", f"{words}: the server closes them, and each pays for a new one")
        finally:
            await client.close()

    async def _concurrency(self) -> Check:
        both = await asyncio.gather(*(self._ask(self._item) for _ in range(2)))
        records = [record for record, _ in both]
        failed = next((record for record in records if record.outcome is not Outcome.OK), None)
        if failed is not None:
            return self._check("concurrency", "FAIL", f"of two at once, one failed: {failed.error or failed.outcome}")
        spans = sorted((times[0], times[-1]) for record in records if (times := record.visible_ns()))
        overlap = len(spans) > 1 and spans[1][0] <= spans[0][1]
        return self._check("concurrency", "PASS", "2 at once, " + ("together" if overlap else "one after the other"))

    async def _first_byte(self) -> Check:
        heads: list[float] = []
        texts: list[float] = []
        for _ in range(3):
            record, _ = await self._ask(replace_tokens(self._item, 4))
            times = record.visible_ns()
            if record.outcome is not Outcome.OK or record.sent_ns is None or record.headers_ns is None:
                return self._check("first_byte", "FAIL", record.error or str(record.outcome))
            if not times:  # bytes of a character that is not whole yet
                return self._check("first_byte", "SKIP", "no text in an answer of 4 tokens")
            heads.append((record.headers_ns - record.sent_ns) / NS_PER_MS)
            texts.append((times[0] - record.sent_ns) / NS_PER_MS)
        words = f"without load: headers {_middle(heads)} ms, first text {_middle(texts)} ms (medians of 3)"
        return self._check("first_byte", "PASS", words)

    async def _token_count(self) -> Check:
        body = self._plain_body()
        prompt = {"prompt": body["prompt"], "content": body["prompt"], "add_special": True} if "prompt" in body else {}
        asked = prompt or {"messages": body.get("messages")}
        status, answer = await self._control("POST", "/tokenize", {"model": body.get("model"), **asked})
        count = _count(answer) if status == 200 else None
        if not count:
            return self._check("token_count", "SKIP", f"/tokenize does not tell (HTTP {status})")
        told = self._record.prompt_tokens
        seen = f"prompt: usage {told}, /tokenize {count}"
        # a begin-of-text token may be counted by one of the two
        near = told is not None and abs(told - count) <= 1
        return self._check("token_count", "PASS" if near else "FAIL", seen)


def _count(answer: bytes) -> int | None:
    try:
        document = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict):
        return None
    count, tokens = document.get("count"), document.get("tokens")
    return count if isinstance(count, int) else len(tokens) if isinstance(tokens, list) else None


def replace_tokens(item: WorkloadItem, tokens: int) -> WorkloadItem:
    """The item with another max_tokens."""
    return msgspec.structs.replace(item, output_tokens=tokens)


def replace_sampling(item: WorkloadItem, sampling: dict[str, Any]) -> WorkloadItem:
    """The item with other sampling fields."""
    return msgspec.structs.replace(item, sampling=sampling)


async def check_server(endpoint: Endpoint, *, headers: Mapping[str, str], model: str | None) -> list[Check]:
    """What all APIs share: the list of models, and how far away the server is."""
    import httpx

    checks: list[Check] = []
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=_CONTROL_S, headers=dict(headers)) as client:
            answer = await client.get(endpoint.base + "/v1/models")
            checks.append(_models(answer.status_code, answer.content, model))
            trips: list[float] = []
            for _ in range(5):
                start = time.monotonic_ns()
                await client.get(endpoint.base + "/v1/models")
                trips.append((time.monotonic_ns() - start) / NS_PER_MS)
        connects: list[float] = []
        for _ in range(3):
            start = time.monotonic_ns()
            _, writer = await asyncio.wait_for(asyncio.open_connection(endpoint.host, endpoint.port), 5)
            connects.append((time.monotonic_ns() - start) / NS_PER_MS)
            writer.close()
    except (httpx.HTTPError, OSError, TimeoutError) as error:
        return [*checks, Check("", "round_trip", "FAIL", f"no answer: {error or type(error).__name__}")]
    words = f"connect {_middle(connects)} ms, GET /v1/models {_middle(trips)} ms (medians)"
    return [*checks, Check("", "round_trip", "PASS", words)]


def _short(body: bytes) -> str:
    words = message_of(body)
    return words if len(words) <= 80 else f"{words[:79]}…"


def _middle(found: Sequence[float]) -> str:
    return format_number(statistics.median(found))


def _models(status: int, body: bytes, model: str | None) -> Check:
    if status == 404:
        return Check("", "models", "SKIP", "no /v1/models here: runs need -m/--model")
    try:
        names = [str(row["id"]) for row in msgspec.json.decode(body)["data"]]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return Check("", "models", "FAIL", f"HTTP {status}, and no list of models: {_short(body)}")
    if model is not None and model not in names:
        return Check("", "models", "FAIL", f"{model!r} is not among {', '.join(names[:5])}")
    return Check("", "models", "PASS", f"{len(names)}: {', '.join(names[:3])}")
