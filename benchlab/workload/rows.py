"""One row to one item: the checks that a type alone cannot make, each told as "field: expected ..., got ...".

It must not know files or formats: a row is a dictionary, whoever wrote it.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

import msgspec

from benchlab.workload.item import FIELDS, WorkloadItem

_AT = re.compile(r"^(.*?) - at `\$\.?([^`]*)`$")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class RowError(Exception):
    """What is wrong with one row, without its place."""


class DroppedError(Exception):
    """The row is sound but cannot be sent; its text is the named reason."""


def clip(value: object, most: int = 60) -> str:
    """A value for a message, cut to a readable length."""
    try:
        text = repr(value)
    except RecursionError:
        text = type(value).__name__
    return text if len(text) <= most else text[: most - 1] + "…"


def parse_object(line: bytes) -> dict[str, Any]:
    """A line of JSON as an object. Raises RowError for anything else, however broken."""
    if b"\0" in line:
        raise RowError("holds NUL bytes; expected UTF-8 text (is it a binary or a UTF-16 file?)")
    try:
        row = msgspec.json.decode(line)
    except UnicodeDecodeError as fault:
        raise RowError(f"is not UTF-8 (byte {fault.start + 1} of the line)") from None
    except RecursionError:
        raise RowError("is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as fault:
        try:
            line.decode()
        except UnicodeDecodeError as wrong:
            raise RowError(f"is not UTF-8 (byte {wrong.start + 1} of the line)") from None
        raise RowError(f"is not JSON: {fault}") from None
    if not isinstance(row, dict):
        raise RowError(f"expected a JSON object, got {clip(row)}")
    return row


def unknown_field(name: str, known: tuple[str, ...]) -> str:
    """The complaint about a field that nobody knows, with the nearest name that somebody does."""
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f"{clip(name)[1:-1]}: unknown field" + (f"; did you mean '{near[0]}'?" if near else "")


def to_item(row: dict[str, Any], *, names: dict[str, str] | None = None, exact: bool = False) -> WorkloadItem:
    """A row of native fields as an item. `names`: native name to the row's own spelling, for the messages.

    exact: how many blocks there are is checked later, by the whole file (`blocks.check`). Raises RowError naming the
    field, what was expected and what was found.
    """
    spelled = names or {}
    for name in row:
        if name not in FIELDS:
            raise RowError(unknown_field(name, FIELDS))
    try:
        item = msgspec.convert(row, WorkloadItem)
    except msgspec.ValidationError as fault:
        raise RowError(_told(str(fault), row, spelled)) from None
    except RecursionError:
        raise RowError("is nested too deeply") from None
    _check_ask(item, spelled)
    _check_blocks(item, spelled, exact)
    return item


def _told(fault: str, row: dict[str, Any], spelled: dict[str, str]) -> str:
    found = _AT.match(fault)
    if found is None:
        return fault
    what, path = found.groups()
    field = re.split(r"[.\[]", path, maxsplit=1)[0]
    what = what.replace("`", "").replace("Expected", "expected", 1).split(", got ")[0]
    if "expected str of length >= 1" in what:
        what = "expected a text that is not empty"
    return f"{spelled.get(field, field)}{path[len(field) :]}: {what}, got {clip(row.get(field))}"


def _check_ask(item: WorkloadItem, spelled: dict[str, str]) -> None:
    asks = [name for name in ("messages", "prompt", "input_tokens") if getattr(item, name) is not None]
    if len(asks) != 1:
        got = " and ".join(spelled.get(name, name) for name in asks) or "none of them"
        raise RowError(f"expected exactly one of messages, prompt and input_tokens, got {got}")
    if item.prompt is not None and not item.prompt.strip():
        raise RowError(f"{spelled.get('prompt', 'prompt')}: expected a text that is not empty, got {clip(item.prompt)}")
    if item.messages is not None:
        _check_messages(item.messages)


def _check_messages(messages: list[dict[str, Any]]) -> None:
    if not messages:
        raise RowError("messages: expected at least one message, got []")
    for place, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise RowError(f"messages[{place}].role: expected one of {', '.join(_ROLES)}, got {clip(role)}")
        content = message.get("content")
        if not isinstance(content, str | list) and not (role == "assistant" and content is None):
            raise RowError(f"messages[{place}].content: expected a text or a list of parts, got {clip(content)}")
        if role == "user" and (not content or (isinstance(content, str) and not content.strip())):
            raise RowError(f"messages[{place}].content: expected a text that is not empty, got {clip(content)}")
    if all(message["role"] in ("system", "developer") for message in messages):
        raise RowError("messages: expected a message of the user; a system message alone is not a request")


def _check_blocks(item: WorkloadItem, spelled: dict[str, str], exact: bool) -> None:
    if item.prefix_blocks is None:
        return
    name = spelled.get("prefix_blocks", "prefix_blocks")
    if item.input_tokens is None:
        raise RowError(f"{name}: expected input_tokens beside it")
    if item.block_tokens is None:
        raise RowError(f"{name}: expected block_tokens beside it (the size of a block, in tokens)")
    # Fewer blocks than fit are fine in our own format (a shared head, then a text of its own); more never are.
    most = block_counts(item.input_tokens, item.block_tokens)[1]
    if len(item.prefix_blocks) > most and not exact:
        raise RowError(
            f"{name}: expected at most {most} ids of {item.block_tokens} tokens for {item.input_tokens} tokens, "
            f"got {len(item.prefix_blocks)}"
        )


def block_counts(input_tokens: int, block_tokens: int) -> tuple[int, int]:
    """How many blocks hold so many tokens, rounded down and rounded up."""
    return input_tokens // block_tokens, -(-input_tokens // block_tokens)
