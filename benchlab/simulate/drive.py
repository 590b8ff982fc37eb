"""A load on the engine's own core in virtual time: the same plans in, the same records out, and nobody waits.

The one idea: between two events nothing happens, so the clock may jump. Arrivals, the client's patience and the end of
each engine step are the events; the engine is the bundled one, scheduler and block pool included, and its steps last
what a cost model says. The client is ideal: it sends on the instant and sees each token the moment it is ready. It must
not know how a run is stored or judged.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchlab.clock import ManualClock
from benchlab.errors import UsageError
from benchlab.loadgen.job import StageJob
from benchlab.loadgen.plan import Due, LoadPlan
from benchlab.records.event import LIMITED_STATUSES, SHED_STATUSES, Kind, Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.recorder import Recorder
from benchlab.simulate.settings import EngineSettings
from benchlab.units import NS_PER_MS, format_duration
from benchlab.workload.ids import token_ids
from benchlab.workload.item import WorkloadItem
from benchlab_engine.core.admission import Refusal, RefusalKind, refuse
from benchlab_engine.core.journal import Journal
from benchlab_engine.core.loop import Engine
from benchlab_engine.core.plan import Sampling
from benchlab_engine.core.request import FinishReason, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Emission, Scheduler
from benchlab_engine.sim.runner import PacedRunner

DEFAULT_OUTPUT_TOKENS = 128
"""Generated for an item that does not say how much."""

HOST = "simulated"
_POLL_NS = NS_PER_MS
"""How often an engine that waits for its own clock (a batch to fill, a wait budget) looks again."""
_REFUSAL_NS = NS_PER_MS
"""From sending to hearing of a refusal: with none, a refused user who asks again at once would stop the clock."""
_NEVER = 2**63 - 1
_KEPT_IDS = 5_000_000
"""Prompt ids kept for the next round of the workload, in all."""

_HINT = "give every kind of step a cost, such as teaching or roofline:h100:llama-3-8b"

_STATUS = {FinishReason.EXPIRED: 503, FinishReason.DEADLINE: 504}
_WORDS = {
    FinishReason.EXPIRED: "the request waited longer than its wait budget",
    FinishReason.DEADLINE: "the request's deadline passed",
}


@dataclass(frozen=True, slots=True)
class StageEnd:
    """What a stage came to. end_ns: from time zero, when its drain was over. requests: records made."""

    end_ns: int
    requests: int
    peak_inflight: int
    held: int


@dataclass(slots=True)
class _Flight:
    """A request between its dispatch and its end. turn: the round of the workload that it belongs to."""

    due: Due
    item: WorkloadItem
    recorder: Recorder
    prompt: tuple[int, ...]
    turn: int
    num_tokens: int = 0
    refusal: Refusal | None = None


class Simulation:
    """One engine and one client on one virtual clock, for stage after stage.

    items: the workload; a position beyond its end goes round. sink: gets each record as its request ends.
    timeouts_ns: the client's patience as {"first_content": ns, "gap": ns, "total": ns}. salt: of a cold cache; each
    round of the workload then has prompts of its own. journal: given each entry of the engine's journal.
    """

    def __init__(
        self,
        settings: EngineSettings,
        items: Sequence[WorkloadItem],
        sink: Callable[[Record], None],
        *,
        timeouts_ns: dict[str, int | None] | None = None,
        salt: str | None = None,
        journal: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        config, costs = settings.build()
        self.clock = ManualClock()
        runner = PacedRunner(costs, range(256), self.clock.advance, settings.seed)
        self.engine = Engine(Scheduler(config), runner, self.clock.monotonic_ns, Journal(1, journal))
        self._limits = config.limits()
        self._max_wait_ns = settings.max_wait_ns
        self._items, self._sink, self._salt = items, sink, salt
        self._timeouts = {name: ns for name, ns in (timeouts_ns or {}).items() if ns is not None}
        self._prompts: dict[int, tuple[int, ...]] = {}
        self._num_kept = 0
        self._live: dict[str, _Flight] = {}
        self._num_accepted = 0  # of those under way, the ones that the engine has taken

    def run(self, job: StageJob, plan: LoadPlan) -> StageEnd:
        """Run a stage to the end of its drain. job.start_ns must not lie before the clock's present time."""
        self.clock.now_ns = max(self.clock.now_ns, job.start_ns)
        self._job, self._plan = job, plan
        self._held: deque[_Flight] = deque()
        self._timers: list[tuple[int, str]] = []
        self._sending = True
        self._until = _NEVER if job.until_ns is None else job.start_ns + job.until_ns
        self._drain_end = _NEVER if job.until_ns is None else self._until + job.drain_ns
        self._requests = self._peak = self._num_held = 0
        while self._step():
            pass
        return StageEnd(self.clock.now_ns, self._requests, self._peak, self._num_held)

    # -- time -------------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Bring the client up to now, then let the engine do a step or the clock jump. False: the stage is over."""
        self._advance_client(self.clock.now_ns)
        if not self._sending and not self._live and not self._held:
            self.clock.now_ns = max(self.clock.now_ns, self._until if self._job.until_ns is not None else 0)
            return False
        if self.engine.scheduler.requests:
            before = self.clock.now_ns
            outcome = self.engine.step()
            # What the client did while the step ran came before its tokens were ready.
            self._advance_client(self.clock.now_ns - 1)
            for emission in outcome.emissions:
                self._deliver(emission)
            if outcome.row is not None and self.clock.now_ns == before:
                raise UsageError("a step takes no time, so the clock would stand still", where="--profile", hint=_HINT)
            if outcome.row is not None or outcome.emissions:
                return True
        wake = min(self._next_event(), self.clock.now_ns + _POLL_NS if self.engine.scheduler.requests else _NEVER)
        if wake == _NEVER:  # a plan that wants nothing and never will
            self._sending = False
            return bool(self._live)
        self.clock.now_ns = max(self.clock.now_ns, wake)
        return True

    def _next_event(self) -> int:
        """The next instant, from time zero, at which the client does something by itself."""
        due = self._plan.next_due_ns() if self._sending else None
        instants = [self._until if self._sending else self._drain_end]
        if due is not None:
            instants.append(self._job.start_ns + due)
        if self._timers:
            instants.append(self._timers[0][0])
        return min(instants)

    def _advance_client(self, now_ns: int) -> None:
        """Everything the client does up to and at this instant, in order of time."""
        while (at := self._next_event()) <= now_ns:
            if self._sending and at >= self._until:
                self._stop_sending()
            elif not self._sending and at >= self._drain_end:
                self._give_up(self._drain_end)
                return
            elif self._timers and self._timers[0][0] <= at:
                self._look_at_timer(*heapq.heappop(self._timers))
            else:
                for due in self._plan.take(at - self._job.start_ns):
                    self._dispatch(due)
        if self._sending and self._until == _NEVER and self._exhausted():
            self._stop_sending()

    def _exhausted(self) -> bool:
        return self._plan.next_due_ns() is None and not self._live and not self._held

    def _stop_sending(self) -> None:
        self._sending = False
        if self._until != _NEVER:
            self._plan.stop(self._until - self._job.start_ns)  # what follows an answer of the drain is no part of it
            self._account_dropped()
        if not self._job.held_in_drain:
            self._give_up_held(self._until)

    # -- the client -------------------------------------------------------------------------------------------------

    def _dispatch(self, due: Due) -> None:
        job = self._job
        turn, index = divmod(job.offset + due.sequence, len(self._items))
        item = self._items[index]
        who = self._identity(due, item)
        recorder = Recorder(who)
        recorder.stamp_source = HOST
        recorder.dispatched_ns = who.intended_ns
        flight = _Flight(due, item, recorder, self._prompt(index), turn)
        if job.max_inflight is not None and len(self._live) >= job.max_inflight:
            self._num_held += 1
            self._held.append(flight)
        else:
            self._send(flight, who.intended_ns)

    def _identity(self, due: Due, item: WorkloadItem) -> Identity:
        return Identity(
            request_id=f"s{self._job.stage}-{due.sequence}",
            stage=self._job.stage,
            item_id=item.id,
            intended_ns=self._job.start_ns + due.at_ns,
            session_id=item.session,
            turn=item.turn,
            tenant=item.tenant,
            tags=tuple(item.tags),
            requested_tokens=item.output_tokens,
            host=HOST,
        )

    def _prompt(self, index: int) -> tuple[int, ...]:
        found = self._prompts.get(index)
        if found is None:
            found = token_ids(self._items[index])
            self._num_kept += len(found)
            if self._num_kept <= _KEPT_IDS:
                self._prompts[index] = found
        return found

    def _send(self, flight: _Flight, at_ns: int) -> None:
        recorder, item = flight.recorder, flight.item
        name = recorder.identity.request_id
        recorder.sent_ns = at_ns
        spec = RequestSpec(
            request_id=name,
            prompt=flight.prompt,
            max_new_tokens=item.output_tokens or DEFAULT_OUTPUT_TOKENS,
            sampling=Sampling(seed=flight.due.sequence),
            salt="" if self._salt is None else f"{self._salt}-{flight.turn}",
            max_wait_ns=self._max_wait_ns,
            priority=item.priority or 0,
            tenant=item.tenant or "",
        )
        self._live[name] = flight
        self._peak = max(self._peak, len(self._live))
        refusal = refuse(spec, self._limits, self._num_accepted)
        if refusal is None:  # the engine looks into its mailbox between two steps
            refusal = self.engine.submit(spec, self.clock.now_ns, RequestTimes(accepted=at_ns))
        if refusal is not None:
            flight.refusal = refusal
            heapq.heappush(self._timers, (at_ns + _REFUSAL_NS, name))
            return
        self._num_accepted += 1
        patience = [self._timeouts[key] for key in ("first_content", "total") if key in self._timeouts]
        if patience:
            heapq.heappush(self._timers, (at_ns + min(patience), name))

    def _look_at_timer(self, at_ns: int, name: str) -> None:
        """A request may have run out of patience at this instant; else its timer is set again."""
        flight = self._live.get(name)
        if flight is None:
            return
        if flight.refusal is not None:
            status = 503 if flight.refusal.kind is RefusalKind.QUEUE_FULL else 400
            self._error(flight.recorder, status, flight.refusal.message, at_ns)
            self._ended(flight, at_ns)
            return
        recorder, limits = flight.recorder, self._timeouts
        sent, last = recorder.sent_ns or 0, recorder.last_chunk_ns
        ends = {"total": sent + limits["total"]} if "total" in limits else {}
        if last is None and "first_content" in limits:
            ends["first_content"] = sent + limits["first_content"]
        elif last is not None and "gap" in limits:
            ends["gap"] = last + limits["gap"]
        if not ends:
            return
        kind = min(ends, key=lambda each: ends[each])
        if ends[kind] > at_ns:
            heapq.heappush(self._timers, (ends[kind], name))
            return
        words = f"no end of it within {format_duration(limits[kind])} ({kind})"
        recorder.fail(Outcome.TIMEOUT, words, ns=at_ns, kind=kind)
        self._cancel(name)
        self._ended(flight, at_ns)

    def _deliver(self, emission: Emission) -> None:
        """News of the engine as the client sees it: at once."""
        flight = self._live.get(emission.request_id)
        if flight is None:
            return
        recorder, at_ns = flight.recorder, emission.at_ns
        if emission.token is not None:
            if not flight.num_tokens:
                recorder.headers_ns, recorder.http_status = at_ns, 200
            flight.num_tokens += 1
            recorder.chunk(at_ns, Kind.CONTENT, tokens=1)
            if flight.num_tokens == 1 and "gap" in self._timeouts:
                heapq.heappush(self._timers, (at_ns + self._timeouts["gap"], emission.request_id))
        if emission.finish is None:
            return
        if emission.finish in (FinishReason.STOP, FinishReason.LENGTH):
            recorder.chunk(at_ns, Kind.FINISH)
            recorder.finish_reason = str(emission.finish)
            recorder.usage(
                prompt=len(flight.prompt), output=flight.num_tokens, reasoning=None, cached=emission.num_cached
            )
            recorder.end(at_ns)
        else:
            words = _WORDS.get(emission.finish, f"the engine gave up: {emission.finish}")
            self._error(recorder, _STATUS.get(emission.finish, 500), words, at_ns)
        self._ended(flight, at_ns)

    def _error(self, recorder: Recorder, status: int, words: str, at_ns: int) -> None:
        if recorder.headers_ns is not None:  # too late for a status
            recorder.fail(Outcome.ERROR_STREAM, words, ns=at_ns)
            return
        recorder.headers_ns, recorder.http_status = at_ns, status
        kind = "shed" if status in SHED_STATUSES else "limited" if status in LIMITED_STATUSES else None
        recorder.fail(Outcome.ERROR_HTTP, f"HTTP {status}: {words}", ns=at_ns, kind=kind)

    def _ended(self, flight: _Flight, at_ns: int) -> None:
        del self._live[flight.recorder.identity.request_id]
        self._num_accepted -= flight.refusal is None
        self._record(flight, at_ns)
        job = self._job
        while self._held and (job.max_inflight is None or len(self._live) < job.max_inflight):
            held = self._held.popleft()
            held.recorder.held_ns = at_ns - (held.recorder.dispatched_ns or 0)
            self._send(held, at_ns)

    def _record(self, flight: _Flight, at_ns: int) -> None:
        self._requests += 1
        record = flight.recorder.record(0)
        self._sink(record)
        self._plan.ended(flight.due, at_ns - self._job.start_ns, record.outcome)
        self._account_dropped()

    def _account_dropped(self) -> None:
        """Records for requests that will never be due."""
        for dropped in self._plan.dropped():
            item = self._items[(self._job.offset + dropped.due.sequence) % len(self._items)]
            recorder = Recorder(self._identity(dropped.due, item))
            recorder.stamp_source = HOST
            recorder.fail(Outcome.NOT_SENT, dropped.why, ns=recorder.identity.intended_ns, kind=dropped.kind)
            self._requests += 1
            self._sink(recorder.record(0))

    def _cancel(self, name: str) -> None:
        self.engine.cancel(name, self.clock.now_ns)

    def _give_up_held(self, at_ns: int) -> None:
        while self._held:
            flight = self._held.popleft()
            flight.recorder.held_ns = at_ns - (flight.recorder.dispatched_ns or 0)
            words = f"held back by --max-inflight {self._job.max_inflight} until the stage was over"
            flight.recorder.fail(Outcome.NOT_SENT, words, ns=at_ns, kind="held")
            self._record(flight, at_ns)

    def _give_up(self, at_ns: int) -> None:
        """The drain is over."""
        self._give_up_held(at_ns)
        words = f"still in flight when the drain of {format_duration(self._job.drain_ns)} was over"
        for name, flight in list(self._live.items()):
            flight.recorder.fail(Outcome.UNFINISHED, words, ns=at_ns, kind="drain")
            self._cancel(name)
            self._ended(flight, at_ns)
