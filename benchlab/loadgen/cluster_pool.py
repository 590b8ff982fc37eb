"""Workers on several machines behind the face of a WorkerPool: same calls, same reports, same spool on disk.

The one idea: the parent asks every node for its news twice a second and appends what it gets to the run's own spool,
so that storing, judging and `recover` know no difference. The timetable is strided over all workers of all nodes. A
node that is gone, silent or broken is lost: what it leaves open gets records, the stage goes on to its planned end on
the others, and `lost` says so. It must not know what carries the calls.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from benchlab.clock import Clock
from benchlab.errors import StorageError, TargetError
from benchlab.loadgen.cluster import Cluster
from benchlab.loadgen.cluster_channel import LostError, UnansweredError
from benchlab.loadgen.cluster_clock import measure_offset
from benchlab.loadgen.cluster_host import Host, alone, as_error, stand_in
from benchlab.loadgen.cluster_lost import account
from benchlab.loadgen.cluster_node import News
from benchlab.loadgen.counters import Counts
from benchlab.loadgen.job import Failed, Ready, StageJob, StageReport, WorkerJob
from benchlab.units import NS_PER_S
from benchlab.workload.item import WorkloadItem

_READY_S = 120.0
_CALL_S = 10.0
_CLOCK_S = 2.0
_NEWS_S = 0.5
_SILENT_S = 20.0
_LAST_S = 10.0
_TICK_S = 0.1
_NAME = re.compile(r"worker-(\d+)\.(requests\.arrow|begun\.arrow|texts\.arrow|log)")
_LEAD_NS = NS_PER_S


class ClusterPool:
    """The workers of a cluster's nodes for the length of a run, with the calls of `pool.WorkerPool`.

    hosts: the manifest's entries of the nodes, kept up to date in place. lost: what was lost, in words, "" for
    nothing. lost_workers: whose reports are only stand-ins.
    """

    lead_ns = _LEAD_NS
    """How much earlier than to a process of this host a stage must be given out."""

    def __init__(
        self, cluster: Cluster, jobs: Sequence[WorkerJob], *, spool: Path, clock: Clock, connections: int | None = None
    ) -> None:
        """jobs: one a worker, as for a pool of this host; where they run is settled here. Worker k is on node k modulo
        the number of nodes, so that a stage of few users is on many nodes.
        """
        self._cluster, self._channel, self._spool, self._clock = cluster, cluster.channel, spool, clock
        self._items: list[WorkloadItem] = jobs[0].items
        self._t0_ns = jobs[0].t0_ns
        self._say: Callable[[str], None] = lambda text: None
        self._now: dict[int, int] = {}
        self.lost = ""
        self.lost_workers: frozenset[int] = frozenset()
        self.loop = self.stamp_source = ""
        num = len(cluster.members)
        self._hosts = [
            Host.of(member, [job.worker for job in jobs[index::num]]) for index, member in enumerate(cluster.members)
        ]
        try:
            self._start(jobs, connections)
        except BaseException:
            for host in self._living():
                self._clean(host)
            raise

    # -- the face of a pool

    @property
    def pids(self) -> dict[str, int]:
        """None of this host: telemetry of the parent cannot look at them."""
        return {}

    @property
    def hosts(self) -> list[dict[str, Any]]:
        """The manifest's entries, in the order of the nodes."""
        return [host.entry for host in self._hosts]

    def tell(self, say: Callable[[str], None]) -> None:
        """Where to say that a node was lost."""
        self._say = say

    def counts(self) -> Counts:
        """The workers' live counters as last heard, added up."""
        total = Counts(stage=max(host.counts.stage for host in self._hosts))
        for host in self._hosts:
            for counter in fields(Counts):
                if counter.name in ("stage", "ttft_us") or (host.gone and counter.name in ("inflight", "held")):
                    continue
                setattr(total, counter.name, getattr(total, counter.name) + getattr(host.counts, counter.name))
            total.ttft_us = max(total.ttft_us, host.counts.ttft_us)
        return total

    def run_stage(self, jobs: Sequence[StageJob], tick: Callable[[], None]) -> list[StageReport]:
        """Run one stage, a slice a worker; `tick` is called some ten times a second meanwhile and may raise.

        Returns a report a worker; a lost worker's holds nothing but how many requests were counted for it.
        """
        jobs = [alone(job, index, jobs) for index, job in enumerate(jobs)]
        num = len(self._hosts)
        for index, host in enumerate(self._hosts):
            host.jobs, host.reports, host.busy = list(jobs[index::num]), [], True
            if host.gone:  # lost between two stages
                self._settle(host)
            else:
                theirs = [msgspec.structs.replace(job, start_ns=job.start_ns + host.offset_ns) for job in host.jobs]
                self._channel.call(host.member.agent, "begin", theirs)
                host.heard_s, host.next_s = time.monotonic(), 0.0
        while any(host.busy for host in self._hosts):
            self._hear(_TICK_S)
            tick()
        return sorted((report for host in self._hosts for report in host.reports), key=lambda report: report.worker)

    def stop_stage(self, why: str, drain_ns: int) -> None:
        """Tell every worker to send nothing more and to drain for at most `drain_ns`."""
        for host in self._living():
            self._channel.call(host.member.agent, "stop", why, drain_ns)

    def close(self) -> None:
        """Measure the clocks once more, end the workers, bring the rest of their spools home."""
        living = self._living()
        for host in living:
            self._measure(host)
        calls = [(host, self._channel.call(host.member.agent, "quit")) for host in living]
        deadline = time.monotonic() + _LAST_S
        for host, call in calls:
            try:
                self._channel.get(call, max(0.1, deadline - time.monotonic()))
                while self._store(host, self._ask(host, "news", host.have, timeout_s=_CALL_S)).more:
                    pass
                self._ask(host, "leave", timeout_s=_CALL_S)
            except (LostError, UnansweredError) as error:
                self._lose(host, str(error), sending=False)
        for host in self._hosts:
            self._channel.end(host.member.agent)

    def __enter__(self) -> ClusterPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the beginning

    def _start(self, jobs: Sequence[WorkerJob], connections: int | None) -> None:
        """Clocks, then workers. What goes wrong here is raised: nothing was sent yet."""
        bare = [msgspec.structs.replace(job, items=[], headers={}, spool="", counters="") for job in jobs]
        items = self._channel.put(self._items)
        num = len(self._hosts)
        calls = []
        for index, host in enumerate(self._hosts):
            if not self._measure(host):
                raise TargetError(f"node {host.member.name} was lost: {host.gone}", where="--cluster")
            named = [
                msgspec.structs.replace(job, host=host.member.name, t0_ns=self._t0_ns + host.offset_ns)
                for job in bare[index::num]
            ]
            call = self._channel.call(host.member.agent, "start", named, jobs[0].headers, items, connections)
            calls.append((host, call))
        for host, call in calls:
            try:
                ready = self._channel.get(call, _READY_S)
            except (LostError, UnansweredError) as error:
                words = f"node {host.member.name} did not start its workers: {error}"
                raise TargetError(words, where="--cluster", hint="look at Ray's logs on that node") from None
            if isinstance(ready, Failed):
                raise as_error(ready, host.member.name)
            if isinstance(ready, Ready):
                host.entry |= {"loop": ready.loop, "stamp_source": ready.stamp_source}
        self.loop = "+".join(sorted({host.entry["loop"] for host in self._hosts}))
        self.stamp_source = "+".join(sorted({host.entry["stamp_source"] for host in self._hosts}))

    def _measure(self, host: Host) -> bool:
        """The node's clock against this one's, noted; the first measurement is what its times are counted from."""
        try:
            found = measure_offset(lambda: self._ask(host, "clock", timeout_s=_CLOCK_S), self._clock)
        except (LostError, UnansweredError) as error:
            host.gone = host.gone or str(error)
            return False
        host.note_clock(found, self._t0_ns)
        return True

    # -- what is heard

    def _living(self) -> list[Host]:
        return [host for host in self._hosts if not host.gone]

    def _ask(self, host: Host, method: str, *args: Any, timeout_s: float) -> Any:
        return self._channel.get(self._channel.call(host.member.agent, method, *args), timeout_s)

    def _clean(self, host: Host) -> None:
        """End the workers of a node that can still be talked to, and their files there."""
        with contextlib.suppress(LostError, UnansweredError):
            self._ask(host, "quit", timeout_s=_CALL_S)
            self._ask(host, "leave", timeout_s=_CALL_S)

    def _hear(self, timeout_s: float) -> None:
        """Ask whoever it is time to ask, take what was answered, notice who has been silent for too long."""
        now = time.monotonic()
        for host in self._hosts:
            if host.busy and host.asked is None and now >= host.next_s:
                host.asked = self._channel.call(host.member.agent, "news", dict(host.have))
        asked = [host.asked for host in self._hosts if host.asked is not None]
        if not asked:
            time.sleep(timeout_s)
            return
        done = self._channel.wait(asked, timeout_s)
        for host in self._hosts:
            if host.asked is not None and any(host.asked is call for call in done):
                call, host.asked = host.asked, None
                self._take(host, call)
            elif host.busy and time.monotonic() - host.heard_s > _SILENT_S:
                self._lose(host, f"it did not answer for {_SILENT_S:.0f} s")

    def _take(self, host: Host, call: Any) -> None:
        try:
            news: News = self._channel.get(call, _CALL_S)
        except UnansweredError as error:
            host.next_s = time.monotonic() + _NEWS_S
            if time.monotonic() - host.heard_s > _SILENT_S:
                self._lose(host, str(error))
            return
        except LostError as error:
            self._lose(host, str(error))
            return
        self._store(host, news)
        host.heard_s = time.monotonic()
        host.next_s = 0.0 if news.more else host.heard_s + _NEWS_S
        if news.more:
            return
        if news.failed is not None:
            self._clean(host)  # its host is well
            self._lose(host, news.failed.what)
        elif news.reports is not None and all(report.stage == host.jobs[0].stage for report in news.reports):
            host.reports, host.busy = news.reports, False

    def _store(self, host: Host, news: News) -> News:
        """Append the bytes to this run's spool, as if the worker had written them here."""
        host.counts = news.counts
        for piece in news.pieces:
            known = _NAME.fullmatch(piece.name)
            if known is None or int(known[1]) not in host.workers or piece.offset != host.have.get(piece.name, 0):
                continue  # no file of this node's workers, or not what was asked for
            path = self._spool / piece.name
            try:
                with path.open("ab") as file:
                    file.write(piece.data)
            except OSError as error:
                raise StorageError(
                    f"cannot write records: {error.strerror or error}",
                    where=str(path),
                    hint="free some space; what was written before is kept, see `benchlab recover`",
                ) from error
            host.have[piece.name] = piece.offset + len(piece.data)
        return news

    # -- what is lost

    def _lose(self, host: Host, why: str, *, sending: bool = True) -> None:
        """The node takes no further part. `sending`: a stage was on, and its requests have to be counted."""
        now_ns = self._clock.monotonic_ns() - self._t0_ns
        host.gone, host.asked = why, None
        host.entry["lost"] = {"at_ns": now_ns, "why": why, "sending": sending, "requests": 0}
        self._channel.end(host.member.agent)
        if not sending:
            return
        words = f"node {host.member.name} was lost"
        self.lost = self.lost or words
        self.lost_workers |= frozenset(host.workers)
        self._say(f"{words} ({why}): the stage goes on without it, its requests are counted, the run is INVALID")
        self._settle(host)

    def _settle(self, host: Host) -> None:
        """Records for what the lost node's slices leave open; stand-ins for its reports."""
        lost_ns = host.entry["lost"]["at_ns"]
        for worker, job in zip(host.workers, host.jobs, strict=True):
            requests = account(
                self._spool,
                job,
                worker=worker,
                host=host.member.name,
                start_ns=job.start_ns - self._t0_ns,
                lost_ns=lost_ns,
                items=self._items,
                why=f"node {host.member.name} was lost",
            )
            host.entry["lost"]["requests"] += requests.made
            host.reports.append(stand_in(job, worker, requests.total))
        host.busy = False
