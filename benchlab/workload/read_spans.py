"""OpenTelemetry spans of GenAI calls, as one object, an OTLP export, or one span a line.

The one idea: a trace is a session; a call that began after another of its trace had ended waits for it, with the pause
between the two, and calls that overlapped do not wait for each other. It must not know what made the spans.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchlab.workload.formats import NO_OUTPUT, Context, Format, Timed
from benchlab.workload.item import WorkloadItem
from benchlab.workload.rows import RowError, clip, to_item
from benchlab.workload.times import wall_ns

_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")


def _attributes(span: dict[str, Any]) -> dict[str, Any]:
    given = span.get("attributes") or {}
    if isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for one in given if isinstance(given, list) else ():
        if isinstance(one, dict) and isinstance(one.get("value"), dict) and isinstance(one.get("key"), str):
            value: Any = next(iter(one["value"].values()), None)
            found[one["key"]] = int(value) if "intValue" in one["value"] and str(value).isdigit() else value
    return found


def _time(span: dict[str, Any], names: tuple[str, str]) -> int:
    for name in names:
        value = span.get(name)
        if value is None:
            continue
        if name.endswith("Nano") and str(value).isdigit():
            return int(value)
        return wall_ns(value, name)
    raise RowError(f"{names[0]}: expected the time of a span, got nothing")


def _tokens(found: dict[str, Any], names: tuple[str, ...]) -> int | None:
    value = next((found[name] for name in names if found.get(name) is not None), None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise RowError(f"{names[0]}: expected int >= 0, got {clip(value)}")
    return value


def _messages(value: object) -> list[dict[str, Any]] | None:
    """Messages as the conventions write them (a list, or its JSON; content in `parts`), as chat messages."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return None
    if not isinstance(value, list) or not value:
        return None
    found = []
    for one in value:
        if not isinstance(one, dict):
            return None
        content = one.get("content")
        if content is None and isinstance(one.get("parts"), list):
            parts = [part.get("content", part.get("text")) for part in one["parts"] if isinstance(part, dict)]
            content = "\n".join(part for part in parts if isinstance(part, str))
        found.append({"role": one.get("role"), "content": content})
    return found


def _flat(row: dict[str, Any]) -> list[Any]:
    if "spans" in row:
        return row["spans"] if isinstance(row["spans"], list) else []
    if "resourceSpans" in row:
        found: list[Any] = []
        for resource in row["resourceSpans"] if isinstance(row["resourceSpans"], list) else ():
            scopes = resource.get("scopeSpans") if isinstance(resource, dict) else None
            for scope in scopes if isinstance(scopes, list) else ():
                found += scope.get("spans") or [] if isinstance(scope, dict) else []
        return found
    return [row]


def _spans(row: dict[str, Any], context: Context) -> list[Timed]:
    """Takes the spans of a row in; the items come at the end, when all spans of a trace are known."""
    calls = context.state.setdefault("calls", [])
    for place, span in enumerate(_flat(row)):
        if not isinstance(span, dict):
            raise RowError(f"spans[{place}]: expected an object, got {clip(span)}")
        found = _attributes(span)
        if not any(name.startswith("gen_ai.") for name in found) or found.get("gen_ai.operation.name") in (
            "execute_tool", "invoke_agent", "create_agent", "embeddings",
        ):  # fmt: skip
            context.drop("a span that is no call of a model")
            continue
        asked, answered = _tokens(found, _INPUT), _tokens(found, _OUTPUT)
        messages = _messages(found.get("gen_ai.input.messages"))
        if messages is None and not asked:
            context.drop("no input tokens")
            continue
        if answered == 0:
            context.drop(NO_OUTPUT)
            continue
        if answered is None:
            answered = context.answer_tokens(found.get("gen_ai.output.text")) or _tokens(
                found, ("gen_ai.request.max_tokens",)
            )
        native = {"messages": messages} if messages is not None else {"input_tokens": asked}
        model = found.get("gen_ai.request.model")
        item = to_item({**native, "output_tokens": answered or None, "tags": [model] if isinstance(model, str) else []})
        trace = str(span.get("trace_id", span.get("traceId", row.get("trace_id", ""))))
        start = _time(span, ("start_time", "startTimeUnixNano"))
        calls.append((start, _time(span, ("end_time", "endTimeUnixNano")), trace, item, context.state["line"]))
    return []


def _calls(context: Context) -> list[tuple[int, Timed]]:
    """Every call of every trace, in the order of their starts."""
    calls: list[tuple[int, int, str, WorkloadItem, int]] = sorted(
        context.state.get("calls", ()), key=lambda call: call[0]
    )
    ended: dict[str, list[tuple[int, str]]] = {}
    turns: dict[str, int] = {}
    found = []
    for start, end, trace, item, line in calls:
        turn = turns[trace] = turns.get(trace, 0) + 1
        name = f"{trace or 'trace'}/{turn}"
        before = [one for one in ended.setdefault(trace, []) if one[0] <= start]
        last = max(before, default=None)
        ended[trace].append((max(start, end), name))
        whole = msgspec.structs.replace(
            item,
            id=name,
            session=trace or None,
            turn=turn,
            depends_on=[last[1]] if last else None,
            wait_s=(start - last[0]) / 1e9 if last else None,
        )
        found.append((line, Timed(whole, None if last else start)))
    return found


SPANS = Format("opentelemetry", _spans, "wall clock", trace=True, finish=_calls, by_item=True)
