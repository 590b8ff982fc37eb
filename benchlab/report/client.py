"""One sentence on the load generator itself: what its certificate says at its worst over all stages.

The one idea: a reader should see at a glance whether the client was the bottleneck, without opening the rules. It must
not judge: the rules do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchlab.report.view import Summary, items, mapping, number
from benchlab.units import format_number

_FINEST_MS = 0.1
"""What comes between a packet and its stamp is not in the certificate; `benchlab doctor` measures that it is less."""


def client_line(summary: Summary) -> str | None:
    """'headroom 47x, 2 % of a core, dispatch lag p99 0.3 ms, ...'; None where the summary does not tell."""
    told = [client for stage in items(summary.get("stages")) if (client := mapping(mapping(stage).get("client")))]
    workers = [mapping(worker) for client in told for worker in items(client.get("workers"))]
    if not workers:
        return None
    parts: list[str] = []
    if (head := min(_numbers(client.get("headroom") for client in told), default=None)) is not None:
        parts.append(f"headroom {format_number(head, 2)}×")
    if (busy := _most(client.get("cpu_share") for client in told)) is not None:
        parts.append(f"{format_number(100 * busy, 2)} % of a core")
    for key, word in (("dispatch_lag_ms", "dispatch lag"), ("loop_lag_ms", "loop lag")):
        if (late := _most(mapping(client.get(key)).get("p99") for client in told)) is not None:
            parts.append(f"{word} p99 {format_number(late, 2)} ms")
    if (error := _most(client.get("stamp_error_ms") for client in told)) is not None:
        sources = {str(client.get("stamps")) for client in told if client.get("stamps")}
        stamps = sources.pop() if len(sources) == 1 else "mixed"
        within = format_number(error, 2) if error >= _FINEST_MS else f"{_FINEST_MS:g}"
        parts.append(f"times within {within} ms ({stamps} stamps)")
    unsent = sum(_numbers(client.get("not_sent") for client in told))
    if unsent:
        parts.append(f"{unsent:,.0f} not sent")
    return ", ".join(parts) or None


def _numbers(values: Iterable[Any]) -> list[float]:
    return [found for value in values if (found := number(value)) is not None]


def _most(values: Iterable[Any]) -> float | None:
    return max(_numbers(values), default=None)
