"""The items of a run: a file as it lies, or prompts of one length made from the seed."""

from __future__ import annotations

import hashlib

from benchlab.campaign.spec import RunSpec
from benchlab.errors import UsageError
from benchlab.workload.make import make, to_bytes
from benchlab.workload.read import Workload, read_items
from benchlab.workload.recipes import fixed

_MADE_ITEMS = 1000
"""Different prompts of one length; a longer run goes round (and a cold cache salts each round)."""


def load_workload(spec: RunSpec) -> Workload:
    """Read or make the workload. Raises UsageError for a file that holds nothing to send."""
    if spec.data is None:
        items = make(fixed(spec.isl or 1, spec.osl or 1), spec.seed, _MADE_ITEMS)
        digest = hashlib.sha256(to_bytes(items)).hexdigest()
        name = f"fixed:{spec.isl}:{spec.osl}"
        return Workload(items, name, digest, len(items), len(items), format="made")
    workload = read_items(
        spec.data,
        lenient=spec.lenient,
        allow_unknown=spec.allow_unknown,
        time_unit=spec.time_unit,
        block_tokens=spec.block_tokens,
    )
    if not workload.items:
        raise UsageError("the workload holds no request", where=str(spec.data))
    return workload
