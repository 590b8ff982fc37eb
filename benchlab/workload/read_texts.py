"""Files with the text itself: ShareGPT, OpenAI batch, evalscope, request bodies, agentic traces, question data sets.

A recorded answer is never sent; only its length is used, counted by the counter in force and said to be so. It must
not open files.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchlab.workload.formats import Context, Format, Timed, text_of
from benchlab.workload.item import FIELDS
from benchlab.workload.rows import DroppedError, RowError, clip, to_item, unknown_field
from benchlab.workload.times import scaled_ns, wall_ns

_HUMAN, _MODEL = ("human", "user"), ("gpt", "assistant", "chatgpt", "bing", "bard", "model")
_LED = "{n} conversations begin with the model's turn; what comes before the first question is left out"


def _sharegpt(row: dict[str, Any], context: Context) -> list[Timed]:
    """The first question and the length of its answer. Turns without a name are taken in turn, the user's first."""
    turns = row.get("conversations", row.get("conversation"))
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise RowError(f"conversations: expected a list of turns, got {clip(turns)}")
    said = []
    for place, turn in enumerate(turns):
        who = turn.get("from", turn.get("role", ("human", "gpt")[place % 2]))
        said.append((who, turn.get("value", turn.get("content"))))
    while said and said[0][0] == "system":
        said = said[1:]
    first = next((place for place, (who, text) in enumerate(said) if who in _HUMAN and _some(text)), None)
    if first is None:
        raise DroppedError("a conversation without a question")
    if first + 1 >= len(said) or said[first + 1][0] not in _MODEL or not _some(said[first + 1][1]):
        raise DroppedError("a conversation whose first question has no answer")
    if first:
        context.count(_LED)
    native = {
        "messages": [{"role": "user", "content": said[first][1]}],
        "output_tokens": context.answer_tokens(said[first + 1][1]),
    }
    return [Timed(to_item(native))]


def _some(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


_OWN = ("model", "stream", "stream_options", "messages", "prompt", "input", "system", "instructions", "max_tokens",
        "max_completion_tokens", "max_output_tokens", "tools", "priority", "user")  # fmt: skip


def body_fields(body: dict[str, Any], context: Context) -> dict[str, Any]:
    """A request body as native fields: what is asked, the limit, the tools; everything else becomes `sampling`."""
    native: dict[str, Any] = {}
    asked = body.get("messages", body.get("input"))
    head = body.get("system", body.get("instructions"))
    if isinstance(asked, str):
        asked = [{"role": "user", "content": asked}]
    if asked is not None:
        native["messages"] = (
            [{"role": "system", "content": head}, *asked] if _some(head) and isinstance(asked, list) else asked
        )
    prompt = body.get("prompt")
    if prompt is not None:
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        native["prompt"] = prompt
    limits = [body[name] for name in ("max_completion_tokens", "max_tokens", "max_output_tokens") if body.get(name)]
    if limits:
        native["output_tokens"] = limits[0]
    for name in ("tools", "priority"):
        if body.get(name) is not None:
            native[name] = body[name]
    rest = {name: value for name, value in body.items() if name not in _OWN}
    if rest:
        native["sampling"] = rest
    if body.get("model") is not None:
        context.count("{n} request bodies name a model; the run's own is asked")
    return native


def _batch(row: dict[str, Any], context: Context) -> list[Timed]:
    body = row.get("body")
    if not isinstance(body, dict):
        raise RowError(f"body: expected an object, got {clip(body)}")
    url = row.get("url")
    if isinstance(url, str) and "embedding" in url:
        raise DroppedError("a request for embeddings")
    return [Timed(to_item({**body_fields(body, context), "id": text_of(row, "custom_id") or ""}))]


_EVALSCOPE = ("body", "timestamp", "headers", "request_id", "completion_tokens")


def _evalscope(row: dict[str, Any], context: Context) -> list[Timed]:
    for name in row:
        if name not in _EVALSCOPE and not context.allow_unknown:
            raise RowError(unknown_field(name, _EVALSCOPE))
    body = row.get("body")
    if isinstance(body, str):
        try:
            body = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as fault:
            raise RowError(f"body: is not JSON: {fault}") from None
    if not isinstance(body, dict):
        raise RowError(f"body: expected an object, got {clip(body)}")
    native = {**body_fields(body, context), "id": text_of(row, "request_id") or ""}
    if row.get("completion_tokens") is not None:
        native["output_tokens"] = row["completion_tokens"]
    if row.get("headers"):
        context.count("{n} rows with headers of their own, which are not sent")
    at = row.get("timestamp")
    if at is None:
        return [Timed(to_item(native))]
    return [
        Timed(to_item(native), wall_ns(at, "timestamp") if isinstance(at, str) else scaled_ns(at, "s", "timestamp"))
    ]


def _payloads(row: dict[str, Any], context: Context) -> list[Timed]:
    """aiperf's inputs: a session and its request bodies, one after the other."""
    bodies = row.get("payloads", [row["payload"]] if "payload" in row else None)
    if not isinstance(bodies, list) or not bodies or not all(isinstance(body, dict) for body in bodies):
        raise RowError(f"payloads: expected a list of request bodies, got {clip(bodies)}")
    session, ns = text_of(row, "session_id"), None
    found = []
    for place, body in enumerate(bodies):
        fields = body_fields(body, context)
        if place == 0 and row.get("timestamp") is not None:
            ns = scaled_ns(row["timestamp"], context.time_unit or "ms", "timestamp")
        if len(bodies) > 1 or session:
            fields |= {"session": session, "turn": place + 1}
        found.append(Timed(to_item(fields), ns if place == 0 else None))
    return found


def _agentic(row: dict[str, Any], context: Context) -> list[Timed]:
    """SGLang's agentic trace: `turns` of new messages each; a turn asks with all messages so far."""
    turns = row.get("agentic")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, dict) for turn in turns):
        raise RowError(f"conversations: expected lists of turns, got {clip(turns)}")
    number = context.state["conversation"] = context.state.get("conversation", 0) + 1
    messages: list[Any] = []
    found: list[Timed] = []
    for place, turn in enumerate(turns):
        new = turn.get("messages")
        if not isinstance(new, list):
            raise RowError(f"messages: expected a list of messages, got {clip(new)}")
        messages += new
        native = {"messages": list(messages), "session": f"conversation {number}", "turn": place + 1}
        found.append(Timed(to_item(native)))
    return found


_QUESTIONS = ("prompt", "text", "text_input", "instruction", "question", "query", "input", "context", "content")
_ANSWERS = ("answer", "output", "response", "completion", "reference", "target", "chosen")


def question_of(row: dict[str, Any]) -> str | None:
    """The column of a data set that holds what is asked; None where there is none."""
    return next((name for name in _QUESTIONS if _some(row.get(name))), None)


def _questions(row: dict[str, Any], context: Context) -> list[Timed]:
    """A data set of texts: the first column that holds a question, the context before it, the answer's length."""
    name = question_of(row)
    if name is None:
        raise DroppedError("no text in any known column")
    text = row[name]
    extra = {"instruction": "input", "question": "context"}.get(name)
    if extra and _some(row.get(extra)):
        text = f"{text}\n\n{row[extra]}" if extra == "input" else f"{row[extra]}\n\n{text}"
    answer = next((row[column] for column in _ANSWERS if column != name and _some(row.get(column))), None)
    native: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if _some(row.get("system_prompt")):
        native["messages"].insert(0, {"role": "system", "content": row["system_prompt"]})
    for column in ("output_tokens_count", "completion_tokens_count", "output_tokens", "output_len"):
        if isinstance(row.get(column), int):
            native["output_tokens"] = row[column]
            break
    else:
        native["output_tokens"] = context.answer_tokens(answer)
    left = sorted(set(row) - {name, extra, "system_prompt", *_ANSWERS, *FIELDS})
    if left:
        context.count("{n} rows with columns that are not used: " + clip(", ".join(left), 80)[1:-1])
    return [Timed(to_item(native))]


SHAREGPT = Format("sharegpt", _sharegpt)
BATCH = Format("openai-batch", _batch)
EVALSCOPE = Format("evalscope", _evalscope, "s", trace=True)
PAYLOADS = Format("aiperf-inputs", _payloads, "ms", trace=True)
AGENTIC = Format("sglang-agentic", _agentic)
QUESTIONS = Format("questions", _questions)


def _body(row: dict[str, Any], context: Context) -> list[Timed]:
    return [Timed(to_item(body_fields(row, context)))]


BODIES = Format("request-bodies", _body)
