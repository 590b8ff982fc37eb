"""The bundled server with its engine in a process of its own instead of a thread: for the comparison, nothing else.

    python -m tests.benchmarks.engine_serve --engine thread,process

The same server and engine; letters go through a socket pair, pickled, and a step's news comes back in one message.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
import sys

import benchlab_engine.serve.run as run
from benchlab_engine.__main__ import main
from benchlab_engine.core.admission import refuse
from benchlab_engine.core.request import RequestTimes
from benchlab_engine.core.scheduler import Emission
from benchlab_engine.serve.mailbox import Mailbox
from benchlab_engine.serve.ticket import Ticket

_TIMES = ("queued", "admitted", "prefill_start", "prefill_end", "released")


class ApartMailbox(Mailbox):
    """A mailbox whose engine steps in a child process."""

    def start(self, loop):
        """Fork the engine and read its news."""
        self._loop = loop
        ours, theirs = socket.socketpair()
        self._child = os.fork()
        if self._child == 0:
            try:
                ours.close()  # or the end of the parent would never be seen
                _engine(self.engine, theirs)
            finally:
                os._exit(0)
        theirs.close()
        self._pipe, self._buffer = ours, b""
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        loop.add_reader(ours.fileno(), self._read)

    def stop(self):
        """End the child."""
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        os.waitpid(self._child, 0)

    def submit(self, specs, accepted_ns):
        """As in a thread, through the pipe."""
        refusal = refuse(specs[0], self.engine.scheduler.config.limits(), len(self.live))
        if refusal is not None:
            return refusal
        tickets = [Ticket(spec, RequestTimes(accepted=accepted_ns)) for spec in specs]
        self.live.update((ticket.spec.request_id, ticket) for ticket in tickets)
        _send(self._pipe, ("submit", specs))
        return tickets

    def cancel(self, request_id, reason):
        """As in a thread, through the pipe."""
        if request_id in self.live:
            _send(self._pipe, ("cancel", request_id, reason))

    def _read(self):
        self._buffer += self._pipe.recv(1 << 20)
        while len(self._buffer) >= 4:
            (size,) = struct.unpack("<I", self._buffer[:4])
            if len(self._buffer) < 4 + size:
                return
            news, self._buffer = pickle.loads(self._buffer[4 : 4 + size]), self._buffer[4 + size :]
            for request_id, at_ns, token, finish, cached, times in news:
                ticket = self.live.get(request_id)
                if ticket is None:
                    continue
                if token is not None:
                    ticket.times.token_ready.append(at_ns)
                if times is not None:
                    for name, value in zip(_TIMES, times, strict=True):
                        setattr(ticket.times, name, value)
                self._deliver([Emission(request_id, at_ns, token, finish, cached)])


def _engine(engine, pipe):
    kept: dict[str, RequestTimes] = {}
    while True:
        idle = not engine.scheduler.requests
        while select.select([pipe], [], [], None if idle else 0)[0]:
            letter = _receive(pipe)
            if letter is None:
                return
            if letter[0] == "submit":
                for spec in letter[1]:
                    kept[spec.request_id] = times = RequestTimes()
                    engine.submit(spec, engine.clock(), times)
            else:
                engine.cancel(letter[1], engine.clock(), letter[2])
            idle = False
        news = []
        for each in engine.step().emissions:
            times = kept.pop(each.request_id, None) if each.finish is not None else None
            told = None if times is None else tuple(getattr(times, name) for name in _TIMES)
            news.append((each.request_id, each.at_ns, each.token, each.finish, each.num_cached, told))
        if news:
            _send(pipe, news)


def _send(pipe, value):
    raw = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.setblocking(True)
    pipe.sendall(struct.pack("<I", len(raw)) + raw)


def _receive(pipe):
    head = pipe.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    return pickle.loads(pipe.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))


if __name__ == "__main__":
    run.Mailbox = ApartMailbox
    sys.exit(main(sys.argv[1:]))
