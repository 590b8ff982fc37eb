"""Before any load: does the endpoint answer, what does it serve, and does it stream? All control calls are here.

One short request goes through the same client that the load will use: what it meets (no such model, no permission, a
page of HTML, an answer that is not streamed) is told as one error instead of a thousand failed records.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchlab.clients.apis import key_hint, make_dialect
from benchlab.clients.base import Timeouts
from benchlab.clients.dialect import Dialect
from benchlab.clients.endpoint import Endpoint
from benchlab.clients.stamps import Stamps
from benchlab.clients.transports import make_client
from benchlab.clock import SystemClock
from benchlab.errors import TargetError, UsageError
from benchlab.records.event import Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.recorder import Recorder
from benchlab.workload.item import WorkloadItem

_CONTROL_S = 10.0
_PROBE = WorkloadItem(id="probe", prompt="Say yes.", output_tokens=4)
_REFUSED = {401: "the API key is missing or wrong", 403: "this key may not do that"}


@dataclass(frozen=True, slots=True)
class Served:
    """What an endpoint says of itself. models: None where it has no list; page: HTML came instead; asked: the URL."""

    models: list[str] | None
    server: str | None
    page: bool = False
    asked: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        return {"models": self.models, "server": self.server}


def _names(document: Any, api: str) -> list[str]:
    """The models of an endpoint's answer. Raises ValueError, KeyError or TypeError where it is no such answer."""
    if api == "tgi":
        return [str(document["model_id"])]
    if api == "triton":
        return [str(row["name"]) for row in document if row.get("state", "READY") == "READY"]
    return [str(row["id"]) for row in document["data"]]


_LISTS = {"tgi": ("GET", "/info"), "triton": ("POST", "/v2/repository/index")}


def ask_models(endpoint: Endpoint, headers: Mapping[str, str], api: str = "chat") -> Served:
    """What the endpoint serves: GET /v1/models, or what the API has instead.

    Raises TargetError when nothing that could be an endpoint answers.
    """
    import httpx

    method, path = _LISTS.get(api, ("GET", "/v1/models"))
    url = endpoint.base + path
    content = b"{}" if method == "POST" else None
    try:
        # the environment's proxies are left out here as they are for the load
        with httpx.Client(trust_env=False, timeout=_CONTROL_S) as client:
            sent = {**make_dialect(api, "").headers, **headers, "accept": "application/json"}
            answer = client.request(method, url, headers=sent, content=content)
    except (httpx.LocalProtocolError, UnicodeEncodeError):
        # their words hold the header's value, which may be a secret
        raise UsageError("a header cannot be sent", where="-H", hint="write -H 'Name: value', in ASCII") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise TargetError(
            f"cannot be reached: {error or type(error).__name__}",
            where=url,
            hint="is the server running, and is --url right? `curl` the same address",
        ) from error
    server = answer.headers.get("server")
    if answer.status_code in _REFUSED:
        raise TargetError(f"HTTP {answer.status_code}: {_REFUSED[answer.status_code]}", where=url, hint=key_hint(api))
    page = answer.text.lstrip()[:1] == "<"
    if answer.status_code != httpx.codes.OK:
        return Served(None, server, page, asked=url)
    try:
        return Served(_names(answer.json(), api), server, asked=url)
    except (ValueError, KeyError, TypeError, AttributeError):
        if page:
            raise TargetError(
                "the server answered HTML, not JSON: this is a web page, not an API", where=url, hint="check --url"
            ) from None
        return Served(None, server, asked=url)


def choose_model(asked: str | None, served: Served, endpoint: Endpoint) -> str:
    """The model to ask for: the one given, else the only (or first) one served. Raises UsageError, TargetError."""
    if asked:
        return asked
    if not served.models and served.page:
        hint = "check --url; if it is an API that does not list its models, give -m/--model NAME"
        raise TargetError("the server answered HTML, not JSON", where=served.asked or endpoint.base, hint=hint)
    if not served.models:
        raise UsageError(
            "the endpoint does not list its models", where=served.asked or endpoint.base, hint="give -m/--model NAME"
        )
    return served.models[0]


def preflight(
    endpoint: Endpoint,
    dialect: Dialect,
    *,
    headers: Mapping[str, str],
    timeouts: Timeouts,
    served: Served,
    api: str = "chat",
    transport: str = "auto",
) -> Record:
    """One short request through the real client. Raises TargetError unless it is answered by a stream, or refused
    in a way (429, 503) that another moment may not see.
    """
    recorder = Recorder(Identity("preflight", -1, "probe", 0))

    async def ask() -> None:
        clock = SystemClock()
        stamps = Stamps(clock, kernel=sys.platform == "linux")
        client = make_client(
            transport, endpoint, dialect, clock=clock, headers=headers, timeouts=timeouts, stamps=stamps
        )
        try:
            await client.stream(_PROBE, recorder)
        finally:
            await client.close()

    asyncio.run(ask())
    record = recorder.record(recorder.sent_ns or 0)
    if record.outcome is Outcome.OK or record.error_kind in ("limited", "shed"):
        return record
    where = endpoint.base + dialect.path
    hint = "try the same request with `curl -N`"
    if record.http_status == 404:
        listed = f"; it serves {', '.join(served.models[:5])}" if served.models else ""
        hint = f"check --model '{dialect.model}' and --api{listed}"
    elif record.http_status in _REFUSED:
        hint = key_hint(api)
    elif record.error_kind == "not_streamed":
        hint = 'benchlab measures streams; does the server know "stream": true?'
    elif served.models and dialect.model not in served.models:
        hint = f"it serves {', '.join(served.models[:5])}; check --model '{dialect.model}'"
    raise TargetError(f"the first request failed: {record.error or record.outcome}", where=where, hint=hint)
