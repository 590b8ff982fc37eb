"""What becomes of the requests of a worker that was lost: every one of them is counted, none is guessed to be well.

The one idea: the timetable says what the worker was to send, the spool what was seen of it; the difference gets
records of its own. What had begun, or was due before the loss and may have begun, is `unfinished`; what was due later
is `not_sent`. It must not know how the worker was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchlab.errors import StorageError
from benchlab.loadgen.job import StageJob
from benchlab.loadgen.session_graph import SessionGraph
from benchlab.records import spool
from benchlab.records.event import Outcome
from benchlab.records.record import Record
from benchlab.records.schema import REQUESTS, records_from, requests_batch
from benchlab.workload.item import WorkloadItem

KIND = "lost"
"""`error_kind` of every record that is made here."""


@dataclass(frozen=True, slots=True)
class Accounted:
    """Requests of a slice that have a record now, and how many of those were made because of the loss."""

    total: int
    made: int


def account(
    folder: Path,
    job: StageJob,
    *,
    worker: int,
    host: str,
    start_ns: int,
    lost_ns: int,
    items: Sequence[WorkloadItem],
    why: str,
) -> Accounted:
    """Write records for what the worker's slice leaves open.

    folder: the run's spool. job: the slice (of its instants only those from the stage's start are used).
    start_ns, lost_ns: the stage's start and the loss, ns from t0.
    """
    seen = spool.merge(folder, why_unfinished=why)
    mine = pc.and_(pc.equal(seen.column("worker"), worker), pc.equal(seen.column("stage"), job.stage))
    seen = seen.filter(mine)
    begun = pc.and_(pc.equal(seen.column("outcome"), "unfinished"), pc.equal(seen.column("error_kind"), "killed"))
    made = list(records_from(seen.filter(begun)))
    for record in made:
        record.error_kind = KIND
    ids = set(seen.column("request_id").to_pylist())
    made += [
        _record(job, sequence, at_ns, known_begun, worker=worker, host=host, items=items, why=why)
        for sequence, at_ns, known_begun in _unseen(job, items, ids, start_ns=start_ns, lost_ns=lost_ns)
    ]
    if made:
        _write(folder / f"lost-{job.stage}-{worker}.requests.arrow", made)
    return Accounted(len(ids | {record.request_id for record in made}), len(made))


def _unseen(
    job: StageJob, items: Sequence[WorkloadItem], seen: set[str], *, start_ns: int, lost_ns: int
) -> Iterator[tuple[int, int, bool]]:
    """(sequence, intended ns from t0, whether it may have begun) of what the slice holds and nobody saw.

    A closed loop of so many requests has no instants: its next requests, one a user, may have been under way; the
    others had no time yet and get that of the loss. One of so much time wanted no certain number: nothing is made up.
    Of a session the later turns have no time of their own either: they get that of its beginning.
    """
    graph = SessionGraph(items) if job.sessions else None
    later = max(lost_ns, start_ns)
    starts = [(number, start_ns + at_ns) for number, at_ns in zip(job.sequences, job.at_ns, strict=False)]
    may_have = [at_ns <= lost_ns for _, at_ns in starts]
    if job.kind == "closed" and job.count is not None:
        numbers = [job.first + place * job.step for place in range(job.count)]
        numbers = [number for number in numbers if not _whole(job, graph, number, seen)]
        starts = [(number, later) for number in numbers]
        may_have = [place < len(job.users) and start_ns <= lost_ns for place in range(len(starts))]
    for (number, at_ns), begun in zip(starts, may_have, strict=True):
        for sequence in _sequences(job, graph, number):
            if job.request_id(sequence) not in seen:
                yield sequence, at_ns, begun


def _sequences(job: StageJob, graph: SessionGraph | None, number: int) -> range:
    """Sequence numbers of the requests that one arrival, or one turn of a user, stands for."""
    if graph is None:
        return range(number, number + 1)
    session = graph.session_at(job.offset) + number
    base = graph.position(session) - job.offset
    return range(base, base + len(graph.places(session)))


def _whole(job: StageJob, graph: SessionGraph | None, number: int, seen: set[str]) -> bool:
    return all(job.request_id(sequence) in seen for sequence in _sequences(job, graph, number))


def _record(
    job: StageJob,
    sequence: int,
    intended_ns: int,
    begun: bool,
    *,
    worker: int,
    host: str,
    items: Sequence[WorkloadItem],
    why: str,
) -> Record:
    item = items[(job.offset + sequence) % len(items)]
    words = f"{why}; whether it had been sent is not known" if begun else f"{why} before this was due"
    return Record(
        request_id=job.request_id(sequence),
        stage=job.stage,
        item_id=item.id,
        outcome=Outcome.UNFINISHED if begun else Outcome.NOT_SENT,
        intended_ns=intended_ns,
        error=words,
        error_kind=KIND,
        session_id=item.session,
        turn=item.turn,
        tenant=item.tenant,
        tags=tuple(item.tags),
        requested_tokens=item.output_tokens,
        host=host,
        worker=worker,
        unknown=("dispatched_ns", "sent_ns", "chunk_ns") if begun else (),
    )


def _write(path: Path, records: Sequence[Record]) -> None:
    try:
        with path.open("wb") as file, pa.ipc.new_stream(file, REQUESTS) as writer:
            writer.write_batch(requests_batch(records))
    except OSError as error:
        raise StorageError(f"cannot write records: {error.strerror or error}", where=str(path)) from error
