"""The cluster that a run joined: which nodes take part, and that all of them are fit to.

The one idea: everything that can be refused is refused before any load: a node with another Python or another
benchlab, an endpoint that a node cannot reach, or that would be another one there. The nodes are those of the moment
of joining; one that comes later is not looked at. It must not know stages or records.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from benchlab.clients.endpoint import Endpoint
from benchlab.errors import TargetError, UsageError
from benchlab.loadgen.cluster_channel import Channel, LostError, Node, UnansweredError

_START_S = 60.0
_REACH_S = 5.0


@dataclass(slots=True)
class Member:
    """A node that takes part: its name in records and manifest (unique in the run), its agent, what it is."""

    name: str
    node: Node
    agent: Any
    facts: dict[str, Any]


class Cluster:
    """Nodes with an agent each, for the length of a run. Use as a context manager: whatever happens, agents end."""

    def __init__(self, channel: Channel, *, workers: int, me: Node) -> None:
        """workers: processes on each node. me: what this process is, to compare with.

        Raises UsageError for versions that differ, TargetError for a node that does not come up.
        """
        self.channel, self.workers = channel, workers
        self.members: list[Member] = []
        try:
            nodes = channel.nodes()
            check_nodes(nodes, me)
            self._me = me
            agents = [(node, channel.start(node, workers)) for node in nodes]
            calls = [(node, agent, channel.call(agent, "facts")) for node, agent in agents]
            for name, (node, agent, call) in zip(unique_names(nodes), calls, strict=True):
                self.members.append(Member(name, node, agent, {}))
                self.members[-1].facts = self._answer(name, call, _START_S)
        except BaseException:
            self.close()
            raise

    @property
    def total(self) -> int:
        """Workers of all nodes."""
        return self.workers * len(self.members)

    def check_endpoint(self, endpoint: Endpoint) -> None:
        """Raise TargetError where a node cannot connect to it, UsageError where its name means another host there."""
        away = [member.name for member in self.members if member.node.boot_id != self._me.boot_id]
        if endpoint.loopback and away:
            raise UsageError(
                f"is this host alone, and the load would come from {', '.join(away[:5])}",
                where=endpoint.base,
                hint="give a name or address that every node can reach",
            )
        calls = [
            (member, self.channel.call(member.agent, "reach", endpoint.host, endpoint.port, _REACH_S))
            for member in self.members
        ]
        for member, call in calls:
            why = self._answer(member.name, call, _START_S)
            if why:
                hint = "is the endpoint's port open to that node, and its name known there?"
                raise TargetError(f"node {member.name} cannot connect: {why}", where=endpoint.base, hint=hint)

    def _answer(self, name: str, call: Any, timeout_s: float) -> Any:
        try:
            return self.channel.get(call, timeout_s)
        except UnansweredError:
            words = f"node {name} did not start its load generator within {timeout_s:.0f} s"
            hint = f"are its CPUs taken by other work? `ray status` tells; each node lends {self.workers}"
            raise TargetError(words, where="--cluster", hint=hint) from None
        except LostError as error:
            raise TargetError(f"node {name} was lost before the start: {error}", where="--cluster") from None

    def close(self) -> None:
        """End the agents and leave the cluster."""
        for member in self.members:
            self.channel.end(member.agent)
        self.members = []
        with contextlib.suppress(Exception):
            self.channel.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_nodes(nodes: Sequence[Node], me: Node) -> None:
    """Raise UsageError where a node's Python (its minor version) or benchlab is another than here; both are named."""
    for node in nodes:
        if not node.benchlab:
            words = f"node {node.hostname} ({node.address}) has no benchlab; here it is {me.benchlab}"
            raise UsageError(words, where="--cluster", hint="install the same benchlab in every node's image")
        for what, theirs, ours in (
            ("Python", _minor(node.python), _minor(me.python)),
            ("benchlab", node.benchlab, me.benchlab),
        ):
            if theirs != ours:
                words = f"node {node.hostname} ({node.address}) has {what} {theirs}, this host {ours}"
                hint = "records of two versions are not one measurement: use the same image everywhere"
                raise UsageError(words, where="--cluster", hint=hint)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def unique_names(nodes: Sequence[Node]) -> list[str]:
    """Host names; where two nodes share one, each gets its address too, and its key where that is shared as well."""
    hosts = Counter(node.hostname for node in nodes)
    places = Counter((node.hostname, node.address) for node in nodes)
    names = []
    for node in nodes:
        name = node.hostname or node.address
        if hosts[node.hostname] > 1:
            name = f"{name}/{node.address}"
            if places[node.hostname, node.address] > 1:
                name = f"{name}/{node.key[:8]}"
        names.append(name)
    return names
