"""Small files of other people's formats, written by the tests themselves: no row of any data set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake_row(at: float, tokens: int, ids: list[Any], out: int = 4) -> dict[str, Any]:
    return {"timestamp": at, "input_length": tokens, "output_length": out, "hash_ids": ids}


def request(t: float, n: int, out: int, **more: Any) -> dict[str, Any]:
    names = {"think": "think_time", "api": "api_time", "ttft": "ttft"}
    row = {"t": t, "type": "n", "model": "m", "in": n, "out": out, "hash_ids": list(range(1, n // 64 + 1))}
    return {**row, "stop": "tool_use", **{names[name]: value for name, value in more.items()}}


def weka(number: int, requests: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"conversation-{number}",
        "models": ["m"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 10,
        "system_tokens": 5,
        "requests": [row if "type" in row else request(**row) for row in requests],
    }


def subagent(t: float, seconds: float, requests: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "t": t,
        "type": "subagent",
        "agent_id": "a",
        "subagent_type": "Explore",
        "duration_ms": 1000 * seconds,
        "status": "completed",
        "requests": [request(**row) for row in requests],
        **more,
    }


def tracelab_round(session: str, place: int, prefix: int, new: int, out: int, asked: str, ended: str) -> dict[str, Any]:
    return {
        "provider": "claude",
        "session_id": session,
        "round_index": place,
        "model": "m",
        "input_tokens_total": prefix + new,
        "prefix_tokens": prefix,
        "newly_append_tokens": new,
        "output_tokens": out,
        "timing_events": [
            {"event_type": "user_message", "timestamp": f"2026-06-01T05:40:{asked}Z"},
            {"event_type": "text", "timestamp": f"2026-06-01T05:40:{ended}Z"},
        ],
        "tools": [],
    }


def span(trace: str, start: str, end: str, **attributes: Any) -> dict[str, Any]:
    return {
        "trace_id": trace,
        "span_id": start,
        "name": "chat",
        "start_time": f"2026-06-01T05:40:{start}Z",
        "end_time": f"2026-06-01T05:40:{end}Z",
        "attributes": {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes},
    }
