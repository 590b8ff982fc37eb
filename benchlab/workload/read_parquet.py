"""Rows of a Parquet file (data sets as Hugging Face keeps them), batch by batch, as the dictionaries of JSON rows.

It must not know what the columns mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

from benchlab.errors import UsageError

MAGIC = b"PAR1"
_BATCH = 4096


def is_parquet(path: str) -> bool:
    """Whether a file begins as Parquet files do."""
    try:
        if not Path(path).is_file():  # a pipe can be read but once
            return False
        with open(path, "rb") as file:
            return file.read(4) == MAGIC
    except (OSError, ValueError):
        return False  # told when it is read


def digest(path: str) -> str:
    """sha256 of the file as it lies."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parquet_rows(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row from 1, its columns that hold something). Raises UsageError for a file that is none or broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _plain(value) for name, value in row.items() if value is not None}
    except (pa.ArrowException, OSError, ValueError) as fault:
        raise UsageError(
            f"cannot be read as Parquet: {fault}", where=path, hint="check that the file is whole"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value
