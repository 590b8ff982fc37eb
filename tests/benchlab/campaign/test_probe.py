"""What an endpoint serves, asked the way its API tells it; and what is said where it does not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from benchlab.campaign.probe import Served, ask_models, choose_model
from benchlab.clients.endpoint import parse_endpoint
from benchlab.errors import TargetError, UsageError
from tests.support.stub_server import Request, Script, StubServer, answer


def asked(api: str, document: Any, status: str = "200 OK") -> tuple[Served, Request]:
    async def go() -> tuple[Served, Request]:
        script: Script = answer(status, json.dumps(document).encode(), then="close")
        async with StubServer(script) as server:
            found = await asyncio.to_thread(ask_models, parse_endpoint(server.url), {"A": "b"}, api)
            return found, server.requests[0]

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("api", "line", "document", "models"),
    [
        ("chat", "GET /v1/models", {"object": "list", "data": [{"id": "m"}, {"id": "n"}]}, ["m", "n"]),
        ("messages", "GET /v1/models", {"data": [{"type": "model", "id": "m"}], "has_more": False}, ["m"]),
        ("tgi", "GET /info", {"model_id": "org/m", "version": "3"}, ["org/m"]),
        (
            "triton",
            "POST /v2/repository/index",
            [{"name": "m", "version": "1", "state": "READY"}, {"name": "n", "state": "UNAVAILABLE"}],
            ["m"],
        ),
    ],
)
def test_each_api_has_its_own_way(api: str, line: str, document: Any, models: list[str]) -> None:
    served, request = asked(api, document)
    head = request.head.decode().lower()
    assert request.head.decode().startswith(line + " HTTP/1.1\r\n")
    assert served.models == models
    assert ("anthropic-version: " in head) == (api == "messages")
    assert "a: b" in head


@pytest.mark.parametrize("api", ["chat", "messages", "tgi", "triton"])
@pytest.mark.parametrize("document", [{}, [], None, 5, {"data": None}, [None], {"data": [5]}])
def test_no_list_is_no_traceback(api: str, document: Any) -> None:
    served, _ = asked(api, document)
    assert not served.models
    with pytest.raises(UsageError, match="does not list its models") as caught:
        choose_model(None, served, parse_endpoint("http://127.0.0.1:1"))
    assert caught.value.where == served.asked


@pytest.mark.parametrize(
    ("api", "words"), [("chat", "OPENAI_API_KEY"), ("messages", "ANTHROPIC_API_KEY"), ("tgi", "-H")]
)
def test_a_refusal_names_the_key_of_its_api(api: str, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        asked(api, {}, "401 Unauthorized")
    assert words in (caught.value.hint or "")
