"""What the engine tells Prometheus.

The one idea: counters that only grow and gauges read when asked, under names of our own, and once more under vLLM's
where those mean the same, so that its dashboards work. It must not decide anything.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from benchlab_engine.core.journal import StepRow
from benchlab_engine.core.request import FinishReason
from benchlab_engine.core.scheduler import Scheduler
from benchlab_engine.serve.exposition import TOKENS, Histogram, Page
from benchlab_engine.serve.ticket import Ticket

# vLLM's words for how a request ended. One that expired in the line never ran, and has no word there.
_VLLM_ENDS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
    FinishReason.DEADLINE: "abort",
    FinishReason.SLOW_READER: "abort",
    FinishReason.ERROR: "error",
}


class Gauges:
    """Counts of one server's life. Steps are counted on the engine's thread, requests on the event loop's.

    ledger: bytes by part. model: the label on every series.
    """

    def __init__(self, scheduler: Scheduler, ledger: Mapping[str, int], model: str = "") -> None:
        self._scheduler = scheduler
        self._ledger = ledger
        self._model = model
        self._started = time.time()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.step_seconds = Histogram()
        self.step_tokens = Histogram(TOKENS)
        self.requests = {  # of ended requests, in seconds but for the last two
            "time_to_first_token_seconds": Histogram(),
            "inter_token_latency_seconds": Histogram(),
            "e2e_request_latency_seconds": Histogram(),
            "request_queue_time_seconds": Histogram(),
            "request_prefill_time_seconds": Histogram(),
            "request_decode_time_seconds": Histogram(),
            "request_inference_time_seconds": Histogram(),
            "request_prompt_tokens": Histogram(TOKENS),
            "request_generation_tokens": Histogram(TOKENS),
        }
        self.write_seconds = Histogram()

    def on_step(self, row: StepRow) -> None:
        """One step has been settled."""
        self.step_seconds.add((row.end_ns - row.start_ns) / 1e9)
        self.step_tokens.add(row.num_prefill_tokens + row.num_decodes)

    def on_first(self, ticket: Ticket) -> None:
        """A prompt has been computed. Choices beyond the first share theirs, and count none."""
        if not ticket.spec.parent:
            self.prompt_tokens += ticket.num_prompt
            self.cached_tokens += ticket.num_cached

    def on_end(self, ticket: Ticket) -> None:
        """One request has left the engine."""
        self.finished[ticket.finish or FinishReason.ERROR] += 1
        times, add = ticket.times, self._add
        if times.admitted is None or times.accepted is None:
            return
        add("request_queue_time_seconds", times.admitted - (times.queued or times.admitted))
        ready = times.token_ready
        if not ready:
            return
        first, last = ready[0], ready[-1]
        add("time_to_first_token_seconds", first - times.accepted)
        add("e2e_request_latency_seconds", last - times.accepted)
        add("request_prefill_time_seconds", first - (times.prefill_start or first))
        add("request_decode_time_seconds", last - first)
        add("request_inference_time_seconds", last - times.admitted)
        self.requests["request_prompt_tokens"].add(ticket.num_prompt)
        self.requests["request_generation_tokens"].add(len(ready))
        gaps = self.requests["inter_token_latency_seconds"]
        for before, after in pairwise(ready):
            gaps.add((after - before) / 1e9)
        for done, written in zip(ready, ticket.written, strict=False):
            self.write_seconds.add((written - done) / 1e9)

    def _add(self, name: str, ns: int) -> None:
        self.requests[name].add(ns / 1e9)

    def render(self, is_ready: bool, pending: int) -> str:
        """The page. pending: accepted, not yet taken up by the engine's thread."""
        ours, theirs = (
            Page("benchlab:", {"model_name": self._model}),
            Page("vllm:", {"model_name": self._model, "engine": "0"}),
        )
        pool = self._scheduler.pool
        for page, usage in ((ours, "kv_cache_usage_share"), (theirs, "kv_cache_usage_perc")):
            page.gauge("num_requests_running", len(self._scheduler.running))
            page.gauge("num_requests_waiting", len(self._scheduler.waiting) + pending)
            page.gauge(usage, pool.usage)
            page.counter("prefix_cache_queries_total", pool.queried_tokens)
            page.counter("prefix_cache_hits_total", pool.hit_tokens)
            page.counter("num_preemptions_total", self._scheduler.num_preemptions)
            page.counter("prompt_tokens_total", self.prompt_tokens)
            page.counter("prompt_tokens_cached_total", self.cached_tokens)
            page.counter("generation_tokens_total", self.generation_tokens)
            for name, histogram in self.requests.items():
                page.histogram(name, histogram)
            self._speculation(page)
        theirs.histogram("iteration_tokens_total", self.step_tokens)
        ends: Counter[str] = Counter()
        for reason, count in self.finished.items():
            if (word := _VLLM_ENDS.get(FinishReason(reason))) is not None:
                ends[word] += count
        theirs.counters("request_success_total", "finished_reason", ends)
        theirs.counters(
            "admission_rejections_total", "reason", {"max_num_queued_reqs": self.refused.get("queue_full", 0)}
        )
        self._own(ours, is_ready)
        return "\n".join([*ours.lines, *theirs.lines, *self._process()]) + "\n"

    def _own(self, page: Page, is_ready: bool) -> None:
        """What vLLM has no name for."""
        pool = self._scheduler.pool
        page.gauge("kv_blocks", pool.num_blocks)
        page.gauge("kv_blocks_free", pool.num_free)
        page.gauge("ready", int(is_ready))
        page.counters("request_success_total", "finished_reason", {str(k): v for k, v in self.finished.items()})
        page.counters("requests_refused_total", "reason", {str(k): v for k, v in self.refused.items()})
        page.counter("steps_total", sum(self.step_seconds.counts))
        page.histogram("step_seconds", self.step_seconds)
        page.histogram("step_tokens", self.step_tokens)
        page.histogram("token_write_seconds", self.write_seconds)
        parts = {key: float(value) for key, value in self._ledger.items() if key != "kv_per_token"}
        page.gauges("memory_bytes", "part", parts)
        page.gauge("kv_bytes_per_token", self._ledger.get("kv_per_token", 0))

    def _speculation(self, page: Page) -> None:
        told = getattr(self._scheduler, "speculation", None)
        if told is None or not sum(told.num_proposed):
            return
        page.counter("spec_decode_num_drafts_total", told.num_proposed[0])
        page.counter("spec_decode_num_draft_tokens_total", sum(told.num_proposed))
        page.counter("spec_decode_num_accepted_tokens_total", sum(told.num_accepted))
        by_position = {str(position): float(count) for position, count in enumerate(told.num_accepted)}
        page.counters("spec_decode_num_accepted_tokens_per_pos_total", "position", by_position)

    def _process(self) -> list[str]:
        page, used = Page("process_", {}), resource.getrusage(resource.RUSAGE_SELF)
        page.gauge("start_time_seconds", self._started)
        page.counter("cpu_seconds_total", used.ru_utime + used.ru_stime)
        resident = _resident_bytes()
        if resident is not None:
            page.gauge("resident_memory_bytes", resident)
        return page.lines


def _resident_bytes() -> int | None:
    """Memory of this process now; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
