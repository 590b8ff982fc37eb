"""The pages that tell of the server: models, health, metrics, times, journal.

The one idea: reading them changes nothing, and a long page is sent in slices, so that streams beside it keep their
pace. It must not know how answers are made.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from benchlab_engine.serve.answer import Desk
from benchlab_engine.serve.fields import WireError

_SLICE = 50  # rows of a long page that are made in one turn of the event loop


class Pages:
    """GET routes over one mailbox. draining: set on the way down."""

    def __init__(self, desk: Desk, max_model_len: int) -> None:
        self._desk = desk
        self._max_model_len = max_model_len
        self._started = int(time.time())
        self.draining = False

    def routes(self, expect: Callable[[web.Request], Awaitable[None]]) -> list[web.RouteDef]:
        """The routes. expect: what answers the Expect header."""
        pages = {
            "/v1/models": self._models,
            "/v1/models/{model:.+}": self._model,
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/timeline/{request_id}": self._timeline_of,
            "/timeline": self._timeline,
            "/journal": self._journal,
        }
        return [web.get(path, page, expect_handler=expect) for path, page in pages.items()]

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._desk.model, "object": "model", "created": self._started, "owned_by": "benchlab",
            "max_model_len": self._max_model_len,
        }  # fmt: skip

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._card()]})

    async def _model(self, request: web.Request) -> web.Response:
        check_model(request.match_info["model"], self._desk.model)
        return web.json_response(self._card())

    async def _health(self, _: web.Request) -> web.Response:
        mailbox = self._desk.mailbox
        if mailbox.broken:
            return web.json_response({"status": "failed", "reason": mailbox.failure}, status=500)
        return web.json_response({"status": "live"})

    async def _ready(self, _: web.Request) -> web.Response:
        status = "failed" if self._desk.mailbox.broken else "draining" if self.draining else "ready"
        return web.json_response({"status": status}, status=200 if status == "ready" else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        mailbox = self._desk.mailbox
        pending = max(0, len(mailbox.live) - len(mailbox.engine.scheduler.requests))
        page = self._desk.gauges.render(not self.draining and not mailbox.broken, pending)
        return web.Response(body=page.encode(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _timeline_of(self, request: web.Request) -> web.Response:
        name, mailbox = request.match_info["request_id"], self._desk.mailbox
        ticket = mailbox.live.get(name) or mailbox.past.get(name)
        if ticket is None:
            raise WireError(404, f"no request {name!r} is known", "not_found_error")
        return web.json_response(ticket.timeline())

    async def _timeline(self, request: web.Request) -> web.StreamResponse:
        since, mailbox = _whole_number(request, "since"), self._desk.mailbox
        tickets = [ticket for ticket in mailbox.past.values() if (ticket.released or 0) >= since]
        head = {"now_ns": mailbox.engine.clock(), "wall_ns": time.time_ns()}
        return await _long_page(request, head, "requests", (ticket.timeline() for ticket in tickets))

    async def _journal(self, request: web.Request) -> web.StreamResponse:
        since, journal = _whole_number(request, "since"), self._desk.mailbox.engine.journal
        rows = [row for row in list(journal.rows) if row.number > since]
        names = [field.name for field in dataclasses.fields(rows[0])] if rows else []
        return await _long_page(request, {}, "steps", ({name: getattr(row, name) for name in names} for row in rows))


def check_model(name: str, served: str) -> None:
    """WireError 404 unless the model is the one served, or left open."""
    if name and name != served:
        raise WireError(
            404, f"the model {name!r} is not served here; this server has {served!r}", "not_found_error", "model",
            "model_not_found",
        )  # fmt: skip


async def _long_page(
    request: web.Request, head: Mapping[str, Any], name: str, rows: Iterable[Mapping[str, Any]]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json"})
    await response.prepare(request)
    start = "".join(f"{json.dumps(key)}:{json.dumps(value)}," for key, value in head.items())
    parts = ["{" + start + json.dumps(name) + ":["]
    for number, row in enumerate(rows):
        parts.append(("," if number else "") + json.dumps(row, separators=(",", ":")))
        if len(parts) >= _SLICE:
            await response.write("".join(parts).encode())
            await asyncio.sleep(0)
            parts = []
    await response.write_eof(("".join(parts) + "]}").encode())
    return response


def _whole_number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise WireError(400, f"{name} must be a whole number, not {text[:80]!r}", param=name)
    return int(text)
