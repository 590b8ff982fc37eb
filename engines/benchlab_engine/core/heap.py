"""A line in order of a key, whose members may leave from the middle.

The one idea: a binary heap with lazy deletion. Whoever leaves is forgotten by name and skipped when the heap comes to
it; when more than half of the heap is such leftovers it is built anew, so every operation costs the logarithm of the
members, on average, and memory stays bounded by them. It must not know what its members are.
"""

from __future__ import annotations

import heapq
from typing import Any

_LEFTOVERS = 64  # not worth building anew for fewer


class KeyedHeap:
    """Names, each with one key; keys compare with each other, and equal keys fall back to the names."""

    def __init__(self) -> None:
        self._keys: dict[str, Any] = {}
        self._heap: list[tuple[Any, str]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def add(self, name: str, key: Any) -> None:
        """Join, or move to where the new key says."""
        if self._keys.get(name) == key:
            return
        self._keys[name] = key
        heapq.heappush(self._heap, (key, name))
        self._tidy()

    def discard(self, name: str) -> bool:
        """Leave, from wherever it stands. False: it was not here."""
        if self._keys.pop(name, None) is None:
            return False
        self._tidy()
        return True

    def first(self) -> str | None:
        """The name with the least key."""
        while self._heap:
            key, name = self._heap[0]
            if self._keys.get(name) == key:
                return name
            heapq.heappop(self._heap)
        return None

    def first_key(self) -> Any:
        """The least key; None when nobody is here."""
        return None if self.first() is None else self._heap[0][0]

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._keys) + _LEFTOVERS:
            self._heap = [(key, name) for name, key in self._keys.items()]
            heapq.heapify(self._heap)
