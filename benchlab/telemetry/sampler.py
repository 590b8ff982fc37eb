"""The sampler: sources read on an absolute schedule, beside the load, on the run's clock.

Instants are t_start + k × period, so lateness never adds up; an instant that was missed is skipped, not made up for.
Sources that answer at once share one thread; one that waits on a network (`blocking`) has its own, so that a slow
engine makes no hole in the power curve. It knows no source's kind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from benchlab.clock import Clock, SystemClock
from benchlab.records.sample import Sample

NS_PER_S = 1_000_000_000
DEFAULT_PERIOD_NS = NS_PER_S // 2
GAP_NS = 2 * NS_PER_S


class Source(Protocol):
    """Something that can be read again and again.

    period_ns: its own period, None for the sampler's. blocking: it waits on a network. read: never raises for what
    the outside does; now gives ns from t0.
    """

    name: str
    blocking: bool
    period_ns: int | None
    notes: list[str]

    def read(self, now: Callable[[], int]) -> list[Sample]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without a reading of a source (ns from t0), longer than 2 s (or two periods, if those are longer)."""

    source: str
    start_ns: int
    end_ns: int
    why: str


class _Lane:
    """One source, its schedule and what was read of it."""

    def __init__(self, source: Source, period_ns: int) -> None:
        self.source = source
        self.period_ns = period_ns
        self.due_ns = 0
        self.samples: list[Sample] = []
        self.gaps: list[Gap] = []
        self.readings = self.skipped = 0
        self.last_ns: int | None = None
        self.trouble = ""

    @property
    def gap_ns(self) -> int:
        return max(GAP_NS, 2 * self.period_ns)

    def read(self, now: Callable[[], int]) -> None:
        """Read once. A source that raises is noted and stays in: telemetry never ends a run."""
        try:
            samples = self.source.read(now)
        except Exception as error:
            text = f"{self.source.name}: a reading failed: {type(error).__name__}: {error}"
            if text not in self.source.notes:
                self.source.notes.append(text)
            samples = []
            self.trouble = text
        self.samples.extend(samples)
        self.readings += 1
        if any(sample.value is not None and sample.reason is None for sample in samples):
            self.close_gap(now())
            self.last_ns = now()
            self.trouble = ""
        elif samples and samples[-1].reason:
            self.trouble = samples[-1].reason

    def close_gap(self, until_ns: int) -> None:
        if self.last_ns is not None and until_ns - self.last_ns > self.gap_ns:
            why = self.trouble or "the reading came late"
            self.gaps.append(Gap(self.source.name, self.last_ns, until_ns, why))

    def schedule(self, now_ns: int) -> None:
        """The next instant of the fixed grid that still lies ahead."""
        behind = max(0, (now_ns - self.due_ns) // self.period_ns)
        self.skipped += behind
        self.due_ns += (behind + 1) * self.period_ns


class Sampler:
    """Runs sources from `start` to `stop`; a context manager.

    t0_ns: the run's zero on the clock's monotonic reading. Samples are kept in memory, in the order read per source.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        t0_ns: int,
        *,
        clock: Clock | None = None,
        period_ns: int = DEFAULT_PERIOD_NS,
        notes: Sequence[str] = (),
    ) -> None:
        self.period_ns = period_ns
        self._clock = clock or SystemClock()
        self._t0_ns = t0_ns
        self._notes = list(notes)
        self._lanes = [_Lane(source, source.period_ns or period_ns) for source in sources]
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._began_ns: int | None = None
        self._ended_ns: int | None = None

    def now(self) -> int:
        """Nanoseconds from t0."""
        return self._clock.monotonic_ns() - self._t0_ns

    def start(self) -> Sampler:
        """Read every source once, here, so that the first values are older than the load; then go on in threads."""
        self._began_ns = self.now()
        for lane in self._lanes:
            lane.due_ns = lane.last_ns = self._began_ns
            lane.read(self.now)
            lane.schedule(self.now())
        quick = [lane for lane in self._lanes if not lane.source.blocking]
        groups = [quick, *([lane] for lane in self._lanes if lane.source.blocking)]
        for group in groups:
            if group:
                thread = threading.Thread(
                    target=self._run, args=(group,), name=f"telemetry-{group[0].source.name}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
        return self

    def _run(self, lanes: Sequence[_Lane]) -> None:
        try:
            while True:
                due = min(lanes, key=lambda lane: lane.due_ns)
                wait_ns = due.due_ns - self.now()
                if self._stopping.wait(max(0, wait_ns) / NS_PER_S):
                    return
                if self.now() >= due.due_ns:
                    due.read(self.now)
                    due.schedule(self.now())
        finally:  # here, so that a source is never closed under a read that has not ended
            for lane in lanes:
                lane.source.close()

    def stop(self, timeout_s: float = 2.0) -> None:
        """End all threads and let go of the sources. A source stuck in a read is left to its own timeout, noted."""
        if self._ended_ns is not None:
            return
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout_s)
            if thread.is_alive():
                self._notes.append(f"{thread.name}: its last reading had not ended when sampling stopped")
        self._ended_ns = self.now()
        for lane in self._lanes:
            lane.close_gap(self._ended_ns)
            if not self._threads:
                lane.source.close()

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def samples(self) -> list[Sample]:
        """Everything read so far, in order of time. May be called while it runs."""
        return sorted((sample for lane in self._lanes for sample in list(lane.samples)), key=lambda s: s.t_ns)

    @property
    def notes(self) -> list[str]:
        """What was said once: no driver, a failed scrape, duplicates, a restart."""
        return [*self._notes, *(note for lane in self._lanes for note in lane.source.notes)]

    @property
    def gaps(self) -> list[Gap]:
        """Times without a reading, longer than 2 s."""
        return sorted((gap for lane in self._lanes for gap in list(lane.gaps)), key=lambda gap: gap.start_ns)

    def facts(self) -> dict[str, Any]:
        """The manifest's `telemetry` entry."""
        return {
            "sources": [lane.source.name for lane in self._lanes],
            "period_ns": self.period_ns,
            "periods": {lane.source.name: lane.period_ns for lane in self._lanes},
            "readings": {lane.source.name: lane.readings for lane in self._lanes},
            "skipped": {lane.source.name: lane.skipped for lane in self._lanes},
            "notes": self.notes,
            "gaps": [asdict(gap) for gap in self.gaps],
        }
