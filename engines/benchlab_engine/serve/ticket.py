"""One accepted request as the event loop sees it, while it lives and afterwards.

The one idea: a ticket holds what `/timeline` tells, and who is to be called with each piece of news. Ended ones are
kept by the thousand, so instants lie in arrays and the prompt is let go. It must not know wire or sockets.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchlab_engine.core.plan import GREEDY
from benchlab_engine.core.request import FinishReason, RequestSpec, RequestTimes
from benchlab_engine.core.scheduler import Emission


def _nobody(_: Emission) -> None:
    """Hears nothing."""


class Ticket:
    """listener: called on the event loop with each piece of news. written: when each token was handed to the socket.

    is_stopped: its answer has met a stop string.
    """

    __slots__ = (
        "finish",
        "is_stopped",
        "listener",
        "num_cached",
        "num_prompt",
        "num_tokens",
        "ready",
        "spec",
        "times",
        "written",
    )

    def __init__(self, spec: RequestSpec, times: RequestTimes) -> None:
        self.spec = spec
        self.times = times
        self.listener: Callable[[Emission], None] = _nobody
        self.num_prompt = len(spec.prompt)
        self.num_tokens = 0
        self.num_cached = 0
        self.finish: FinishReason | None = None
        self.is_stopped = False
        self.ready: array[int] | list[int] = times.token_ready
        self.written: array[int] = array("q")

    def close(self) -> None:
        """The engine is done with it: keep little."""
        self.listener = _nobody
        self.spec = replace(self.spec, prompt=(), sampling=GREEDY)
        self.ready = array("q", self.times.token_ready)
        self.times.token_ready = []

    @property
    def released(self) -> int | None:
        """When the engine was rid of it: its blocks free and its last token handed to the socket. None before."""
        freed = self.times.released
        if freed is None:
            return None
        return max(freed, self.written[-1]) if self.written else freed

    def timeline(self) -> Mapping[str, Any]:
        """Its times as JSON values, ns of the engine's monotonic clock."""
        times = self.times
        return {
            "request_id": self.spec.request_id,
            "clock": "monotonic_ns",
            "accepted": times.accepted,
            "queued": times.queued,
            "admitted": times.admitted,
            "prefill_start": times.prefill_start,
            "prefill_end": times.prefill_end,
            "token_ready": list(self.ready),
            "token_written": list(self.written),
            "blocks_freed": times.released,
            "released": self.released,
            "preempted": list(times.preempted),
            "resumed": list(times.resumed),
            "prompt_tokens": self.num_prompt,
            "cached_tokens": self.num_cached,
            "output_tokens": self.num_tokens,
            "finish_reason": self.finish,
            "tenant": self.spec.tenant,
            "priority": self.spec.priority,
        }
