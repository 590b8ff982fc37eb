"""What the engine tells Prometheus.

The one idea: counters that only grow and gauges read when asked, under names of our own. It must not decide anything.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from benchlab_engine.core.journal import StepRow
from benchlab_engine.core.scheduler import Scheduler
from benchlab_engine.serve.mailbox import Ticket

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts of values in seconds by upper bound."""

    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(_SECONDS, seconds)] += 1
        self.total += seconds

    def lines(self, name: str) -> list[str]:
        """Exposition lines."""
        out, so_far = [f"# TYPE {name} histogram"], 0
        for bound, count in zip(_SECONDS, self.counts, strict=False):
            so_far += count
            out.append(f'{name}_bucket{{le="{bound}"}} {so_far}')
        number = sum(self.counts)
        return [*out, f'{name}_bucket{{le="+Inf"}} {number}', f"{name}_sum {self.total}", f"{name}_count {number}"]


class Gauges:
    """Counts of one server's life. Steps are counted on the engine's thread, requests on the event loop's."""

    def __init__(self, scheduler: Scheduler, ledger: Mapping[str, int]) -> None:
        self._scheduler = scheduler
        self._ledger = ledger
        self._started = time.time()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.steps = 0
        self.step_seconds = Histogram()
        self.ttft = Histogram()
        self.itl = Histogram()
        self.e2e = Histogram()
        self.queue = Histogram()

    def on_step(self, row: StepRow) -> None:
        """One step has been settled."""
        self.steps += 1
        self.step_seconds.add((row.end_ns - row.start_ns) / 1e9)

    def on_end(self, ticket: Ticket) -> None:
        """One request has left the engine."""
        times = ticket.times
        self.finished[ticket.finish or "error"] += 1
        if times.admitted is not None:
            self.prompt_tokens += len(ticket.spec.prompt)
            self.cached_tokens += ticket.num_cached
            self.queue.add((times.admitted - (times.queued or times.admitted)) / 1e9)
        ready = times.token_ready
        if ready and times.accepted is not None:
            self.ttft.add((ready[0] - times.accepted) / 1e9)
            self.e2e.add((ready[-1] - times.accepted) / 1e9)
            for before, after in pairwise(ready):
                self.itl.add((after - before) / 1e9)

    def render(self, is_ready: bool, pending: int) -> str:
        """The page. pending: accepted, not yet taken up by the engine's thread."""
        scheduler, pool = self._scheduler, self._scheduler.pool
        gauges: dict[str, float] = {
            "benchlab:num_requests_running": len(scheduler.running),
            "benchlab:num_requests_waiting": len(scheduler.waiting) + pending,
            "benchlab:kv_cache_usage_share": pool.usage,
            "benchlab:kv_blocks": pool.num_blocks,
            "benchlab:kv_blocks_free": pool.num_free,
            "benchlab:ready": int(is_ready),
            "process_start_time_seconds": self._started,
        }
        counters: dict[str, float] = {
            "benchlab:prefix_cache_queries_total": pool.queried_tokens,
            "benchlab:prefix_cache_hits_total": pool.hit_tokens,
            "benchlab:num_preemptions_total": scheduler.num_preemptions,
            "benchlab:prompt_tokens_total": self.prompt_tokens,
            "benchlab:prompt_tokens_cached_total": self.cached_tokens,
            "benchlab:generation_tokens_total": self.generation_tokens,
            "benchlab:steps_total": self.steps,
        }
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        for name, value in counters.items():
            lines += [f"# TYPE {name} counter", f"{name} {value}"]
        for name, label, counts in (
            ("benchlab:request_success_total", "finished_reason", self.finished),
            ("benchlab:requests_refused_total", "reason", self.refused),
        ):
            lines.append(f"# TYPE {name} counter")
            lines += [f'{name}{{{label}="{key}"}} {value}' for key, value in sorted(counts.items())]
        lines.append("# TYPE benchlab:memory_bytes gauge")
        lines += [f'benchlab:memory_bytes{{part="{key}"}} {value}' for key, value in self._ledger.items()]
        for name, histogram in (
            ("benchlab:step_seconds", self.step_seconds),
            ("benchlab:time_to_first_token_seconds", self.ttft),
            ("benchlab:inter_token_latency_seconds", self.itl),
            ("benchlab:e2e_request_latency_seconds", self.e2e),
            ("benchlab:request_queue_time_seconds", self.queue),
        ):
            lines += histogram.lines(name)
        return "\n".join(lines) + "\n"
