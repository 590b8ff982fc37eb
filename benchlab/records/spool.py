"""The spool: finished records and requests under way, appended to disk at least once a second while a run is on.

Each worker owns two Arrow IPC streams. A process that is killed leaves its last batch cut short at most; reading
stops there, and `merge` accounts for every request that had begun: what has no record becomes `unfinished`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa

from benchlab.errors import StorageError
from benchlab.records.event import Outcome
from benchlab.records.record import Identity, Record
from benchlab.records.schema import BEGUN, REQUESTS, TEXTS, requests_batch


class _Stream:
    """An Arrow IPC stream that is written batch by batch and flushed to the kernel each time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = path.open("wb")
        except OSError as error:
            raise StorageError(f"cannot be made: {error.strerror or error}", where=str(path)) from error
        self._writer = pa.ipc.new_stream(self._file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
            self._file.flush()
        except OSError as error:
            raise StorageError(
                f"cannot write records: {error.strerror or error}",
                where=str(self.path),
                hint="free some space; what was written before is kept, see `benchlab recover`",
            ) from error

    def close(self) -> None:
        try:
            self._writer.close()
            self._file.close()
        except (OSError, pa.ArrowException):
            with contextlib.suppress(
                OSError
            ):  # a full disk was told by `write`; the others must be closed all the same
                self._file.close()


class Spool:
    """What one worker appends to. Not on the hot path: `add` is a list append, `flush` writes what was added."""

    def __init__(self, folder: Path, worker: int, *, keep_text: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        pa.array([""])  # the first list makes pyarrow load pandas, half a second long: now, not while a stage runs
        self._requests = _Stream(folder / f"worker-{worker}.requests.arrow", REQUESTS)
        self._begun = _Stream(folder / f"worker-{worker}.begun.arrow", BEGUN)
        self._texts = _Stream(folder / f"worker-{worker}.texts.arrow", TEXTS) if keep_text else None
        self._finished: list[Record] = []
        self._new: dict[str, tuple[Identity, int, int]] = {}
        self._new_texts: list[tuple[str, str, str]] = []

    def begin(self, who: Identity, *, intended_ns: int, dispatched_ns: int) -> None:
        """A request is being acted on; times in ns from t0. Written only if it is still under way at the flush."""
        self._new[who.request_id] = who, intended_ns, dispatched_ns

    def add(self, record: Record, text: str | None = None) -> None:
        """A request ended."""
        self._new.pop(record.request_id, None)
        self._finished.append(record)
        if text is not None and self._texts is not None:
            self._new_texts.append((record.request_id, record.item_id, text))

    def flush(self) -> None:
        """Write what was added since the last flush. Raises StorageError when the disk refuses it."""
        if self._new:
            self._begun.write(_begun_batch(self._new.values()))
            self._new.clear()
        if self._finished:
            self._requests.write(requests_batch(self._finished))
            self._finished = []
        if self._new_texts and self._texts is not None:
            columns = [pa.array(list(column)) for column in zip(*self._new_texts, strict=True)]
            self._texts.write(pa.RecordBatch.from_arrays(columns, schema=TEXTS))
            self._new_texts = []

    def close(self) -> None:
        """Flush and close."""
        try:
            self.flush()
        finally:
            for stream in (self._requests, self._begun, self._texts):
                if stream is not None:
                    stream.close()


def _begun_batch(begun: Iterable[tuple[Identity, int, int]]) -> pa.RecordBatch:
    rows = [
        {column.name: getattr(who, column.name, None) for column in BEGUN}
        | {"intended_ns": intended_ns, "dispatched_ns": dispatched_ns}
        for who, intended_ns, dispatched_ns in begun
    ]
    return pa.RecordBatch.from_pylist(rows, schema=BEGUN)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold a spool folder: True inside if nobody else does, as a run still going would. Ends with its holder."""
    try:
        import fcntl
    except ImportError:  # no such lock on this platform: nothing can be said
        yield True
        return
    with (folder / "lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Whole batches of a stream file; a cut-off tail ends it without a word (that is what a kill leaves)."""
    try:
        with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
            while True:
                try:
                    yield reader.read_next_batch()
                except (StopIteration, pa.ArrowInvalid, OSError, EOFError):
                    return
    except (pa.ArrowInvalid, OSError):
        return


def _read(folder: Path, pattern: str, schema: pa.Schema) -> pa.Table:
    batches = [batch for path in sorted(folder.glob(pattern)) for batch in _batches(path)]
    return pa.Table.from_batches(batches, schema=schema)


def merge(folder: Path, *, why_unfinished: str) -> pa.Table:
    """All requests of a spool folder as one `REQUESTS` table, by stage and intended time.

    Requests that had begun and left no record come in as `unfinished` with the error `why_unfinished`.
    """
    finished = _read(folder, "*.requests.arrow", REQUESTS)
    begun = _read(folder, "*.begun.arrow", BEGUN)
    ids = finished.column("request_id").to_pylist()
    have = set(ids)
    if len(have) < len(ids):  # a write that failed half way and was tried again
        first = {request_id: row for row, request_id in reversed(list(enumerate(ids)))}
        finished = finished.take(sorted(first.values()))
    rows = {row["request_id"]: row for row in begun.to_pylist()}
    lost = [
        Record(
            **{name: value for name, value in row.items() if name not in ("worker", "tags")},
            worker=row["worker"] or 0,
            tags=tuple(row["tags"] or ()),
            outcome=Outcome.UNFINISHED,
            error=why_unfinished,
            error_kind="killed",
            unknown=("sent_ns", "chunk_ns"),
        )
        for row in rows.values()
        if row["request_id"] not in have
    ]
    if lost:
        extra = pa.Table.from_batches([requests_batch(lost)], schema=REQUESTS)
        finished = pa.concat_tables([finished, extra])
    return finished.sort_by([("stage", "ascending"), ("intended_ns", "ascending"), ("request_id", "ascending")])


def merge_texts(folder: Path) -> pa.Table:
    """All kept texts of a spool folder."""
    return _read(folder, "*.texts.arrow", TEXTS)
