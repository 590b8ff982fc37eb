"""Traces of agents: kv-cache-tester ("weka") conversations with sub-agents, TraceLab rounds, LMCache sessions of text.

The one idea: within a session a turn is sent when the one before has ended and the recorded pause of the client has
passed; what the source's own server took is no part of the load. It must not know arrival processes: a conversation
without an arrival has none here.
"""

from __future__ import annotations

from typing import Any

from benchlab.workload.formats import NO_OUTPUT, Context, Format, Timed, block_ids, count_of, text_of
from benchlab.workload.item import WorkloadItem
from benchlab.workload.read_csv import REPLAY_BLOCK, chain
from benchlab.workload.rows import DroppedError, RowError, clip, to_item, unknown_field
from benchlab.workload.times import scaled_ns, wall_ns

_CONVERSATION = (
    "id", "models", "block_size", "hash_id_scope", "tool_tokens", "system_tokens", "requests", "totals"
)  # fmt: skip
_REQUEST = (
    "t", "type", "model", "in", "out", "hash_ids", "input_types", "output_types", "stop", "api_time", "think_time",
    "ttft",
)  # fmt: skip
_AGENT = (
    "t", "type", "agent_id", "subagent_type", "duration_ms", "total_tokens", "tool_use_count", "status", "requests",
    "models", "tool_tokens", "system_tokens",
)  # fmt: skip
_TICK_S = 1.0
"""Times are whole seconds, so a sub-agent may seem to end that much after the request that waited for it."""
_GAPS = "{n} pauses are not recorded: the whole gap of the source stands for them, its server's time included"


class _Conversation:
    """One conversation on its way to items."""

    def __init__(self, row: dict[str, Any], context: Context) -> None:
        self.context, self.allow = context, context.allow_unknown
        self.name = text_of(row, "id") or f"conversation {context.state.get('conversations', 0) + 1}"
        self.size = count_of(row, "block_size")
        self.local = row.get("hash_id_scope", "local") == "local"
        self.blocks: dict[int, int] = {}
        self.items: list[Timed] = []
        if self.size < 1:
            raise RowError(f"block_size: expected int >= 1, got {self.size}")

    def known(self, row: dict[str, Any], names: tuple[str, ...], where: str) -> None:
        for name in row:
            if name not in names and not self.allow:
                raise RowError(f"{where}{unknown_field(name, names)}")

    def global_ids(self, ids: object, where: str) -> list[int]:
        """Ids that start at 1 in each conversation, renamed so that no two conversations share one by accident."""
        found = block_ids(ids, self.context, f"{where}hash_ids")
        if not self.local:
            return found
        state, names = self.context.state, self.blocks
        first = state.get("blocks", 0)
        for one in found:
            if one not in names:
                names[one] = first
                first += 1
        state["blocks"] = first
        return [names[one] for one in found]

    def walk(self, requests: object, where: str, needs: list[str], prefix: str, pause_s: float | None) -> list[str]:
        """Items of a line of requests, each after the one before. needs, pause_s: what the first one waits for, and
        how long then. Returns the last one."""
        if not isinstance(requests, list) or not requests:
            raise RowError(f"{where}: expected a list of requests, got {clip(requests)}")
        before: dict[str, Any] | None = None
        waiting = list(needs)
        running: list[tuple[float, list[str]]] = []
        for place, row in enumerate(requests):
            at = f"{where}[{place}]."
            if not isinstance(row, dict):
                raise RowError(f"{at[:-1]}: expected an object, got {clip(row)}")
            if row.get("type") == "subagent":
                running.append(self.agent(row, before, at, waiting, f"{prefix}{place + 1}."))
                continue
            self.known(row, _REQUEST, at)
            asked, answered = count_of(row, "in"), count_of(row, "out")
            if asked == 0 or answered == 0:
                self.context.drop(NO_OUTPUT if asked else "no input tokens")
                continue
            now = scaled_ns(row.get("t"), "s", f"{at}t") / 1e9
            ended = [one for one in running if one[0] <= now + _TICK_S]
            running = [one for one in running if one not in ended]
            if ended and before is not None:  # it waited for these, so its pause counts from the end of the last
                last = max(self.end(before, at), *(end for end, _ in ended))
                wait: float | None = max(0.0, now - last)
            else:
                wait = self.pause(row, before, at) if before is not None else pause_s
            for _, names in ended:
                waiting += names
            waiting = [self.add(row, at, f"{prefix}{place + 1}", wait, waiting, asked, answered)]
            before = row
        return waiting if before is not None else []

    def agent(
        self, row: dict[str, Any], before: dict[str, Any] | None, where: str, waiting: list[str], prefix: str
    ) -> tuple[float, list[str]]:
        """A sub-agent: begun after the request before it, and ended (by the recorded times) at the first value, s."""
        self.known(row, _AGENT, where)
        spawned = scaled_ns(row.get("t"), "s", f"{where}t") / 1e9
        pause = max(0.0, spawned - self.end(before, where)) if before is not None else None
        names = self.walk(row.get("requests"), f"{where}requests", waiting, prefix, pause)
        return spawned + scaled_ns(row.get("duration_ms") or 0, "ms", f"{where}duration_ms") / 1e9, names

    def add(
        self, row: dict[str, Any], at: str, name: str, wait: float | None, waiting: list[str], asked: int, answered: int
    ) -> str:
        blocks = row.get("hash_ids")
        item = WorkloadItem(
            id=f"{self.name}/{name}",
            input_tokens=asked,
            output_tokens=answered,
            prefix_blocks=None if blocks is None else self.global_ids(blocks, at),
            block_tokens=None if blocks is None else self.size,
            wait_s=wait,
            session=self.name,
            turn=len(self.items) + 1,
            depends_on=list(dict.fromkeys(waiting)) or None,
            tags=[row["model"]] if isinstance(row.get("model"), str) else [],
        )
        self.items.append(Timed(item, None, blocks is not None))
        return item.id

    def end(self, row: dict[str, Any], where: str) -> float:
        """When a request had ended by the recorded times; its start where its duration is not known."""
        start = scaled_ns(row.get("t"), "s", f"{where}t") / 1e9
        return start + (self.seconds(row, "api_time", where) or 0.0)

    def pause(self, row: dict[str, Any], before: dict[str, Any], where: str) -> float:
        think = self.seconds(row, "think_time", where)
        if think is not None:
            return think
        if self.seconds(before, "api_time", where) is None:
            self.context.count(_GAPS)
        return max(0.0, scaled_ns(row.get("t"), "s", f"{where}t") / 1e9 - self.end(before, where))

    def seconds(self, row: dict[str, Any], name: str, where: str) -> float | None:
        value = row.get(name)
        return None if value is None else scaled_ns(value, "s", f"{where}{name}") / 1e9


def _weka(row: dict[str, Any], context: Context) -> list[Timed]:
    conversation = _Conversation(row, context)
    conversation.known(row, _CONVERSATION, "")
    conversation.walk(row.get("requests"), "requests", [], "", None)
    context.state["conversations"] = context.state.get("conversations", 0) + 1
    return conversation.items


_ANSWERS = ("text", "reasoning", "tool_call", "usage_report")


def _rounds(row: dict[str, Any], context: Context) -> list[Timed]:
    """TraceLab: a round starts when its last input is there, and has ended with the last event of its answer."""
    session, place = text_of(row, "session_id"), count_of(row, "round_index")
    if session is None:
        raise RowError("session_id: expected the name of a session")
    total, prefix = count_of(row, "input_tokens_total"), count_of(row, "prefix_tokens")
    new, answered = count_of(row, "newly_append_tokens"), count_of(row, "output_tokens")
    if prefix + new != total:
        raise RowError(
            f"input_tokens_total: expected prefix_tokens + newly_append_tokens = {prefix + new}, got {total}"
        )
    events = row.get("timing_events")
    if not isinstance(events, list) or not events or not all(isinstance(event, dict) for event in events):
        raise RowError(f"timing_events: expected a list of events, got {clip(events)}")
    stamps = [
        (event.get("event_type") in _ANSWERS, wall_ns(event.get("timestamp"), f"timing_events[{at}].timestamp"))
        for at, event in enumerate(events)
    ]
    asked_ns = max((ns for answer, ns in stamps if not answer), default=min(ns for _, ns in stamps))
    ended_ns = max(ns for _, ns in stamps)
    before = context.state.setdefault(("session", session), {"place": -1, "ended": None, "blocks": []})
    if place <= before["place"]:
        raise RowError(f"round_index: expected the rounds of a session in order, got {place} after {before['place']}")
    first = before["ended"] is None
    wait = None if first else max(0, asked_ns - before["ended"]) / 1e9
    blocks = chain(before["blocks"], prefix, total, context)
    before |= {"place": place, "ended": None if first else ended_ns}
    if total == 0 or answered == 0:
        raise DroppedError(NO_OUTPUT if answered == 0 else "no input tokens")
    before |= {"blocks": blocks, "ended": ended_ns}
    context.count("{n} rounds whose shared blocks are made from their counts of cached tokens")
    item = WorkloadItem(
        input_tokens=total,
        output_tokens=answered,
        prefix_blocks=blocks,
        block_tokens=REPLAY_BLOCK,
        session=session,
        turn=place,
        wait_s=wait,
        tags=[row["model"]] if isinstance(row.get("model"), str) else [],
    )
    return [Timed(item, asked_ns if first else None)]


_LMCACHE = ("timestamp", "input", "output", "session_id")


def _lmcache(row: dict[str, Any], context: Context) -> list[Timed]:
    """An empty output is a tool call that was not logged, not a failure: its length is not known."""
    for name in row:
        if name not in _LMCACHE and not context.allow_unknown:
            raise RowError(unknown_field(name, _LMCACHE))
    ns = scaled_ns(row.get("timestamp"), context.time_unit or "us", "timestamp")
    native = {
        "prompt": row.get("input"),
        "session": row.get("session_id"),
        "output_tokens": context.answer_tokens(row.get("output")),
    }
    if native["output_tokens"] is None:
        context.count("{n} answers are not recorded; how much to generate is left to the run")
    return [Timed(to_item(native, names={"prompt": "input", "session": "session_id"}), ns)]


WEKA = Format("weka", _weka, drop_zero=True, by_item=True)
ROUNDS = Format("tracelab", _rounds, "wall clock", drop_zero=True, trace=True)
LMCACHE = Format("lmcache", _lmcache, "us", trace=True, turn_by_time=True)
