"""One line of a workload: what to ask, and what is known about it."""

from __future__ import annotations

from typing import Any

import msgspec


class WorkloadItem(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One request of a workload (one JSON object a line).

    Exactly one of `messages`, `prompt` and `input_tokens` says what is asked; with `input_tokens` the text is made
    when the run starts. `output_tokens` is the most that may be generated (`max_tokens` on the wire).
    """

    id: str = ""
    messages: list[dict[str, Any]] | None = None
    prompt: str | None = None
    input_tokens: int | None = None
    prefix_blocks: list[int] | None = None
    block_tokens: int | None = None
    output_tokens: int | None = None
    arrival_s: float | None = None
    wait_s: float | None = None
    session: str | None = None
    turn: int | None = None
    depends_on: list[str] | None = None
    sampling: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    priority: int | None = None
    tenant: str | None = None
    expect: Any = None
    tags: list[str] = []
