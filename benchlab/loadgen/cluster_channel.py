"""What a run on several machines needs of whatever carries its calls: a seam with two sides, Ray's and the tests'.

The one idea: agents are called by name, answers are asked for, and an agent that is gone says so. It must not know
workers, stages or records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Node:
    """A machine (or pod) of the cluster, as it was when the run joined.

    key: the cluster's own id. hostname, boot_id: of the machine underneath, so that two nodes on one can be told.
    python, benchlab: versions found there; benchlab is empty where it is not installed.
    """

    key: str
    address: str
    hostname: str
    boot_id: str
    python: str
    benchlab: str


class LostError(Exception):
    """The agent, or the node that it was on, is gone and will not come back."""


class UnansweredError(Exception):
    """No answer now; there may be one later."""


class Channel(Protocol):
    """Calls to agents. None of these blocks for longer than its limit."""

    def nodes(self) -> list[Node]:
        """Every node that can take work, asked for its versions. Raises BenchlabError where one does not answer."""
        ...

    def start(self, node: Node, workers: int) -> Any:
        """An agent (`cluster_node.NodeAgent`) on this node, with room for so many workers; it may still be coming."""
        ...

    def put(self, value: Any) -> Any:
        """Ship a value that many calls will use; what is returned is given to `call` in its place."""
        ...

    def call(self, agent: Any, method: str, *args: Any) -> Any:
        """Call a method; returns what `wait` and `get` take. Calls to one agent are made in order."""
        ...

    def wait(self, calls: Sequence[Any], timeout_s: float) -> list[Any]:
        """Those of the calls (the same objects) that have ended, waiting until one has."""
        ...

    def get(self, call: Any, timeout_s: float) -> Any:
        """The answer. Raises LostError, UnansweredError."""
        ...

    def end(self, agent: Any) -> None:
        """End an agent and its workers at once."""
        ...

    def close(self) -> None:
        """Leave the cluster; what was started for this run ends."""
        ...
