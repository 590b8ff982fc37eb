"""The memory ledger for people.

The one idea: the same numbers as the JSON line, in units one can read. It must not know where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_BYTES = ("threads", "kv_blocks", "block_size")  # whole numbers of a ledger that are not bytes
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def ledger_text(ledger: Mapping[str, int | str]) -> str:
    """One line a part: "ledger: weights 513.1 MiB", the names padded to one width."""
    return "\n".join(f"ledger: {key:<24} {_shown(key, value)}" for key, value in ledger.items())


def _shown(key: str, value: int | str) -> str:
    if isinstance(value, str) or key in NO_BYTES:
        return str(value)
    for size, unit in _UNITS:
        if abs(value) >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value} bytes"
