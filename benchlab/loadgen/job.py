"""What the parent tells a worker and what it hears back, as msgpack over pipes: never through a file, since headers
may hold secrets. Nothing here is on the hot path.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec

from benchlab.loadgen.abandon import Abandon
from benchlab.loadgen.think import ThinkTime
from benchlab.workload.item import WorkloadItem

_LENGTH_BYTES = 8
_MAX_MESSAGE = 2**32


class WorkerJob(msgspec.Struct, tag="job"):
    """Everything that stays the same for a run. Times in ns; `t0_ns` on the monotonic clock of this host."""

    worker: int
    host: str
    t0_ns: int
    spool: str
    counters: str
    url: str
    api: str
    model: str
    headers: dict[str, str]
    extra: dict[str, Any]
    items: list[WorkloadItem]
    connect_timeout_ns: int | None = None
    first_content_timeout_ns: int | None = None
    gap_timeout_ns: int | None = None
    total_timeout_ns: int | None = None
    keep_text: bool = False
    kernel_stamps: bool = True
    transport: str = "auto"
    source_addresses: list[str] = []
    """Connections are made from these in turn; none: the system chooses."""
    salt: str | None = None
    """Cold cache: items that come round again get this salt and their round, so that no prompt is met twice."""


class StageJob(msgspec.Struct, tag="stage"):
    """One worker's slice of one stage. Times in ns from `start_ns` (monotonic) where not said otherwise."""

    stage: int
    kind: str
    start_ns: int
    until_ns: int | None
    drain_ns: int
    offset: int
    """Where in the workload the stage begins: item of sequence s is (offset + s) modulo the number of items."""
    at_ns: list[int] = []
    sequences: list[int] = []
    users: list[int] = []
    count: int | None = None
    first: int = 0
    step: int = 1
    think: ThinkTime = ThinkTime()
    seed: int = 0
    """Of everything that is drawn while the stage runs (think times, who abandons): the seed of arrivals."""
    sessions: bool = False
    """Each arrival and each turn of a user is a whole session; `sequences`, `first` and `step` number sessions."""
    keep_times: bool = False
    """Later turns are due no earlier than their own arrival times (traces)."""
    max_inflight: int | None = None
    permits: str | None = None
    """Folder of the shared memory through which `workers` workers keep `max_inflight` together; None: it is this
    worker's own."""
    workers: int = 1
    abandon: list[Abandon] = []
    precise: bool = False
    limit_ns: int | None = None
    """The sending phase is ended at this time after the start, whatever is left to send."""
    held_in_drain: bool = False
    """A stage of so many requests sends what the cap held back until its drain is over; one of so much time does
    not: what was not sent by its end stays `not_sent`."""

    def request_id(self, sequence: int) -> str:
        """The name of a request in records and on the wire: unique in a run, whichever worker sends it."""
        return f"s{self.stage}-{sequence}"


class StopStage(msgspec.Struct, tag="stop"):
    """Send nothing more, drain for at most `drain_ns`, then report."""

    why: str
    drain_ns: int


class Quit(msgspec.Struct, tag="quit"):
    """Close the spool and end."""


class Ready(msgspec.Struct, tag="ready"):
    """The worker has its items and its client and waits for a stage."""

    loop: str
    stamp_source: str


class StageReport(msgspec.Struct, tag="report"):
    """How the client itself fared in a stage (its part of the certificate).

    cpu_s, wall_s, events_sending: of the sending phase, since an idle drain would make a busy client look idle.
    stopped: why it was ended early, `stopped_ns` after its start; None if it was not. sessions: how many were begun.
    backoff_times, backoff_ns: pauses of users after connection errors.
    """

    stage: int
    worker: int
    cpu_s: float
    wall_s: float
    loop_lag_ms: dict[str, float | None]
    events: int
    merged_chunks: int
    connections: int
    retries: int
    peak_inflight: int
    held: int
    requests: int
    max_inflight: int | None
    clock_steps_ns: list[int]
    offset_error_ns: int
    stopped: str | None = None
    stopped_ns: int | None = None
    events_sending: int = 0
    sessions: int | None = None
    backoff_times: int = 0
    backoff_ns: int = 0


class Failed(msgspec.Struct, tag="failed"):
    """The worker cannot go on; what it measured is in its spool."""

    what: str
    where: str
    hint: str
    exit_code: int


ToWorker = WorkerJob | StageJob | StopStage | Quit
FromWorker = Ready | StageReport | Failed

_encode = msgspec.msgpack.Encoder().encode
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_from_worker = msgspec.msgpack.Decoder(FromWorker)


def send(pipe: IO[bytes], message: ToWorker | FromWorker) -> None:
    """Write one message. Raises BrokenPipeError when the other side is gone."""
    data = _encode(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    if length > _MAX_MESSAGE:
        return None
    data = pipe.read(length)
    return data if len(data) == length else None


def receive_in_worker(pipe: IO[bytes]) -> ToWorker | None:
    """The next message from the parent, None when it is gone."""
    data = _receive(pipe)
    return None if data is None else _to_worker.decode(data)


def receive_in_parent(pipe: IO[bytes]) -> FromWorker | None:
    """The next message from a worker, None when it is gone or speaks nonsense."""
    data = _receive(pipe)
    try:
        return None if data is None else _from_worker.decode(data)
    except msgspec.DecodeError:
        return None
