"""One line of a workload: what to ask, and what is known about it.

The limits of each field stand in its type, so that the reader's complaints and the published JSON Schema cannot
differ. It must not know where the line came from, nor how it will be sent.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

MAX_TOKENS = 2**31 - 1

Tokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class WorkloadItem(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One request of a workload (one JSON object a line).

    Exactly one of `messages`, `prompt` and `input_tokens` says what is asked; with `input_tokens` the text is made
    when the run starts. `output_tokens` is the most that may be generated (`max_tokens` on the wire).
    """

    id: str = ""
    messages: list[dict[str, Any]] | None = None
    prompt: Annotated[str, Meta(min_length=1)] | None = None
    input_tokens: Tokens | None = None
    prefix_blocks: list[int] | None = None
    block_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    arrival_s: Seconds | None = None
    wait_s: Seconds | None = None
    session: str | None = None
    turn: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] | None = None
    depends_on: list[str] | None = None
    sampling: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    priority: int | None = None
    tenant: str | None = None
    expect: Any = None
    tags: list[str] = []


FIELDS: tuple[str, ...] = WorkloadItem.__struct_fields__
"""The names of the fields, in the order in which they are written."""
