"""The dialects by the names that `--api` gives them.

The one idea: one place knows which APIs there are, what each is called and which key it takes; nothing else asks for
a dialect by its class. It must not know transports.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchlab.clients.anthropic import Anthropic
from benchlab.clients.dialect import Dialect
from benchlab.clients.openai import OpenAI
from benchlab.clients.tgi import Tgi
from benchlab.clients.triton import Triton

_MAKERS: dict[str, Callable[[str, dict[str, Any] | None], Dialect]] = {
    "chat": partial(OpenAI, "chat"),
    "completions": partial(OpenAI, "completions"),
    "messages": Anthropic,
    "tgi": Tgi,
    "triton": Triton,
}
_KEYS = {"chat": "OPENAI_API_KEY", "completions": "OPENAI_API_KEY", "messages": "ANTHROPIC_API_KEY"}
APIS = tuple(_MAKERS)


def make_dialect(api: str, model: str, extra: dict[str, Any] | None = None) -> Dialect:
    """The dialect called `api`, one of `APIS`. Raises ValueError for any other name."""
    if api not in _MAKERS:
        raise ValueError(f"no API is called '{api}'")
    return _MAKERS[api](model, extra)


def key_variable(api: str) -> str | None:
    """The environment variable that holds the key of this API; a key goes to no other API than its own."""
    return _KEYS.get(api)


def key_headers(api: str, given: Mapping[str, str]) -> dict[str, str]:
    """The header that carries the key of the environment; none where there is no key or the user gave a header."""
    variable = key_variable(api)
    key = os.environ.get(variable) if variable else None
    names = {name.lower() for name in given}
    if not key or "authorization" in names or "x-api-key" in names:
        return {}
    return {"x-api-key": key} if api == "messages" else {"Authorization": f"Bearer {key}"}


def key_hint(api: str) -> str:
    """What to do where a key is missing or refused."""
    variable = key_variable(api)
    header = "'x-api-key: ...'" if api == "messages" else "'Authorization: Bearer ...'"
    return f"set {variable}, or give -H {header}" if variable else f"give -H {header}"
