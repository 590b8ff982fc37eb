"""What came in and what every step did, in rows of plain numbers.

The one idea: a decision that leaves a row can be explained, and one whose causes leave rows too can be replayed. The
last steps are kept in memory; the whole of it goes to a sink, entry by entry, as JSON-able dicts:

    start   the scheduler's settings             submit   a request, and whether it was refused
    cancel  who was cancelled, and why           idle     somebody's time ran out while nothing could run
    step    what was planned, the tokens that came, the times, what was free afterwards; error, if it failed, and
            failed: whom it ended, null for all of its requests

It must not change what it writes down.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from benchlab_engine.core.config import SchedulerConfig
from benchlab_engine.core.plan import Sampling, StepPlan
from benchlab_engine.core.request import FinishReason, RequestSpec

SCHEMA = 1
KINDS = ("start", "submit", "cancel", "idle", "step")
Sink = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step. works: (request id, first position, tokens, is a decode step, gives a token).

    Beside them, one number for each work: last_blocks (the block of its last position), num_drafts (proposals, the
    scheduler's or the runner's to make), num_tokens (that came, before any were cut). num_free_blocks, num_running and
    num_waiting are those after the step.
    """

    number: int
    start_ns: int
    end_ns: int
    works: tuple[tuple[str, int, int, bool, bool], ...]
    num_decodes: int
    num_prefill_tokens: int
    num_reread: int
    num_free_blocks: int
    num_running: int
    num_waiting: int
    preempted: tuple[str, ...]
    last_blocks: tuple[int, ...] = ()
    num_drafts: tuple[int, ...] = ()
    num_tokens: tuple[int, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    released: tuple[str, ...] = ()


def row_of(
    plan: StepPlan, tokens: Mapping[str, tuple[int, ...]], start_ns: int, end_ns: int, after: tuple[int, int, int]
) -> StepRow:
    """The row of a step. after: free blocks, running and waiting requests once it is settled."""
    works = plan.works
    return StepRow(
        number=plan.number,
        start_ns=start_ns,
        end_ns=end_ns,
        works=tuple((w.request_id, w.start, len(w.token_ids), w.is_decode, w.samples) for w in works),
        num_decodes=plan.num_decodes,
        num_prefill_tokens=plan.num_prefill_tokens,
        num_reread=sum(work.num_reread for work in works),
        num_free_blocks=after[0],
        num_running=after[1],
        num_waiting=after[2],
        preempted=plan.preempted,
        last_blocks=tuple(work.block_table[-1] for work in works),
        num_drafts=tuple(work.num_drafts + work.num_to_draft for work in works),
        num_tokens=tuple(len(tokens.get(work.request_id, ())) for work in works),
        copies=plan.copies,
        released=plan.released,
    )


class Journal:
    """The last steps, oldest first: at most `keep`, those before the newest of at most `keep_works` works in all.

    sink: given every entry as it is made, as a dict that JSON can carry. None: nothing but the last steps is kept.
    """

    def __init__(self, keep: int = 10_000, sink: Sink | None = None, keep_works: int = 250_000) -> None:
        self.rows: deque[StepRow] = deque(maxlen=keep)
        self._sink = sink
        self._keep_works = keep_works
        self._num_works = 0

    def start(self, config: SchedulerConfig) -> None:
        """A scheduler begins, empty."""
        self._put("start", config=asdict(config))

    def submit(self, spec: RequestSpec, now_ns: int, refused: str | None, in_step: bool) -> None:
        """A request came. in_step: while a step was being carried out, between its plan and its result."""
        if self._sink is not None:
            self._put("submit", now_ns=now_ns, spec=spec_entry(spec), refused=refused, in_step=in_step)

    def cancel(self, request_id: str, now_ns: int, reason: FinishReason, in_step: bool) -> None:
        """A request is to end."""
        self._put("cancel", now_ns=now_ns, request_id=request_id, reason=str(reason), in_step=in_step)

    def idle(self, now_ns: int) -> None:
        """Nothing could run, but the time of some requests ran out."""
        self._put("idle", now_ns=now_ns)

    def step(
        self,
        row: StepRow,
        tokens: Mapping[str, tuple[int, ...]],
        error: str | None = None,
        failed: Sequence[str] | None = None,
    ) -> None:
        """A step has been settled, or has failed; a failed one goes to the sink alone. failed: who ended; None: all."""
        if error is None:
            while self.rows and (len(self.rows) == self.rows.maxlen or self._num_works > self._keep_works):
                self._num_works -= len(self.rows.popleft().works)
            self.rows.append(row)
            self._num_works += len(row.works)
        if self._sink is not None:
            listed = {name: list(ids) for name, ids in tokens.items()}
            ended = None if failed is None else list(failed)
            self._put("step", **row_entry(row), tokens=listed, error=error, failed=ended)

    def _put(self, kind: str, **content: Any) -> None:
        if self._sink is not None:
            self._sink({"schema": SCHEMA, "kind": kind, **content})


# -- entries and back ---------------------------------------------------------------------------------------------


class JournalError(ValueError):
    """A journal that cannot be read: where, and what was expected."""


def row_entry(row: StepRow) -> dict[str, Any]:
    """A step's row as JSON has it: lists for tuples."""
    return {each.name: _listed(getattr(row, each.name)) for each in fields(row)}


def spec_entry(spec: RequestSpec) -> dict[str, Any]:
    """A request as JSON has it."""
    entry = {each.name: getattr(spec, each.name) for each in fields(spec)}
    sampling = {each.name: _listed(getattr(spec.sampling, each.name)) for each in fields(spec.sampling)}
    return entry | {"prompt": list(spec.prompt), "end_tokens": sorted(spec.end_tokens), "sampling": sampling}


def spec_of(entry: Mapping[str, Any]) -> RequestSpec:
    """The request that spec_entry wrote. JournalError names what is wrong."""
    try:
        sampling = dict(entry["sampling"])
        sampling["logit_bias"] = tuple((token, bias) for token, bias in sampling.get("logit_bias", ()))
        given = {**entry, "prompt": tuple(entry["prompt"]), "end_tokens": frozenset(entry["end_tokens"])}
        return RequestSpec(**{**given, "sampling": Sampling(**sampling)})
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"not a request: {type(error).__name__}: {error}") from None


def config_of(entry: Mapping[str, Any]) -> SchedulerConfig:
    """The settings of a start entry. JournalError names what is wrong."""
    try:
        config = SchedulerConfig(**entry["config"])
        config.check()
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"not a start of a scheduler: {type(error).__name__}: {error}") from None
    return config


def write_line(entry: Mapping[str, Any]) -> str:
    """One entry as a line of JSON, its end included."""
    return json.dumps(entry, separators=(",", ":")) + "\n"


def read_lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The entries of a journal file. A last line without its end was cut off as it was written, and is left out.

    JournalError says which line is none of ours, and why.
    """
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise JournalError(f"line {number}: no JSON: {error}") from None
        if not isinstance(entry, dict) or entry.get("kind") not in KINDS:
            raise JournalError(f"line {number}: not an entry of a journal; its kind must be one of {', '.join(KINDS)}")
        if entry.get("schema") != SCHEMA:
            raise JournalError(f"line {number}: schema {entry.get('schema')!r}; this reader knows {SCHEMA}")
        yield entry


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value] if isinstance(value, tuple) else value
