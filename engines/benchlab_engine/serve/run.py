"""A serving process from bind to exit.

The one idea: take the port, load, say `ready`, serve, drain, leave. It must not know routes or runners.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import signal
import socket
import sys

from aiohttp import web

from benchlab_engine.errors import CANNOT_LOAD, USAGE, EngineError
from benchlab_engine.serve.answer import Desk
from benchlab_engine.serve.app import Face, Server
from benchlab_engine.serve.build import Built, build
from benchlab_engine.serve.gauges import Gauges
from benchlab_engine.serve.ledger_text import NO_BYTES, ledger_text
from benchlab_engine.serve.mailbox import Mailbox
from benchlab_engine.serve.options import ServeOptions
from benchlab_engine.sim.faults import Fault, parse_fault

_SEND_BUFFER = 64 * 1024  # bytes; the kernel doubles it
_LINGER_S = 2.0  # how long the rest of a body is read whose answer is out already, so that the answer is not lost


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    faults = options.allow_faults or options.runner.startswith("paced")
    try:
        fault = parse_fault(options.fault)
    except ValueError as error:
        raise EngineError(f"--fault: {error}", USAGE) from None
    if options.fault and not faults:
        raise EngineError("--fault needs --allow-faults or a paced runner", USAGE)
    with _bind(options.host, options.port) as listener:
        built = build(options)
        print(json.dumps({"ledger": built.ledger}), file=sys.stderr)  # noqa: T201
        print(ledger_text(built.ledger), file=sys.stderr, flush=True)  # noqa: T201
        with contextlib.suppress(ImportError):
            import uvloop

            return int(uvloop.run(_serve(options, built, listener, faults, fault)))
        return asyncio.run(_serve(options, built, listener, faults, fault))


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise EngineError(f"--host {host}: {error}; use an address of this machine, such as 127.0.0.1") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. Left to itself the kernel takes megabytes for a client that does not read.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise EngineError(
                f"port {port} of {host} is taken; choose another, or --port 0 for any", CANNOT_LOAD
            ) from None
        raise EngineError(f"cannot bind {host}:{port}: {error}", CANNOT_LOAD) from None
    # Bound early, so that a taken port is known before a model is loaded; listening comes with `ready`.
    return listener


async def _serve(options: ServeOptions, built: Built, listener: socket.socket, faults: bool, fault: Fault) -> int:
    sizes = {key: value for key, value in built.ledger.items() if isinstance(value, int) and key not in NO_BYTES}
    gauges = Gauges(built.engine.scheduler, sizes, built.name)
    mailbox = Mailbox(built.engine, gauges)
    face = Face(
        api_key=options.api_key,
        max_wait_ns=options.max_wait_ns,
        tenant_limit=options.tenant_limit,
        body_limit_s=options.body_limit_ns / 1e9,
        faults=faults,
        default_fault=fault,
    )
    server = Server(face, Desk(built.name, built.vocabulary, mailbox, gauges))
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # What is not HTTP is the client's affair and answered with 400; our own failures are printed where they are caught.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL + 1)
    # A client that goes away must end its handler at once: leaving the handler is what cancels the request.
    runner = web.AppRunner(
        server.application(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0, lingering_time=_LINGER_S
    )
    await runner.setup()
    mailbox.start(loop)
    try:
        await web.SockSite(runner, listener, backlog=4096).start()
    except OSError as error:
        raise EngineError(f"cannot listen on {options.host}:{options.port}: {error}", CANNOT_LOAD) from None
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"ready http://{shown}:{port}", flush=True)  # noqa: T201
    await stop.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)  # a second signal ends the process at once
    await server.drain(options.drain_ns / 1e9)
    await runner.cleanup()
    mailbox.stop()
    built.close()
    return 0
