"""A lock file: what a workload is, in figures and hashes, so that a later run can tell whether it is the same load.

The one idea: what binds (items, arrivals, seeds, tokenizer, sampling, chat template) is hashed into one fingerprint,
and when two differ the parts that differ are named. Where the file lies, and in which format, does not bind. It must
not know how a run goes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchlab.errors import NotComparableError, UsageError
from benchlab.units import NS_PER_S
from benchlab.workload.inspect import facts, inspect
from benchlab.workload.item import WorkloadItem
from benchlab.workload.read import Workload

SUFFIX = ".lock.json"
BINDING = ("items", "arrivals", "lengths", "seeds", "tokenizer", "sampling", "chat_template")


def items_digest(items: Sequence[WorkloadItem]) -> str:
    """sha256 of the items without their arrivals, as the bytes of a JSON Lines file."""
    encoder, digest = msgspec.json.Encoder(), hashlib.sha256()
    for item in items:
        digest.update(encoder.encode(msgspec.structs.replace(item, arrival_s=None)) + b"\n")
    return digest.hexdigest()


def arrivals_digest(items: Sequence[WorkloadItem]) -> str | None:
    """sha256 of the arrivals in whole ns, one a line (empty for none); None where no item has one."""
    digest, timed = hashlib.sha256(), False
    for item in items:
        timed = timed or item.arrival_s is not None
        digest.update(b"\n" if item.arrival_s is None else b"%d\n" % round(item.arrival_s * NS_PER_S))
    return digest.hexdigest() if timed else None


def lock(
    workload: Workload,
    *,
    seeds: Mapping[str, int] | None = None,
    tokenizer: str | None = None,
    sampling: Mapping[str, Any] | None = None,
    chat_template: str | None = None,
) -> dict[str, Any]:
    """The lock of a workload as plain data. tokenizer, chat_template: sha256 or a revision, None where not known."""
    found = inspect(workload)
    binding = _binding(workload, found, seeds, tokenizer, sampling, chat_template)
    return {
        "schema": 1,
        "fingerprint": fingerprint(binding),
        **binding,
        "source": {key: found[key] for key in ("path", "sha256", "format")},
        "facts": {key: found[key] for key in ("rows", "time_unit", "inversions", "arrivals", "prefix", "sessions")},
    }


def _binding(
    workload: Workload,
    found: Mapping[str, Any],
    seeds: Mapping[str, int] | None,
    tokenizer: str | None,
    sampling: Mapping[str, Any] | None,
    chat_template: str | None = None,
) -> dict[str, Any]:
    """What binds; `found`: the facts of the items."""
    return {
        "items": {"count": len(workload.items), "sha256": items_digest(workload.items)},
        "arrivals": arrivals_digest(workload.items),
        "lengths": {side: found[f"{side}_tokens"] for side in ("input", "output")},
        "seeds": dict(seeds or {}),
        "tokenizer": tokenizer,
        "sampling": dict(sampling or {}),
        "chat_template": chat_template,
    }


def stored(
    workload: Workload,
    *,
    seeds: Mapping[str, int] | None = None,
    tokenizer: str | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a run's manifest holds of its workload beside the reading: the figures, and the lock without them."""
    figures = facts(workload.items)
    binding = _binding(workload, figures, seeds, tokenizer, sampling)
    return {
        "time_unit": workload.time_unit,
        "inversions": workload.inversions,
        "facts": {key: value for key, value in figures.items() if key not in ("items", "tenants", "tags")},
        "lock": {"fingerprint": fingerprint(binding)} | {key: binding[key] for key in BINDING if key != "lengths"},
    }


def fingerprint(locked: Mapping[str, Any]) -> str:
    """One hash of what binds."""
    binding = {key: locked.get(key) for key in BINDING if key != "lengths"}
    return hashlib.sha256(json.dumps(binding, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def differences(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What binds and is not the same, each in a sentence; a part that the lock leaves open (null) does not bind."""
    told = []
    for key in BINDING:
        was, found = locked.get(key), now.get(key)
        if was == found or was is None or was == {} or (key == "lengths" and locked.get("items") == now.get("items")):
            continue
        if isinstance(was, Mapping) and isinstance(found, Mapping):
            told += [
                f"{key}.{part}: locked {_short(was.get(part))}, now {_short(found.get(part))}"
                for part in sorted({*was, *found})
                if was.get(part) != found.get(part)
            ]
        else:
            told.append(f"{key}: locked {_short(was)}, now {_short(found)}")
    return told


def check_lock(
    path: str | Path,
    workload: Workload,
    *,
    seeds: Mapping[str, int] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> None:
    """Raises NotComparableError, with what differs, where a workload is not the locked one; None is not looked at."""
    locked = read_lock(path)
    now: dict[str, Any] = lock(workload)
    asked = {"seeds": seeds, "sampling": sampling, "tokenizer": None, "chat_template": None}
    now |= {key: locked.get(key) if value is None else dict(value) for key, value in asked.items()}
    told = differences(locked, now)
    if told:
        raise NotComparableError(
            "is not the locked workload:\n  " + "\n  ".join(told),
            where=workload.path,
            hint=f"use the file that was locked ({locked['source']['path']}), or lock this one anew",
        )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def write_lock(locked: Mapping[str, Any], path: Path) -> None:
    """Write a lock file. Raises UsageError for one that is there, for nothing is ever overwritten."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(locked, indent=1, ensure_ascii=False) + "\n")
    except FileExistsError:
        raise UsageError("exists, and nothing is ever overwritten", where=str(path), hint="give another -o") from None
    except OSError as fault:
        raise UsageError(f"cannot be written: {fault.strerror}", where=str(path), hint="give another -o") from fault


def read_lock(path: str | Path) -> dict[str, Any]:
    """A lock file. Raises UsageError for what is none, or was changed by hand."""
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as fault:
        raise UsageError(
            f"is no lock file: {fault}", where=str(path), hint="write one: benchlab workload lock FILE"
        ) from None
    if not isinstance(found, dict) or found.get("schema") != 1:
        raise UsageError("is no lock file of schema 1", where=str(path), hint="write one: benchlab workload lock FILE")
    if found.get("fingerprint") != fingerprint(found):
        raise UsageError("its fingerprint is not that of its contents", where=str(path), hint="write it anew")
    return found
