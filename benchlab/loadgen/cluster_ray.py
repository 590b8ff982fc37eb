"""The channel that Ray carries. Ray is imported here, when a run asks for a cluster, and nowhere else.

The one idea: an agent is an actor pinned to one node, never restarted, no call ever repeated by Ray: what is lost must
be seen. Headers travel as arguments of a call from this process straight to the actor's; they are no part of the
actor's description, which the head node keeps. It must not know what an agent does.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchlab.errors import BenchlabError, TargetError, UsageError
from benchlab.loadgen.cluster_channel import LostError, Node, UnansweredError
from benchlab.loadgen.cluster_node import NodeAgent

_REACH_S = 5.0
_NODE_S = 60.0
_STORE_BYTES = 80 * 2**20
"""Object store of a Ray that is started here: it holds the workload's slices and answers of a few MiB."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_BEFORE_IMPORT = {"RAY_ENABLE_AUTO_CONNECT": "0"}
"""Else a call after the connection was lost would wait for minutes while Ray looks for another cluster."""
_LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Despite its name: with it a Ray started here binds to 127.0.0.1 alone, instead of to every interface."""


def check_address(text: str) -> str:
    """'auto' or 'ray://host:port'. Raises UsageError for anything else."""
    if text == "auto":
        return text
    try:
        parts = urlsplit(text)
        good = parts.scheme == "ray" and bool(parts.hostname) and parts.port is not None and parts.username is None
        good = good and not parts.path.strip("/") and not parts.query
    except ValueError:
        good = False
    if not good:
        hint = "write --cluster auto, or --cluster ray://head-node:10001"
        raise UsageError("is no address of a Ray cluster", where="--cluster", hint=hint)
    return text


def connect(address: str) -> RayChannel:
    """Join the cluster at 'ray://host:port'; 'auto': at RAY_ADDRESS, else one that runs on this host, else a new one.

    Raises UsageError where Ray is not installed or speaks another version, TargetError where nothing answers.
    """
    try:
        with _environment(_BEFORE_IMPORT):
            ray = importlib.import_module("ray")
    except ImportError:
        hint = "pip install 'benchlab[cluster]'"
        raise UsageError("Ray is not installed here", where="--cluster", hint=hint) from None
    except Exception as error:  # an installation that is broken in whatever way
        raise UsageError(f"Ray cannot be imported: {_first_line(error)}", where="--cluster") from error
    where = os.environ.get("RAY_ADDRESS", "").strip() if address == "auto" else address
    if where not in ("", "auto", "local"):
        _reach(where)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_threads_quiet())
        stack.callback(_shut_down, ray)
        with _signals_kept(), _environment(_QUIET):
            try:
                _join(ray, where, quiet)
            except Exception as error:
                raise _cannot_join(error, where or "auto") from error
        return RayChannel(ray, where or "auto", stack.pop_all())


def _join(ray: Any, where: str, quiet: dict[str, Any]) -> None:
    if where == "local":
        _start_local(ray, quiet)
        return
    try:
        ray.init(address=where or "auto", **quiet)
    except ConnectionError:
        if where not in ("", "auto"):
            raise
        _start_local(ray, quiet)


def _shut_down(ray: Any) -> None:
    with _signals_kept(), contextlib.suppress(Exception):
        ray.shutdown()


def _start_local(ray: Any, quiet: dict[str, Any]) -> None:
    os.environ.update(_LOOPBACK_ONLY)
    constants: Any = importlib.import_module("ray._private.ray_constants")
    if hasattr(constants, "ENABLE_RAY_CLUSTER"):  # read from the environment when Ray was imported
        constants.ENABLE_RAY_CLUSTER = False
    ray.init(address="local", include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)


def _reach(where: str) -> None:
    """Ray waits for minutes where nobody listens; a plain connection tells at once."""
    parts = urlsplit(where if "://" in where else f"//{where}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        hint = "RAY_ADDRESS is host:port of the head node, or ray://host:port"
        raise UsageError("is no address of a Ray cluster", where="RAY_ADDRESS", hint=hint)
    try:
        with socket.create_connection((host, port), _REACH_S):
            pass
    except OSError as error:
        hint = "is the head node up (`ray status` there), and is the port open from here?"
        raise TargetError(f"no Ray cluster answers: {error.strerror or error}", where=where, hint=hint) from error


def _cannot_join(error: Exception, where: str) -> BenchlabError:
    if isinstance(error, BenchlabError):
        return error
    words = str(error)
    if "ersion" in words and ("mismatch" in words or "differ" in words):
        told = " ".join(words.split())[:400]
        hint = "use the same versions of Python, Ray and benchlab on every node and here"
        return UsageError(f"the cluster runs other versions: {told}", where="--cluster", hint=hint)
    if isinstance(error, ImportError) or "grpc" in words:
        return UsageError(f"Ray's client is not whole: {_first_line(error)}", hint="pip install 'benchlab[cluster]'")
    hint = "`ray status` shows what runs; RAY_ADDRESS=local starts a Ray of its own"
    return TargetError(f"the Ray cluster cannot be joined: {_first_line(error)}", where=where, hint=hint)


def _first_line(error: BaseException) -> str:
    """The error's kind and its first line, or the line that tells why an actor died where there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next((line for line in lines if "dead because" in line or "died because" in line), None)
    return f"{type(error).__name__}: {(why or lines[0])[:300]}" if lines else type(error).__name__


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts a handler of its own on SIGTERM, which ends the process; what a signal means is the run's to say."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    ended = False
    try:
        yield
    except SystemExit:
        ended = main
        if not main:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if ended:
        signal.raise_signal(signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class _Unasked:
    """In place of a call that could not be made."""

    why: str


class _Nowhere(io.TextIOBase):
    """Takes what is written and keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def _threads_quiet() -> Iterator[None]:
    """Threads of Ray print their own news (a node's last log lines) to stdout, which is for the result alone, and
    gRPC's a traceback when the head node goes. What matters of it is said by the run; BENCHLAB_DEBUG=1 shows all.
    """
    if os.environ.get("BENCHLAB_DEBUG"):
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if "grpc" not in "".join(traceback.format_tb(args.exc_traceback)):
            before(args)

    threading.excepthook = hook
    try:
        with contextlib.redirect_stdout(_Nowhere()):
            yield
    finally:
        threading.excepthook = before


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


class RayChannel:
    """`cluster_channel.Channel` over a connected Ray."""

    def __init__(self, ray: Any, address: str, stack: contextlib.ExitStack) -> None:
        """stack: closed when the cluster is left."""
        self._ray, self.address, self._stack = ray, address, stack
        self._errors = ray.exceptions
        self._pin = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy

    def nodes(self) -> list[Node]:
        """Nodes with CPUs to give (a head node that declares none is left out), by address."""
        ray = self._ray
        try:
            found = [node for node in ray.nodes() if node.get("Alive") and (node.get("Resources") or {}).get("CPU")]
        except Exception as error:
            raise _cannot_join(error, self.address) from error
        if not found:
            hint = "`ray status` shows them; a node needs at least one CPU"
            raise TargetError("the cluster has no node that takes work", where=self.address, hint=hint)
        self._cpus = {node["NodeID"]: float(node["Resources"]["CPU"]) for node in found}
        probe = ray.remote(num_cpus=0, max_retries=0)(_make_probe())
        calls = [
            (node, probe.options(scheduling_strategy=self._pin(node["NodeID"], soft=False)).remote()) for node in found
        ]
        return sorted((self._identify(node, call) for node, call in calls), key=lambda node: (node.address, node.key))

    def _identify(self, node: dict[str, Any], call: Any) -> Node:
        address = str(node.get("NodeManagerAddress", ""))
        try:
            told = self._ray.get(call, timeout=_NODE_S)
        except Exception as error:
            words = f"node {address} cannot run a task: {_first_line(error)}"
            raise TargetError(words, where=self.address, hint="`ray status` shows its nodes") from error
        return Node(node["NodeID"], address, **told)

    def start(self, node: Node, workers: int) -> Any:
        cpus = min(workers, int(self._cpus.get(node.key, 1)) or 1)
        actor = self._ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0)(NodeAgent)
        return actor.options(scheduling_strategy=self._pin(node.key, soft=False)).remote()

    def put(self, value: Any) -> Any:
        try:
            return self._ray.put(value)
        except Exception as error:
            words = f"the workload cannot be shipped to the nodes: {_first_line(error)}"
            hint = "a smaller workload, or a Ray with more --object-store-memory"
            raise BenchlabError(words, where=self.address, hint=hint) from error

    def call(self, agent: Any, method: str, *args: Any) -> Any:
        try:
            return getattr(agent, method).remote(*args)
        except Exception as error:  # through a head node that is gone, not even a question can be put
            return _Unasked(_first_line(error))

    def wait(self, calls: Sequence[Any], timeout_s: float) -> list[Any]:
        unasked = [call for call in calls if isinstance(call, _Unasked)]
        if unasked:
            return unasked
        try:
            done, _ = self._ray.wait(list(calls), num_returns=1, timeout=timeout_s)
            if len(calls) > 1:
                done, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
            return [call for call in calls if call in done]  # Ray's client gives new objects back, equal ones
        except Exception:
            return list(calls)  # the connection itself is gone: each call will say so

    def get(self, call: Any, timeout_s: float) -> Any:
        errors = self._errors
        if isinstance(call, _Unasked):
            raise LostError(call.why)
        try:
            return self._ray.get(call, timeout=timeout_s)
        except (errors.GetTimeoutError, getattr(errors, "ActorUnavailableError", errors.GetTimeoutError)) as error:
            raise UnansweredError(_first_line(error)) from error
        except Exception as error:  # the actor died, its node died, the connection to the cluster is gone
            raise LostError(_first_line(error)) from error

    def end(self, agent: Any) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(agent, no_restart=True)

    def close(self) -> None:
        self._stack.close()


def _make_probe() -> Any:
    """A function that tells a node's versions. Made here, so that Ray ships it whole: a node that lacks benchlab, or
    has another, must be able to say so."""

    def probe() -> dict[str, str]:
        import hashlib
        import importlib.metadata
        import importlib.util
        import platform
        from pathlib import Path

        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            boot = platform.node()
        found = importlib.util.find_spec("benchlab")
        version = ""
        if found is not None and found.submodule_search_locations:
            try:
                version = importlib.metadata.version("benchlab")
            except importlib.metadata.PackageNotFoundError:
                version = "0"
            digest = hashlib.sha256()
            root = Path(next(iter(found.submodule_search_locations)))
            for path in sorted(root.rglob("*.py")):
                digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
            version += f" (source {digest.hexdigest()[:8]})"
        return {
            "hostname": platform.node(),
            "boot_id": boot,
            "python": platform.python_version(),
            "benchlab": version,
        }

    return probe


def here() -> Node:
    """This process as a node would tell of itself."""
    return Node("", "", **_make_probe()())
