"""A cluster without Ray: agents in this process, each with real workers, calls answered at once. Nodes can be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchlab.loadgen.cluster_channel import LostError, Node, UnansweredError
from benchlab.loadgen.cluster_node import NodeAgent

ME = Node("", "", "here", "boot", "3.11.7", "1.0")


def node(number: int, **more: str) -> Node:
    known = {"hostname": f"host{number}", "address": f"10.0.0.{number}", "key": f"key{number}"}
    return Node(**({"boot_id": "boot", "python": "3.11.9", "benchlab": "1.0"} | known | more))


class NearChannel:
    """`cluster_channel.Channel` over agents here. lose: asked before each answer; True makes that node die."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        lose: Callable[[Node, str], bool] = lambda node, method: False,
        silent: Callable[[Node, str], bool] = lambda node, method: False,
        agent: Callable[[], Any] = NodeAgent,
    ) -> None:
        self._nodes, self._lose, self._silent, self._agent = list(nodes), lose, silent, agent
        self.agents: dict[str, Any] = {}
        self.calls: list[tuple[str, str]] = []
        self.args: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.gone: set[str] = set()
        self.closed = False

    def nodes(self) -> list[Node]:
        return self._nodes

    def start(self, node: Node, workers: int) -> Any:
        self.agents[node.key] = self._agent()
        return node

    def put(self, value: Any) -> Any:
        return value

    def call(self, agent: Node, method: str, *args: Any) -> Any:
        self.calls.append((agent.key, method))
        self.args[agent.key, method] = args
        if agent.key not in self.gone and self._lose(agent, method):
            self.end(agent)
        if agent.key in self.gone:
            return [LostError("the node is gone")]
        if self._silent(agent, method):
            return [UnansweredError("no word")]
        return [getattr(self.agents[agent.key], method)(*args)]

    def wait(self, calls: Sequence[Any], timeout_s: float) -> list[Any]:
        return list(calls)

    def get(self, call: Any, timeout_s: float) -> Any:
        if isinstance(call[0], Exception):
            raise call[0]
        return call[0]

    def end(self, agent: Node) -> None:
        """As by SIGKILL: its workers end, and nobody hears of what they had."""
        if agent.key not in self.gone:
            self.gone.add(agent.key)
            self.agents[agent.key].quit()
            self.agents[agent.key].leave()

    def close(self) -> None:
        self.closed = True


class FakeAgent:
    """Facts and reachability without a host."""

    why = ""

    def facts(self) -> dict[str, Any]:
        return {"name": "x", "cores": 4}

    def reach(self, host: str, port: int, timeout_s: float) -> str:
        return self.why

    def quit(self) -> None:
        pass

    def leave(self) -> None:
        pass
