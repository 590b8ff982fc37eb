"""A file as numbered lines of bytes: opened, unpacked and hashed as it streams, with every fault told in words.

It must not know what stands in a line.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from benchlab.errors import UsageError

MAX_LINE_BYTES = 32 * 2**20
_BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BUFFER = 2**20


class _Hashing(io.RawIOBase):
    """Passes bytes on and hashes them, so that a file is read once."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self.digest.update(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class Lines:
    """Iterate for (line number from 1, bytes without its end).

    sha256: of the file as it lies, when it has ended. offset: where the present line starts. packed: the file is
    compressed, so that an offset is no place in it.
    """

    def __init__(self, path: str | Path, *, max_line: int = MAX_LINE_BYTES) -> None:
        self.path = str(path)
        self.sha256 = ""
        self.offset = 0
        self.packed = False
        self._max_line = max_line

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Raises UsageError for a file that is missing, a folder, unreadable, badly packed, or with a huge line."""
        hashing = _Hashing(self._open())
        with io.BufferedReader(hashing, _BUFFER) as packed:
            try:
                stream = _unpacked(packed)  # held to the end: letting it go would close what it reads
                self.packed = stream is not packed
                yield from self._numbered(stream)
                while packed.read(_BUFFER):
                    pass
            except _BROKEN as fault:
                raise UsageError(
                    f"cannot be read: {fault}", where=self.path, hint="check that the file is whole (gzip -t, zstd -t)"
                ) from fault
            self.sha256 = hashing.digest.hexdigest()

    def _open(self) -> IO[bytes]:
        try:
            return open(self.path, "rb", buffering=0)
        except FileNotFoundError:
            raise UsageError(
                "no such file", where=self.path, hint="check the path, or name a shipped workload"
            ) from None
        except IsADirectoryError:
            raise UsageError("is a folder, not a file", where=self.path, hint="name one file in it") from None
        except (OSError, ValueError) as fault:
            raise UsageError(f"cannot be opened: {fault}", where=self.path) from fault

    def _numbered(self, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        number = after = 0
        most = self._max_line
        readline = stream.readline
        while line := readline(most + 1):
            number += 1
            if len(line) > most:
                raise UsageError(
                    f"a line of more than {most // 2**20} MiB",
                    where=f"{self.path}:{number}",
                    hint="write one item a line (JSON Lines); a JSON array becomes lines with `jq -c '.[]'`",
                )
            self.offset = after
            after += len(line)
            if number == 1 and line.startswith(_BOM):
                line = line[len(_BOM) :]
                self.offset = len(_BOM)
            yield number, line.rstrip(b"\r\n")


def _zstd_errors() -> tuple[type[Exception], ...]:
    """What Python 3.14's own zstd raises, where there is one."""
    try:
        error: type[Exception] = importlib.import_module("compression.zstd").ZstdError
        return (error,)
    except ImportError:
        return ()


_BROKEN: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error, *_zstd_errors())


def _unpacked(packed: io.BufferedReader[Any]) -> IO[bytes]:
    """The stream itself, or unpacked by its first bytes (the name of a file is not trusted)."""
    head = packed.peek(4)[:4]
    if head.startswith(_GZIP):
        return cast(IO[bytes], gzip.GzipFile(fileobj=packed))
    if head == _ZSTD:
        try:
            return cast(IO[bytes], importlib.import_module("compression.zstd").ZstdFile(packed))
        except ImportError:  # before Python 3.14; pyarrow is there for the records anyway
            import pyarrow as pa

            return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd"))
    return packed
