"""The run directory: the evidence package that every table and page is made from. Nothing is ever overwritten.

`manifest.json · requests.parquet · telemetry.parquet · items.parquet · summary.json · report.html`, `engine.parquet`
where the engine tells its own times, and `spool/` while a run is on.
"""

from __future__ import annotations

import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchlab.errors import StorageError, UsageError
from benchlab.records.manifest import Manifest, read_manifest, write_json
from benchlab.records.schema import ENGINE, REQUESTS, SAMPLES

_DAMAGED = "the file is damaged: take it from where the run was made"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def slug(name: str, limit: int = 40) -> str:
    """A name made safe for a file: letters, digits, dot, dash, underscore; never empty, never hidden."""
    return _UNSAFE.sub("-", name).strip("-.")[:limit].strip("-.") or "run"


def new_run_directory(out: Path | None, *, name: str, wall_ns: int) -> tuple[Path, str]:
    """Make a new run directory; returns it with its run id. `out` is used as given, else `runs/<time>-<slug>-<id>`.

    Raises UsageError when it cannot be made or already holds something: known before any load, and another one helps.
    """
    stamp = datetime.fromtimestamp(wall_ns / 1e9, tz=UTC).strftime("%Y%m%d-%H%M%S")
    run_id = f"{stamp}-{slug(name)}-{secrets.token_hex(3)}"
    path = out if out is not None else Path("runs") / run_id
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(
                "already holds something, and nothing is ever overwritten",
                where=str(path),
                hint="give another -o/--out",
            )
        path.mkdir(parents=True, exist_ok=True)
        (path / "spool").mkdir()  # whoever makes it owns the directory, also when two runs start at once
    except FileExistsError as error:
        raise UsageError("another run has just taken it", where=str(path), hint="give another -o/--out") from error
    except OSError as error:
        raise UsageError(
            f"cannot be made: {error.strerror or error}", where=str(path), hint="give another -o/--out"
        ) from error
    return path, run_id


class Run:
    """A stored run, opened for reading. `path` may be the directory or its manifest.json."""

    def __init__(self, path: Path) -> None:
        self.path = path.parent if path.name == "manifest.json" else path
        if not self.path.is_dir():
            raise UsageError("no such run directory", where=str(path), hint="`ls runs/` shows what there is")
        if not (self.path / "requests.parquet").exists() and (self.path / "spool").is_dir():
            raise UsageError(
                "this run did not finish: it has a spool and no requests.parquet",
                where=str(self.path),
                hint=f"benchlab recover {self.path}",
            )
        self.manifest: Manifest = read_manifest(self.path / "manifest.json")

    @property
    def run_id(self) -> str:
        return str(self.manifest.get("run_id", self.path.name))

    def requests(self) -> pa.Table:
        """`requests.parquet` with the columns of `REQUESTS`; what an older file lacks is null."""
        path = self.path / "requests.parquet"
        return _conform(read_parquet(path), REQUESTS, path)

    def telemetry(self) -> pa.Table:
        """`telemetry.parquet`, or an empty table where there is none."""
        path = self.path / "telemetry.parquet"
        return _conform(read_parquet(path), SAMPLES, path) if path.exists() else SAMPLES.empty_table()

    def engine(self) -> pa.Table:
        """`engine.parquet`: the engine's own times by request id, or an empty table where it told none."""
        path = self.path / "engine.parquet"
        return _conform(read_parquet(path), ENGINE, path) if path.exists() else ENGINE.empty_table()


def _conform(table: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    columns = []
    for column in schema:
        if column.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, column.type))
            continue
        try:
            columns.append(table.column(column.name).cast(column.type))
        except pa.ArrowException as error:
            raise UsageError(f"column '{column.name}' is no {column.type}", where=str(path), hint=_DAMAGED) from error
    return pa.Table.from_arrays(columns, schema=schema)


def read_parquet(path: Path) -> pa.Table:
    """A Parquet file as a table. Raises UsageError naming the file."""
    try:
        return pq.read_table(path)
    except FileNotFoundError:
        raise UsageError("no such file", where=str(path), hint="`ls` the run directory: is it a whole one?") from None
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot be read as Parquet: {error}", where=str(path), hint=_DAMAGED) from error


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table as zstd Parquet, whole or not at all. Raises StorageError."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        pq.write_table(table, temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(
            f"cannot be written: {error.strerror or error}",
            where=str(path),
            hint="free some space, then `benchlab recover` the run directory: its spool is kept",
        ) from error


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `manifest.json` into a run directory."""
    write_json(path / "manifest.json", manifest)


def drop_spool(path: Path) -> None:
    """Remove the spool once everything in it stands in Parquet."""
    shutil.rmtree(path / "spool", ignore_errors=True)
