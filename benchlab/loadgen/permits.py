"""One cap on requests in flight over all workers of a host, in shared memory: nothing is sent but a wake-up byte.

The one idea: each worker writes down, in a page that all map, how many permits it holds and since when its first
request waits; only taking one needs the lock (an advisory one on the page's file, which the kernel frees with its
holder). Who has waited longest goes first. A worker that died is known by its lock on a file of its own, and what it
held is free again. It must not know what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

from benchlab.errors import UsageError

_SLOT = struct.Struct("3q")
"""held, since (ns of the monotonic clock, 0: nobody waits), here (1 once the worker has come)."""
_LOOK_AGAIN_S = 0.05
"""How often a worker that waits looks by itself: a wake-up can be lost with the worker that should have sent it."""


class Permits:
    """A worker's part of the cap. Made inside a running loop; `wake` is called when a permit may be free."""

    def __init__(
        self, folder: Path, worker: int, *, workers: int, cap: int, wake: Callable[[], None], name: str = "permits"
    ) -> None:
        try:
            import fcntl
        except ImportError:
            hint = "use --workers 1, or leave --max-inflight out"
            raise UsageError(
                "this platform has no cap over several workers", where="--max-inflight", hint=hint
            ) from None
        self._fcntl = fcntl
        self._cap, self._worker, self._workers, self._wake = cap, worker, workers, wake
        self._folder, self._name = folder, name
        size = _SLOT.size * workers
        self._file = os.open(folder / f"{name}.page", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, size)
        self._page = mmap.mmap(self._file, size)
        self._alive = os.open(self._path(worker, "alive"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self._put(0, 0)
        self._bells: dict[int, int] = {}
        self._bell = self._open_bell(worker)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._bell, self._rung)
        self._timer: asyncio.TimerHandle | None = None
        self._impatient = self._kept_for_another = False

    # -- what a driver asks

    def take(self, since_ns: int) -> bool:
        """Take a permit for a request that has waited since then. False: it has to wait, and `wake` will be called."""
        fcntl = self._fcntl
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            slots = self._slots()
            free = self._cap - sum(held for held, _, _ in slots)
            if free <= 0 and self._impatient:
                free += self._free_dead(slots)
            # a permit that was kept for another all this time is nobody's: whoever it was kept for does not come
            before = 0 if self._impatient and self._kept_for_another else self._before(slots, since_ns)
            held = slots[self._worker][0]
            got = free > before
            self._put(held + got, 0 if got else since_ns)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._impatient = False
        self._kept_for_another = free > 0 and not got
        if got:
            self._stop_looking()
        elif free > 0:  # it is for somebody who has waited longer
            self.ring()
        if not got and self._timer is None:
            self._timer = self._loop.call_later(_LOOK_AGAIN_S, self._look_again)
        return got

    def give_back(self) -> None:
        """One of this worker's requests has ended."""
        held, since, _ = self._slots()[self._worker]
        self._put(held - 1, since)
        self.ring()

    def nobody_waits(self) -> None:
        """This worker has no request that waits."""
        held, since, _ = self._slots()[self._worker]
        self._stop_looking()
        if since:
            self._put(held, 0)
            self.ring()

    def ring(self) -> None:
        """Wake the worker that has waited longest, if a permit is free and it is another."""
        slots = self._slots()
        waiting = [(since, index) for index, (_, since, _) in enumerate(slots) if since]
        if not waiting or sum(held for held, _, _ in slots) >= self._cap:
            return
        _, index = min(waiting)
        if index != self._worker:
            with contextlib.suppress(OSError):
                os.write(self._bells.get(index) or self._open_bell(index), b"!")

    def close(self) -> None:
        """Give everything back and leave."""
        self._stop_looking()
        self._put(0, 0)
        self._loop.remove_reader(self._bell)
        self.ring()
        for descriptor in (*self._bells.values(), self._alive):
            os.close(descriptor)
        self._page.close()
        os.close(self._file)

    # -- the page

    def _slots(self) -> list[tuple[int, int, int]]:
        return list(_SLOT.iter_unpack(self._page[:]))

    def _put(self, held: int, since_ns: int) -> None:
        start = self._worker * _SLOT.size
        self._page[start : start + _SLOT.size] = _SLOT.pack(held, since_ns, 1)

    def _before(self, slots: list[tuple[int, int, int]], since_ns: int) -> int:
        """Other workers whose first request has waited longer: a permit is kept for each."""
        mine = (since_ns, self._worker)
        return sum(bool(since) and (since, index) < mine for index, (_, since, _) in enumerate(slots))

    def _free_dead(self, slots: list[tuple[int, int, int]]) -> int:
        """Clear the slots of workers that are gone; returns how many permits that frees. Under the lock."""
        freed = 0
        for index, (held, since, here) in enumerate(slots):
            if index == self._worker or not here or not (held or since) or self._is_alive(index):
                continue
            self._page[index * _SLOT.size : (index + 1) * _SLOT.size] = _SLOT.pack(0, 0, 0)
            slots[index] = (0, 0, 0)
            freed += held
        return freed

    def _is_alive(self, index: int) -> bool:
        fcntl = self._fcntl
        try:
            other = os.open(self._path(index, "alive"), os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(other)
        return False

    # -- waking

    def _path(self, worker: int, kind: str) -> Path:
        return self._folder / f"{self._name}-{worker}.{kind}"

    def _open_bell(self, worker: int) -> int:
        path = self._path(worker, "bell")
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        self._bells[worker] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        return self._bells[worker]

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)
        self._wake()

    def _look_again(self) -> None:
        self._timer = None
        self._impatient = True
        self._wake()

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
