"""Fields of a JSON body, read one by one and checked.

The one idea: whatever stands in a body, reading a field gives a value of the right kind and range or a 400 that names
the field and what was expected. It must not know which wire form asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Body = Mapping[str, Any]
_SHOWN = 80  # characters of a wrong value that an error repeats


class WireError(Exception):
    """An answer that is an error. status: HTTP. retry_after: seconds, where trying again may help.

    kind, param, code: the OpenAI form's words; other forms name the kind by the status.
    """

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after = retry_after


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object, or WireError 400."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WireError(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise WireError(400, "the body must be a JSON object")
    return body


def shown(value: Any) -> str:
    """A wrong value as an error repeats it: JSON, cut short."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def flag(body: Body, name: str, default: bool = False) -> bool:
    """true or false; null is the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise WireError(400, f"{name} must be true or false, not {shown(value)}", param=name)
    return value


def number(body: Body, name: str, default: float, low: float, high: float) -> float:
    """A number from low to high; null is the default."""
    value = body.get(name)
    if value is None:
        return default
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if not right or not low <= value <= high:
        raise WireError(400, f"{name} must be a number from {low:g} to {high:g}, not {shown(value)}", param=name)
    return float(value)


def integer(body: Body, name: str, default: int, low: int, high: int = 2**31 - 1) -> int:
    """A whole number from low to high; null is the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        limit = f"of at least {low}" if high == 2**31 - 1 else f"from {low} to {high}"
        raise WireError(400, f"{name} must be an integer {limit}, not {shown(value)}", param=name)
    return value


def text(body: Body, name: str, default: str = "") -> str:
    """A text; null is the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise WireError(400, f"{name} must be a text, not {shown(value)}", param=name)
    return value


def table(body: Body, name: str) -> Body:
    """An object; null is an empty one."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(400, f"{name} must be an object, not {shown(value)}", param=name)
    return value


def texts(body: Body, name: str, most: int) -> tuple[str, ...]:
    """A text, or a list of at most `most` texts, none empty; null is none."""
    value = body.get(name)
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or len(listed) > most or not all(isinstance(e, str) and e for e in listed):
        raise WireError(400, f"{name} must be a text or a list of at most {most} texts, none empty", param=name)
    return tuple(listed)


def logit_bias(body: Body, name: str = "logit_bias") -> tuple[tuple[int, float], ...]:
    """Token ids as text, each with a number from -100 to 100."""
    out: list[tuple[int, float]] = []
    for key, value in table(body, name).items():
        right = isinstance(value, int | float) and not isinstance(value, bool) and -100 <= value <= 100
        if not (key.isascii() and key.isdecimal() and len(key) <= 10) or not right:
            raise WireError(
                400,
                f"{name} must map token ids, written as text, to numbers from -100 to 100, not {shown({key: value})}",
                param=name,
            )
        out.append((int(key), float(value)))
    return tuple(out)


def refuse_unsupported(body: Body, neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """WireError 400 for a field that asks for what this engine does not do. neutral: values that ask for nothing."""
    for name, values in neutral.items():
        if body.get(name) is not None and body[name] not in values:
            raise WireError(400, f"{name}={shown(body[name])} is not supported by this engine", param=name)
