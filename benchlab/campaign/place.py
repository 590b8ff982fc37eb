"""Where a run's load comes from: worker processes of this host, or those of a cluster's nodes.

The one idea: both have the same calls, so that a run is told apart from one on several machines in this file and
nowhere else. Nothing of a cluster is imported for a run without one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchlab.campaign.spec import RunSpec
from benchlab.clock import SystemClock
from benchlab.errors import UsageError
from benchlab.loadgen.job import WorkerJob
from benchlab.loadgen.limits import raise_descriptor_limit
from benchlab.loadgen.pool import WorkerPool

if TYPE_CHECKING:
    from benchlab.loadgen.cluster import Cluster
    from benchlab.loadgen.cluster_pool import ClusterPool

    Pool = WorkerPool | ClusterPool


def find_place(
    spec: RunSpec, connections: int, say: Callable[[str], None], stack: contextlib.ExitStack
) -> tuple[RunSpec, Cluster | None]:
    """The run with the number of workers that all hosts have together, and the cluster if it asks for one.

    connections: how many at once the run may need, 0 if not known. Raises UsageError for limits of this host that are
    too low and for clusters that do not fit, TargetError where no cluster answers.
    """
    if spec.cluster is None:
        raise_descriptor_limit(-(-connections // spec.workers) or None)
        return spec, None
    from benchlab.loadgen.cluster import Cluster
    from benchlab.loadgen.cluster_ray import connect, here

    if spec.source_addresses:
        hint = "leave it out: every node connects from its own"
        raise UsageError(
            "is an address of this host, and the load comes from others", where="--source-address", hint=hint
        )
    say(f"joining the cluster ({spec.cluster})")
    cluster = stack.enter_context(Cluster(connect(spec.cluster), workers=spec.workers, me=here()))
    names = ", ".join(member.name for member in cluster.members[:8])
    more = f" and {len(cluster.members) - 8} more" if len(cluster.members) > 8 else ""
    each = f"{spec.workers} worker{'s' if spec.workers > 1 else ''}"
    if len(cluster.members) == 1:
        say(f"load comes from one node with {each}: {names}")
    else:
        say(f"load comes from {len(cluster.members)} nodes with {each} each: {names}{more}")
    if spec.max_inflight is not None and spec.max_inflight < cluster.total:
        raise UsageError(
            f"{spec.max_inflight} in flight cannot be shared out among the {cluster.total} workers of the cluster",
            where="--max-inflight",
            hint="hosts share no memory: each worker gets its part of the cap; use fewer nodes, or a larger cap",
        )
    return replace(spec, workers=cluster.total), cluster


@contextlib.contextmanager
def open_pool(
    cluster: Cluster | None,
    jobs: Sequence[WorkerJob],
    *,
    folder: Path,
    manifest: dict[str, Any],
    connections: int,
    say: Callable[[str], None],
) -> Iterator[Pool]:
    """The workers, started; the manifest's `client` and `hosts` say what they are.

    folder: the run's spool.
    """
    if cluster is None:
        with WorkerPool(jobs, logs=folder) as pool:
            manifest["client"] |= {"loop": pool.loop, "stamp_source": pool.stamp_source}
            yield pool
        return
    from benchlab.loadgen.cluster_pool import ClusterPool

    each = -(-connections // len(jobs)) or None
    with ClusterPool(cluster, jobs, spool=folder, clock=SystemClock(), connections=each) as many:
        many.tell(say)
        manifest["client"] |= {"loop": many.loop, "stamp_source": many.stamp_source}
        manifest["client"] |= {"cluster": {"nodes": len(many.hosts), "workers_per_node": cluster.workers}}
        manifest["hosts"] = many.hosts
        yield many
